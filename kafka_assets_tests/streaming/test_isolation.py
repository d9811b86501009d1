"""One bad row does not stop a table, and one bad deployment does not empty a topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import DeadShareExceeded, RunFailed
from kafka_assets.graph import Graph
from kafka_assets.operations.letters import Filter
from kafka_assets.operations.replay import replay
from kafka_assets.settings import Settings
from kafka_assets.streaming import isolation
from kafka_assets.streaming.plan import plan_table
from kafka_assets.streaming.run import run_graph, run_table
from kafka_assets_tests.helpers import create_topic, graph_of, produce
from kafka_assets_tests.pipeline import Pipeline, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def pipeline(spark: SparkSession, settings: Settings, topic_name: str) -> Pipeline:
    return Pipeline(spark, settings, topic_name)


def dividing(pipeline: Pipeline, rule: str = "x > 0") -> Graph:
    """The pipeline, with a function that raises where x is 0."""
    events = ka.kafka_topic(pipeline.topic, name="events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events

    @ka.streaming_table(layer="silver", schema="event.ddl")
    @ka.expect_or_drop("positive", rule)
    def clean(raw: Any) -> Any:
        return raw.withColumn("share", 100 / F.col("x"))

    return graph_of(pipeline.settings, events, raw, clean)


def test_a_row_on_which_the_function_raises_becomes_a_dead_letter_and_the_rest_is_kept(
    pipeline: Pipeline,
) -> None:
    pipeline.graph = dividing(pipeline)
    pipeline.produce(
        event("a", 1), event("zero", 0), event("b", 5), event("dead", -1), b"no", event("nil", 0)
    )
    report = pipeline.run()["clean"]

    assert pipeline.rows("clean", "id", "share") == [("a", 100.0), ("b", 20.0)]
    letters = pipeline.letters("offset", "failed_rules", "reason", "value")
    assert [offset for offset, *_ in letters] == [1, 3, 4, 5]
    assert "DIVIDE_BY_ZERO" in letters[0][2]
    assert letters[0][2].startswith("the function raised: ")
    assert b'"zero"' in letters[0][3]
    assert letters[1][1] == ["positive"]
    assert (report.decoded, report.undecodable, report.raised, report.dead) == (3, 1, 2, 4)
    assert all(equality.holds for equality in report.conservation)


def test_a_row_on_which_a_rule_raises_becomes_a_dead_letter(pipeline: Pipeline) -> None:
    pipeline.graph = dividing(pipeline, rule="CAST(id AS INT) > 0")
    pipeline.produce(event("1", 1), event("no number", 2), event("3", 3))
    report = pipeline.run()["clean"]

    assert pipeline.rows("clean", "id") == [("1",), ("3",)]
    ((offset, reason),) = pipeline.letters("offset", "reason")
    assert offset == 1
    assert "CAST_INVALID_INPUT" in reason
    assert all(equality.holds for equality in report.conservation)


def test_a_function_that_raises_on_most_rows_fails_and_nothing_is_committed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "MOST", 2)
    pipeline.graph = dividing(pipeline)
    pipeline.produce(*[event(str(number), 0) for number in range(4)])
    with pytest.raises(RunFailed, match="DIVIDE_BY_ZERO"):
        pipeline.run()
    assert pipeline.rows("clean", "id") == []
    assert pipeline.letters("offset") == []


SOURCE = "struct<topic: string, partition: int, offset: bigint, timestamp: timestamp>"


def undecoded(pipeline: Pipeline, divide: Any) -> Graph:
    """Tables without `schema=` whose functions raise where x is 0, each in its own way."""
    events = ka.kafka_topic(pipeline.topic, name="events")
    fields = "id STRING, x INT, at TIMESTAMP"

    def read(rows: Any) -> Any:
        return rows.withColumn("e", F.from_json(F.col("value").cast("string"), fields))

    @ka.streaming_table(layer="bronze")
    @ka.expect_or_drop("positive", "x > 0")
    def raw(events: Any) -> Any:
        return read(events).selectExpr("*", "e.x").withColumn("share", divide("x")).drop("e")

    @ka.streaming_table(layer="bronze")
    def all_of_them(events: Any) -> Any:
        return events

    @ka.temporary_view()
    def read_events(all_of_them: Any) -> Any:
        source = F.struct("topic", "partition", "offset", "timestamp")
        return read(all_of_them).select("e.*", source.alias("_source"))

    @ka.streaming_table(layer="silver")
    def plain(read_events: Any) -> Any:
        return read_events

    @ka.streaming_table(layer="silver")
    @ka.expect_or_drop("positive", "x > 0")
    def shares(read_events: Any) -> Any:
        return read_events.withColumn("share", divide("x"))

    @ka.streaming_table(layer="silver")
    @ka.expect_or_drop("positive", "x > 0")
    def again(plain: Any) -> Any:
        return plain.withColumn("share", divide("x"))

    declared = (events, raw, all_of_them, read_events, plain, shares, again)
    return graph_of(pipeline.settings, *declared)


def hundredth(column: str) -> Any:
    return 100 / F.col(column)


@pytest.mark.verify
def test_a_row_on_which_a_function_without_a_schema_raises_becomes_a_dead_letter_too(
    pipeline: Pipeline,
) -> None:
    pipeline.graph = undecoded(pipeline, hundredth)
    zero = event("zero", 0)
    pipeline.produce(event("a", 1), zero, event("dead", -1), event("b", 5))
    reports = run_graph(pipeline.graph, pipeline.spark, pipeline.settings)
    tables = ("raw", "shares", "again")
    for table in tables:
        assert pipeline.rows(table, "x", "share") == [(1, 100.0), (5, 20.0)]
        letters = pipeline.letters("offset", "failed_rules", "reason", "value", table=table)
        assert [(o, rules) for o, rules, *_ in letters] == [(1, []), (2, ["positive"])]
        assert letters[0][2].startswith("the function raised: [DIVIDE_BY_ZERO]")
        assert letters[0][3] == json.dumps(zero).encode()
        report = reports[table]
        assert (report.returned, report.raised, report.dead, report.kept) == (3, 1, 2, 2)
        assert all(equality.holds for equality in report.conservation)

    pipeline.produce(event("c", 10), event("nil", 0))
    # One that reads the topic itself, and one that reads a table.
    again = ("raw", "shares")
    names = (*again, "all_of_them")
    run_graph(pipeline.graph, pipeline.spark, pipeline.settings, names=names)
    mended = undecoded(pipeline, lambda column: F.col(column) * 2.0).tables
    for table in again:
        assert pipeline.rows(table, "x") == [(1,), (10,), (5,)]
        # Nothing is left out any more: both rows of zero come in, each once.
        letters_of = Filter(rule="(raised)")
        said = replay(mended[table], pipeline.spark, pipeline.settings, letters_of, by="me")
        assert said.still_dead == {"positive: x > 0": 2}


@pytest.mark.verify
def test_the_bytes_of_a_record_are_kept_also_where_bronze_made_text_of_them(
    pipeline: Pipeline,
) -> None:
    events = ka.kafka_topic(pipeline.topic, name="events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events.withColumn("value", F.col("value").cast("string"))

    @ka.streaming_table(layer="silver")
    @ka.expect_or_drop("positive", "x > 0")
    def clean(raw: Any) -> Any:
        return number(raw)

    pipeline.graph = graph_of(pipeline.settings, events, raw, clean)
    pipeline.produce(b"1", b"one", b"-1")
    pipeline.run()
    assert pipeline.rows("clean", "x") == [(1,)]
    assert pipeline.letters("offset", "value") == [(1, b"one"), (2, b"-1")]


def number(rows: Any) -> Any:
    return rows.withColumn("x", F.col("value").cast("string").cast("int"))


def once_each(rows: Any) -> Any:
    return rows.withWatermark("timestamp", "1 hour").dropDuplicatesWithinWatermark(["key"])


def beside_itself(rows: Any) -> Any:
    right = rows.select(F.col("offset").alias("same"), F.col("timestamp").alias("at"))
    return rows.join(right, F.expr("offset = same AND timestamp = at")).drop("same", "at")


@pytest.mark.parametrize("function", [once_each, beside_itself])
def test_a_function_that_puts_rows_beside_others_is_not_given_its_batches_one_by_one(
    pipeline: Pipeline, function: Any
) -> None:
    events = ka.kafka_topic(pipeline.topic, name="events")

    @ka.streaming_table(layer="bronze")
    @ka.expect_or_drop("positive", "x > 0")
    def raw(events: Any) -> Any:
        return number(function(events))

    pipeline.graph = graph_of(pipeline.settings, events, raw)
    assert not plan_table(pipeline.graph.tables["raw"], pipeline.spark).alone


def test_a_function_that_looks_at_each_row_by_itself_may_be_given_its_batches_one_by_one(
    pipeline: Pipeline,
) -> None:
    events = ka.kafka_topic(pipeline.topic, name="events")

    @ka.temporary_view()
    def numbers(events: Any) -> Any:
        return number(events)

    @ka.streaming_table(layer="bronze")
    @ka.expect_or_drop("positive", "x > 0")
    def raw(numbers: Any) -> Any:
        # An operator's name as a column's.
        return numbers.withColumn("Aggregate", F.lit("GlobalLimit"))

    @ka.streaming_table(layer="silver", reads={"raw": "static"})
    @ka.expect_or_drop("positive", "x > 0")
    def looks_up(numbers: Any, raw: Any) -> Any:
        return numbers.join(raw.select("key"), "key")

    pipeline.graph = graph_of(pipeline.settings, events, numbers, raw, looks_up)
    alone = {n: plan_table(t, pipeline.spark).alone for n, t in pipeline.graph.tables.items()}
    assert alone == {"raw": True, "looks_up": False}


@pytest.mark.verify
def test_rows_that_name_no_record_are_kept_beside_one_that_raises(
    spark: SparkSession, settings: Settings, topic_name: str, tmp_path: Path
) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/1.json").write_text('{"x": 4}')
    create_topic(settings.kafka.bootstrap_servers, topic_name)
    produce(settings.kafka.bootstrap_servers, topic_name, [b"5", b"0"])
    events = ka.kafka_topic(topic_name, name="events")
    past = ka.file_source("past", str(tmp_path / "landing"), format="json", schema="x INT")
    everything = ka.create_streaming_table("everything", layer="bronze")

    @ka.append_flow(target="everything")
    def live(events: Any) -> Any:
        source = F.struct("topic", "partition", "offset", "timestamp").alias("_source")
        return events.select(source, F.col("value").cast("string").cast("int").alias("x"))

    @ka.append_flow(target="everything")
    def old(past: Any) -> Any:
        return past.select(F.expr("NULL").cast(SOURCE).alias("_source"), "x")

    @ka.streaming_table(layer="silver")
    @ka.expect_or_drop("positive", "x > 0")
    def shares(everything: Any) -> Any:
        return everything.withColumn("share", 100 / F.col("x"))

    graph = graph_of(settings, events, past, everything, live, old, shares)
    run_graph(graph, spark, settings)
    found = DeltaTable(graph.tables["shares"].path).to_pyarrow_table().to_pylist()
    assert sorted(row["share"] for row in found) == [20.0, 25.0]


def test_a_table_without_dead_letters_says_how_its_rows_could_become_some(
    pipeline: Pipeline,
) -> None:
    events = ka.kafka_topic(pipeline.topic, name="events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events.withColumn("x", F.col("value").cast("string").cast("int"))

    pipeline.graph = graph_of(pipeline.settings, events, raw)
    pipeline.produce(b"no number")
    with pytest.raises(RunFailed, match="CAST_INVALID_INPUT") as failed:
        pipeline.run()
    assert "schema=" in str(failed.value.fix)


def guarded(pipeline: Pipeline, **limits: Any) -> Settings:
    limits = {"guarded_rows": 4, **limits}
    return pipeline.settings.model_copy(
        update={"dead_letters": pipeline.settings.dead_letters.model_copy(update=limits)}
    )


def test_a_batch_that_would_mostly_die_is_stopped_and_nothing_is_committed(
    pipeline: Pipeline,
) -> None:
    settings = guarded(pipeline)
    pipeline.produce(event("a", 1), b"bad", b"worse", event("negative", -1))
    run_table(pipeline.graph.tables["raw"], pipeline.spark, settings)
    clean = pipeline.graph.tables["clean"]
    with pytest.raises(DeadShareExceeded, match=r"3 of 4 rows .*undecodable 2, positive 1"):
        run_table(clean, pipeline.spark, settings)
    assert pipeline.rows("clean", "id") == []
    assert pipeline.letters("offset") == []

    report = run_table(clean, pipeline.spark, guarded(pipeline, max_share=1.0))
    assert (report.kept, report.dead) == (1, 3)


def test_a_batch_of_few_rows_may_die_whole(pipeline: Pipeline) -> None:
    settings = guarded(pipeline)
    pipeline.produce(b"bad", b"worse", b"worst")
    run_table(pipeline.graph.tables["raw"], pipeline.spark, settings)
    report = run_table(pipeline.graph.tables["clean"], pipeline.spark, settings)
    assert (report.kept, report.dead) == (0, 3)
