"""Rare values, names and writers: what they were once able to break."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.operations.letters import find
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph, run_table
from kafka_assets_tests.helpers import Send, graph_of, ids
from kafka_assets_tests.pipeline import Pipeline, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.graph import Graph


@pytest.fixture
def pipeline(spark: SparkSession, settings: Settings, topic_name: str) -> Pipeline:
    return Pipeline(spark, settings, topic_name)


def stock_and_views(settings: Settings) -> Graph:
    """A table of others, a view that may become empty, and a view of that one."""
    stock = ka.external_table("stock", layer="silver")

    @ka.materialized_view(layer="gold")
    def plenty(stock: Any) -> Any:
        return stock.filter("n > 1")

    @ka.materialized_view(layer="gold")
    def shown(plenty: Any) -> Any:
        return plenty

    return graph_of(settings, stock, plenty, shown)


def stock_is(
    settings: Settings, *numbers: int, mode: Literal["append", "overwrite"] = "overwrite"
) -> None:
    path = Path(settings.lake) / "silver/stock"
    write_deltalake(path, pa.table({"n": pa.array(numbers, pa.int64())}), mode=mode)


@pytest.mark.verify
def test_views_follow_a_table_that_is_written_without_spark_and_a_view_that_became_empty(
    spark: SparkSession, settings: Settings
) -> None:
    graph = stock_and_views(settings)
    for numbers, left in ([1, 2, 3], [2, 3]), ([1], []), ([5], [5]):
        stock_is(settings, *numbers)
        run_graph(graph, spark, settings)
        assert ids(graph.tables["plenty"].path, "n") == left
        assert ids(graph.tables["shown"].path, "n") == left
    stock_is(settings, 7, mode="append")
    run_graph(graph, spark, settings)
    assert ids(graph.tables["shown"].path, "n") == [5, 7]
    assert [report.batches for report in run_graph(graph, spark, settings).values()] == [0, 0]


@pytest.mark.verify
def test_a_change_feed_that_was_switched_on_later_begins_with_the_rows_of_then(
    spark: SparkSession, settings: Settings
) -> None:
    stock_is(settings, 5, 6)
    place = f"delta.`{settings.lake}/silver/stock`"
    spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    stock = ka.external_table("stock", layer="silver")

    @ka.streaming_table(layer="silver", reads={"stock": "changes"})
    def moves(stock: Any) -> Any:
        return stock.select("n", F.col("_change_type").alias("what"))

    node = graph_of(settings, stock, moves).tables["moves"]
    run_table(node, spark, settings)
    spark.sql(f"DELETE FROM {place} WHERE n = 5")
    run_table(node, spark, settings)
    rows = DeltaTable(node.path).to_pyarrow_table().to_pylist()
    found = sorted((row["n"], row["what"]) for row in rows)
    assert found == [(5, "delete"), (5, "insert"), (6, "insert")]


@pytest.mark.verify
def test_a_row_at_the_end_of_time_has_its_window(pipeline: Pipeline) -> None:
    pipeline.produce(event("a", 1), {"id": "z", "x": 3, "at": "9999-12-31T23:59:59Z"})
    pipeline.run()
    assert pipeline.rows("hourly", "total") == [(1,), (3,)]


def test_a_row_that_may_be_a_tombstone_and_breaks_a_rule_is_a_dead_letter(
    pipeline: Pipeline,
) -> None:
    events = ka.kafka_topic(pipeline.topic, name="events")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    @ka.expect_or_drop("positive", "x > 0")
    def clean(events: Any) -> Any:
        return events.withColumn("_tombstone", F.lit(None).cast("boolean"))

    pipeline.produce(event("a", 1), event("b", -1))
    graph = graph_of(pipeline.settings, events, clean)
    report = run_table(graph.tables["clean"], pipeline.spark, pipeline.settings)
    assert (report.kept, report.dead) == (1, 1)


def test_a_row_that_a_rule_lets_live_only_for_a_moment_is_in_one_place(pipeline: Pipeline) -> None:
    events = ka.kafka_topic(pipeline.topic, name="events")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    @ka.expect_or_drop("in_time", "xxhash64(x, current_timestamp()) % 2 = 0")
    def clean(events: Any) -> Any:
        return events

    pipeline.produce(*[event(str(n), n) for n in range(100)])
    node = graph_of(pipeline.settings, events, clean).tables["clean"]
    report = run_table(node, pipeline.spark, pipeline.settings)
    assert all(equality.holds for equality in report.conservation)
    assert (report.kept + report.dead, 0 < report.dead < 100) == (100, True)
    offsets = [int(str(letter.at[-1])) for letter in find(node)]
    rows = DeltaTable(node.path).to_pyarrow_table(columns=["_source"]).to_pylist()
    kept = [row["_source"]["offset"] for row in rows]
    assert sorted(offsets + kept) == list(range(100))


@pytest.mark.verify
def test_flows_may_bring_different_columns_to_a_table_with_rules(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics
    both = ka.create_streaming_table("both", layer="silver", expect_all={"some": "x > 0"})

    @ka.append_flow(target=both, schema="event.ddl")
    def of_web(web: Any) -> Any:
        return web

    @ka.append_flow(target=both, schema="event.ddl")
    def of_app(app: Any) -> Any:
        return app.withColumn("version", F.lit(2))

    send("web", ("a", 1))
    send("app", ("b", 1))
    graph = graph_of(settings, web, app, both, of_web, of_app)
    report = run_graph(graph, spark, settings)["both"]
    assert all(equality.holds for equality in report.conservation)
    rows = DeltaTable(graph.tables["both"].path).to_pyarrow_table(columns=["id", "version"])
    found = sorted((row["id"], row["version"]) for row in rows.to_pylist())
    assert found == [("a", None), ("b", 2)]
