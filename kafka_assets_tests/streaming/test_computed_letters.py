"""Dead letters of rows that are computed anew: of windowed tables and of views."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import KafkaAssetsError
from kafka_assets.operations.letters import Filter, discard, find, overview
from kafka_assets.settings import Settings
from kafka_assets.streaming import batch
from kafka_assets.streaming.run import run_table
from kafka_assets_tests.helpers import graph_of, ids
from kafka_assets_tests.pipeline import Pipeline, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.graph import Node


@pytest.fixture
def pipeline(spark: SparkSession, settings: Settings, topic_name: str) -> Pipeline:
    return Pipeline(spark, settings, topic_name)


@pytest.mark.verify
def test_a_window_that_is_computed_anew_takes_its_dead_letters_along(pipeline: Pipeline) -> None:
    events = ka.kafka_topic(pipeline.topic, name="events")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clean(events: Any) -> Any:
        return events

    @ka.windowed_table(layer="gold", event_time="at", window="1 hour")
    @ka.expect_or_drop("busy", "most >= 10")
    def hourly(clean: Any) -> Any:
        hour = F.date_trunc("hour", "at").alias("hour's start")
        return clean.groupBy(hour).agg(F.max("x").alias("most"))

    pipeline.graph = graph_of(pipeline.settings, events, clean, hourly)
    node = pipeline.graph.tables["hourly"]

    def after(*rows: Any) -> list[str]:
        pipeline.produce(*rows)
        report = pipeline.run()["hourly"]
        assert all(equality.holds for equality in report.conservation)
        return [str(letter.values["row"])[-9:-1] for letter in find(node)]

    assert after(event("a", 1), event("b", 2, hour=11), event("c", 30, hour=12)) == [
        '"most":1',
        '"most":2',
    ]
    # What one window is now says nothing of the other.
    assert after(event("d", 20)) == ['"most":2']
    assert sorted(pipeline.rows("hourly", "most")) == [(20,), (30,)]

    discard(node, pipeline.settings, Filter(), reason="a quiet hour")
    assert after(event("e", 1, hour=11)) == [], "the same row was decided on"
    assert after(event("f", 4, hour=11)) == ['"most":4']


def view_of_stock(settings: Settings, known: str = "n < 100") -> Node:
    stock = ka.external_table("stock", layer="silver")

    @ka.materialized_view(layer="gold")
    @ka.expect_or_drop("known", known)
    def plenty(stock: Any) -> Any:
        return stock

    return graph_of(settings, stock, plenty).tables["plenty"]


def stock_is(settings: Settings, *numbers: int) -> None:
    table = pa.table({"n": pa.array(numbers, pa.int64())})
    write_deltalake(Path(settings.lake) / "silver/stock", table, mode="overwrite")


def rows_of(node: Node) -> list[Any]:
    return sorted(letter.values["row"] for letter in find(node))


def test_a_view_has_the_dead_letters_of_its_last_computation(
    spark: SparkSession, settings: Settings
) -> None:
    node = view_of_stock(settings)
    for stock, dead in ([5, 500, 600], ['{"n":500}', '{"n":600}']), ([6, 600], ['{"n":600}']):
        stock_is(settings, *stock)
        run_table(node, spark, settings)
        assert rows_of(node) == dead
    stock_is(settings, 7)
    assert run_table(node, spark, settings).kept == 1
    assert rows_of(node) == []


def test_letters_of_a_rule_that_is_no_more_go_when_their_rows_are_computed(
    spark: SparkSession, settings: Settings
) -> None:
    node = view_of_stock(settings)
    stock_is(settings, 5, 500)
    run_table(node, spark, settings)
    assert rows_of(node) == ['{"n":500}']
    stock = ka.external_table("stock", layer="silver")

    @ka.materialized_view(layer="gold")
    def plenty(stock: Any) -> Any:
        return stock

    node = graph_of(settings, stock, plenty).tables["plenty"]
    assert [group.rule for group in overview([node])] == ["known"]
    assert run_table(node, spark, settings).kept == 2
    assert overview([node]) == []


@pytest.mark.verify
def test_a_decision_holds_while_its_row_comes_out_the_same_and_breaks_the_same_rules(
    spark: SparkSession, settings: Settings
) -> None:
    node = view_of_stock(settings)
    stock_is(settings, 500)
    run_table(node, spark, settings)
    discard(node, settings, Filter(), reason="known")
    for stock, dead in (([500, 1], []), ([1], []), ([500], ['{"n":500}'])):
        stock_is(settings, *stock)
        run_table(node, spark, settings)
        assert rows_of(node) == dead


@pytest.mark.verify
def test_letters_of_a_view_are_not_lost_when_code_that_failed_is_taken_back(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = view_of_stock(settings)
    stock_is(settings, 5, 500)
    run_table(node, spark, settings)

    def dies(*_: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as patched:
        patched.setattr(batch, "_write_table", dies)
        with pytest.raises((KafkaAssetsError, OSError)):
            run_table(view_of_stock(settings, known="n < 3"), spark, settings)
    run_table(node, spark, settings)
    assert ids(node.path, "n") == [5]
    assert rows_of(node) == ['{"n":500}']
    assert run_table(node, spark, settings).batches == 0


@pytest.mark.verify
def test_letters_of_a_view_whose_run_died_before_its_table_was_written_are_there_once(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = view_of_stock(settings)
    stock_is(settings, 5, 500)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(batch, "_write_table", dies)
        with pytest.raises(KeyboardInterrupt):
            run_table(node, spark, settings)
    run_table(node, spark, settings)
    assert ids(node.path, "n") == [5]
    assert rows_of(node) == ['{"n":500}']
