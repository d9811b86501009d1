"""The plan finds on empty frames what only Spark can know, and names table, place and fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import PlanError
from kafka_assets.settings import Settings
from kafka_assets.streaming.plan import plan_graph, plan_table
from kafka_assets_tests.helpers import graph_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EVENTS = ka.kafka_topic("events")


@ka.streaming_table(layer="bronze")
def raw(events: Any) -> Any:
    return events


@ka.streaming_table(layer="silver", schema="event.ddl")
def clean(raw: Any) -> Any:
    return raw


@pytest.fixture
def offline(tmp_path: Path) -> Settings:
    """Settings that need no broker."""
    (tmp_path / "event.ddl").write_text("x INT NOT NULL, at TIMESTAMP, until TIMESTAMP")
    return Settings(lake=str(tmp_path / "lake"), schemas=tmp_path)


def planned(spark: SparkSession, settings: Settings, table: ka.Table) -> Any:
    graph = graph_of(settings, EVENTS, raw, clean, table)
    return plan_table(graph.tables[table.name], spark)


def refused(spark: SparkSession, settings: Settings, table: ka.Table) -> str:
    with pytest.raises(PlanError) as raised:
        planned(spark, settings, table)
    assert f"table {table.name!r} (" in raised.value.what
    assert "test_plan.py:" in raised.value.what
    assert raised.value.fix
    return str(raised.value)


def test_a_decoded_table_has_the_payloads_fields_then_where_they_came_from(
    spark: SparkSession, offline: Settings
) -> None:
    schema = planned(spark, offline, clean).schema
    assert schema.names == ["x", "at", "until", "_source", "_key", "_headers"]
    assert (
        schema["_source"].dataType.simpleString()
        == "struct<topic:string,partition:int,offset:bigint,timestamp:timestamp>"
    )


def test_an_unknown_column_is_named_with_the_columns_there_are(
    spark: SparkSession, offline: Settings
) -> None:
    @ka.streaming_table(layer="silver")
    def typo(clean: Any) -> Any:
        return clean.select("y")

    message = refused(spark, offline, typo)
    assert "`y`" in message
    assert "clean has x, at, until" in message


def test_a_type_error_is_found(spark: SparkSession, offline: Settings) -> None:
    @ka.streaming_table(layer="silver")
    def mistyped(clean: Any) -> Any:
        return clean.withColumn("z", F.array_max("x"))

    assert "DATATYPE_MISMATCH" in refused(spark, offline, mistyped)


def test_a_function_that_returns_no_frame_is_named(spark: SparkSession, offline: Settings) -> None:
    @ka.streaming_table(layer="silver")
    def nothing(clean: Any) -> Any:
        return None

    assert "returned NoneType, not a DataFrame" in refused(spark, offline, nothing)


def test_a_function_that_raises_is_named(spark: SparkSession, offline: Settings) -> None:
    @ka.streaming_table(layer="silver")
    def broken(clean: Any) -> Any:
        raise KeyError("oh")

    assert "raised KeyError" in refused(spark, offline, broken)


def test_losing_source_in_a_table_with_dead_letters_is_refused_with_the_fix(
    spark: SparkSession, offline: Settings
) -> None:
    @ka.streaming_table(layer="silver")
    @ka.expect_or_drop("positive", "x > 0")
    def bare(clean: Any) -> Any:
        return clean.select("x")

    message = refused(spark, offline, bare)
    assert "its function loses _source" in message
    assert '.select("_source", ...)' in message


def test_losing_source_is_fine_where_no_row_can_die(spark: SparkSession, offline: Settings) -> None:
    @ka.streaming_table(layer="silver")
    @ka.expect("positive", "x > 0")
    def bare(clean: Any) -> Any:
        return clean.select("x")

    assert planned(spark, offline, bare).schema.names == ["x"]


def test_a_rule_on_a_column_that_is_not_there_is_named_with_its_line(
    spark: SparkSession, offline: Settings
) -> None:
    @ka.streaming_table(layer="silver")
    @ka.expect("positive", "amount > 0")
    def ruled(clean: Any) -> Any:
        return clean

    message = refused(spark, offline, ruled)
    assert "expectation 'positive' (" in message
    assert "`amount`" in message


def test_a_rule_that_is_no_condition_is_refused(spark: SparkSession, offline: Settings) -> None:
    @ka.streaming_table(layer="silver")
    @ka.expect("sum", "x + 1")
    def ruled(clean: Any) -> Any:
        return clean

    assert "'x + 1' is of type int, not a condition" in refused(spark, offline, ruled)


def test_a_rule_may_be_a_function_that_returns_a_column(
    spark: SparkSession, offline: Settings
) -> None:
    @ka.streaming_table(layer="silver")
    @ka.expect("positive", lambda: F.col("x") > 0)
    def ruled(clean: Any) -> Any:
        return clean

    assert planned(spark, offline, ruled).has_source


def test_reserved_column_names_are_refused(spark: SparkSession, offline: Settings) -> None:
    @ka.streaming_table(layer="silver")
    def secret(clean: Any) -> Any:
        return clean.withColumn("_mine", F.lit(1))

    assert "'_mine': names that begin with _ are reserved" in refused(spark, offline, secret)


def test_the_window_column_is_the_only_timestamp_or_must_be_named(
    spark: SparkSession, offline: Settings
) -> None:
    def hourly(keys: list[str], **options: Any) -> ka.Table:
        @ka.windowed_table(layer="gold", event_time="at", window="1 hour", **options)
        def hourly(clean: Any) -> Any:
            return clean.groupBy(*keys).count()

        return hourly

    assert planned(spark, offline, hourly(["at"])).window_column == "at"
    assert "2 timestamp columns" in refused(spark, offline, hourly(["at", "until"]))
    named = hourly(["at", "until"], window_column="until")
    assert planned(spark, offline, named).window_column == "until"


def test_an_event_time_that_is_no_column_is_named(spark: SparkSession, offline: Settings) -> None:
    @ka.windowed_table(layer="gold", event_time="moment", window="1 hour")
    def hourly(clean: Any) -> Any:
        return clean.groupBy("at").count()

    assert "event_time='moment' is no column of 'clean'" in refused(spark, offline, hourly)


def test_decoding_an_upstream_without_a_value_is_refused(
    spark: SparkSession, offline: Settings
) -> None:
    @ka.streaming_table(layer="bronze")
    def keys(events: Any) -> Any:
        return events.select("key")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def decoded(keys: Any) -> Any:
        return keys

    graph = graph_of(offline, EVENTS, keys, decoded)
    found = plan_graph(graph, spark)
    assert "has no column headers, offset, partition" in str(found["decoded"])


def test_the_plan_of_a_graph_reports_every_table_that_is_wrong(
    spark: SparkSession, offline: Settings
) -> None:
    @ka.streaming_table(layer="silver")
    def one(clean: Any) -> Any:
        return clean.select("nope")

    @ka.streaming_table(layer="silver")
    def two(clean: Any) -> Any:
        return clean.select("neither")

    @ka.materialized_view(layer="gold")
    def after(one: Any) -> Any:
        return one

    found = plan_graph(graph_of(offline, EVENTS, raw, clean, one, two, after), spark)
    wrong = [name for name, result in found.items() if isinstance(result, PlanError)]
    assert wrong == ["one", "two"]
    assert "after" not in found


def test_an_aggregate_of_a_stream_says_when_its_groups_are_complete_or_how_rows_are_updated(
    spark: SparkSession, offline: Settings
) -> None:
    def counted(clean: Any) -> Any:
        return clean.groupBy("x").count()

    def of_hours(clean: Any) -> Any:
        late = clean.withWatermark("at", "1 hour")
        return late.groupBy(F.window("at", "1 hour")).count()

    table = ka.streaming_table(layer="gold")
    assert "aggregates a stream without a watermark" in refused(spark, offline, table(counted))
    updated = ka.streaming_table(layer="gold", keys="x")(counted)
    assert planned(spark, offline, updated).schema.names == ["x", "count"]
    assert planned(spark, offline, table(of_hours)).schema.names == ["window", "count"]
