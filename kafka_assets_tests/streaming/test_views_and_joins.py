"""Tables that read through temporary views, join others, or read another code location's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph
from kafka_assets_tests.helpers import Send, graph_of, ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def bronze_and_view(web: Any) -> list[Any]:
    @ka.streaming_table(layer="bronze")
    def raw(web: Any) -> Any:
        return web

    @ka.temporary_view()
    def recent(raw: Any) -> Any:
        return raw.filter("offset > 0")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clean(recent: Any) -> Any:
        return recent

    @ka.materialized_view(layer="gold")
    def counted(recent: Any) -> Any:
        return recent.groupBy("topic").count()

    return [web, raw, recent, clean, counted]


def test_a_temporary_view_has_no_files_and_its_readers_see_what_it_shows(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, _, send = two_topics
    send("web", ("a", 1), ("b", 2), ("c", 3))
    graph = graph_of(settings, *bronze_and_view(web))
    reports = run_graph(graph, spark, settings)
    assert ids(graph.tables["clean"].path) == ["b", "c"]
    assert ids(graph.tables["counted"].path, "count") == [2]
    assert list(graph.tables) == ["raw", "clean", "counted"]
    assert reports["clean"].kept == 2
    assert run_graph(graph, spark, settings)["counted"].batches == 0


def test_a_stream_looks_things_up_in_a_table_as_it_is_when_the_batch_runs(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def names(app: Any) -> Any:
        return app.select("id", F.col("x").alias("number"), "_source")

    @ka.streaming_table(layer="bronze")
    def raw(web: Any) -> Any:
        return web

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clean(raw: Any) -> Any:
        return raw

    @ka.streaming_table(layer="gold", reads={"names": "static"})
    @ka.expect_or_drop("known", "number IS NOT NULL")
    def named(clean: Any, names: Any) -> Any:
        return clean.join(names.drop("_source"), "id", "left")

    send("app", ("a", 7))
    send("web", ("a", 1), ("b", 2))
    graph = graph_of(settings, web, app, names, raw, clean, named)
    run_graph(graph, spark, settings)
    gold = graph.tables["named"]
    assert ids(gold.path, "number") == [7]
    send("app", ("b", 8))
    send("web", ("b", 3))
    report = run_graph(graph, spark, settings)["named"]
    assert ids(gold.path, "number") == [7, 8]
    # What was joined before is not joined again, and the letter kept its raw bytes.
    assert report.kept == 1
    (letter,) = DeltaTable(gold.dead_letters_path).to_pyarrow_table().to_pylist()
    assert json.loads(letter["value"]) == {"id": "b", "x": 2}


def test_two_streams_are_joined_whichever_side_comes_first(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clicks(web: Any) -> Any:
        return web.withColumn("at", F.col("_source.timestamp"))

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def orders(app: Any) -> Any:
        return app.withColumn("at", F.col("_source.timestamp"))

    @ka.streaming_table(layer="gold")
    def matched(clicks: Any, orders: Any) -> Any:
        left = clicks.withWatermark("at", "1 hour").alias("c")
        right = orders.drop("_source").withWatermark("at", "1 hour").alias("o")
        near = "c.id = o.id AND o.at BETWEEN c.at - INTERVAL 1 HOUR AND c.at + INTERVAL 1 HOUR"
        return left.join(right, F.expr(near)).select("c.id", "c._source", F.col("o.x").alias("x"))

    send("web", ("a", 1))
    send("app", ("b", 6))
    graph = graph_of(settings, web, app, clicks, orders, matched)
    run_graph(graph, spark, settings)
    send("app", ("a", 5))
    send("web", ("b", 2))
    run_graph(graph, spark, settings)
    assert ids(graph.tables["matched"].path, "x") == [5, 6]


def test_a_table_of_another_code_location_is_an_upstream(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, _, send = two_topics

    @ka.streaming_table(layer="bronze")
    def raw(web: Any) -> Any:
        return web

    there = graph_of(settings, web, raw)
    send("web", ("a", 1))
    run_graph(there, spark, settings)
    elsewhere = ka.external_table("raw", layer="bronze")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clean(raw: Any) -> Any:
        return raw

    here = graph_of(settings, elsewhere, clean)
    run_graph(here, spark, settings)
    assert ids(here.tables["clean"].path) == ["a"]
    send("web", ("b", 2))
    run_graph(there, spark, settings)
    run_graph(here, spark, settings)
    assert ids(here.tables["clean"].path) == ["a", "b"]


@pytest.mark.verify
def test_changes_and_windows_are_read_through_a_view_as_well(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, _, send = two_topics

    @ka.streaming_table(layer="bronze", schema="event.ddl")
    def changes(web: Any) -> Any:
        return web.withColumn("at", F.col("_source.timestamp"))

    @ka.temporary_view()
    def doubled(changes: Any) -> Any:
        return changes.withColumn("x", F.col("x") * 2)

    present = ka.create_streaming_table("present", layer="silver")
    flow = ka.create_auto_cdc_flow(
        target=present, source=doubled, keys="id", sequence_by="_source.offset"
    )

    @ka.windowed_table(layer="gold", event_time="at", window="1 day")
    def daily(doubled: Any) -> Any:
        return doubled.groupBy(F.date_trunc("day", "at").alias("day")).agg(F.sum("x").alias("x"))

    graph = graph_of(settings, web, changes, doubled, present, flow, daily)
    send("web", ("a", 1), ("b", 2))
    run_graph(graph, spark, settings)
    send("web", ("a", 5))
    run_graph(graph, spark, settings)
    assert ids(graph.tables["present"].path, "x") == [4, 10]
    assert ids(graph.tables["daily"].path, "x") == [16]
