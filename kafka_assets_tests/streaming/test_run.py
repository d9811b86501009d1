"""One run of one table, on a real broker, real Spark and real Delta."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import ExpectationFailed, LakeError, LeaseHeld, RunFailed, SourceError
from kafka_assets.settings import KafkaSettings, Settings
from kafka_assets.streaming import batch, interpreted
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.run import run_table
from kafka_assets_tests.helpers import graph_of
from kafka_assets_tests.pipeline import Pipeline, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.demo.broker import Broker

pytestmark = pytest.mark.usefixtures("broker", "spark")


@pytest.fixture
def pipeline(spark: SparkSession, settings: Settings, topic_name: str) -> Pipeline:
    return Pipeline(spark, settings, topic_name)


def test_events_reach_silver_gold_and_the_dead_letters(pipeline: Pipeline) -> None:
    pipeline.produce(event("a", 1), event("b", 2, hour=11), event("c", -1), b"garbage", None)
    reports = pipeline.run()

    assert pipeline.rows("clean", "id", "x") == [("a", 1), ("b", 2)]
    assert [total for _, total in pipeline.rows("hourly", "hour", "total")] == [1, 2]
    assert pipeline.rows("largest", "x") == [(2,)]
    assert pipeline.letters("offset", "failed_rules", "value") == [
        (2, ["positive"], json.dumps(event("c", -1)).encode()),
        (3, [], b"garbage"),
        (4, [], None),
    ]
    silver = reports["clean"]
    assert (silver.rows_read, silver.decoded, silver.undecodable) == (5, 3, 2)
    assert (silver.returned, silver.kept, silver.dead) == (3, 2, 3)
    assert all(c.holds for report in reports.values() for c in report.conservation)


def test_a_second_run_without_new_data_changes_nothing(pipeline: Pipeline) -> None:
    pipeline.produce(event("a", 1))
    first = pipeline.run()
    second = pipeline.run()
    assert [r.batches for r in second.values()] == [0, 0, 0, 0]
    assert [r.data_version for r in second.values()] == [r.data_version for r in first.values()]
    assert [r.version_to for r in second.values()] == [r.version_to for r in first.values()]


@pytest.mark.skipif("KAFKA_ASSETS_SPARK__REMOTE" in os.environ, reason="the JVM is elsewhere")
@pytest.mark.verify
def test_no_code_is_compiled_anew_for_a_batch_like_those_before(
    pipeline: Pipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreted, "FEW", -1)
    metrics: Any = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    compiled = []
    for _ in range(4):
        pipeline.produce(event("a", 1), event("b", -1), b"garbage")
        for name in ("raw", "clean"):
            run_table(pipeline.graph.tables[name], spark, pipeline.settings)
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount())
    assert compiled[-1] == compiled[-2]


def even() -> Any:
    """A rule may be a function that returns a Column, called where the batch is."""
    return F.col("x") % 2 == 0


def test_rules_report_how_many_rows_broke_them_and_the_first(pipeline: Pipeline) -> None:
    pipeline.graph = pipeline.graph_with(ka.expect("even", even))
    pipeline.produce(event("a", 1), event("b", 500), event("c", -1), event("d", 600))
    by_function, positive, small = pipeline.run("raw", "clean")["clean"].rules
    assert (by_function.name, by_function.rule, by_function.broken) == ("even", "even()", 2)
    assert (positive.name, positive.action, positive.broken) == ("positive", "drop", 1)
    assert (small.name, small.action, small.broken) == ("small", "warn", 2)
    assert positive.first is not None
    assert positive.first["offset"] == 2
    assert small.first is not None
    assert small.first["offset"] == 1
    assert pipeline.rows("clean", "id") == [("a",), ("b",), ("d",)]


def test_a_rule_that_is_null_counts_as_broken(pipeline: Pipeline) -> None:
    pipeline.produce(event("a", None))
    pipeline.run("raw", "clean")
    assert pipeline.rows("clean", "id") == []
    assert pipeline.letters("failed_rules") == [(["positive"],)]


def test_a_late_row_corrects_its_window_and_no_other(pipeline: Pipeline) -> None:
    pipeline.produce(event("a", 1), event("b", 2, hour=11))
    pipeline.run("raw", "clean", "hourly")
    pipeline.produce(event("late", 5))
    report = pipeline.run("raw", "clean", "hourly")["hourly"]
    assert report.extra["windows"] == 1
    assert [total for _, total in pipeline.rows("hourly", "hour", "total")] == [6, 2]


def test_offsets_and_lag_say_how_far_a_topic_was_read(pipeline: Pipeline) -> None:
    pipeline.produce(event("a", 1), event("b", 2))
    pipeline.run("raw")
    pipeline.produce(event("c", 3))
    report = pipeline.run("raw")["raw"]
    assert report.offsets == {f"{pipeline.topic}/0": (2, 3)}
    assert report.lag == 0


def test_offsets_are_published_for_lag_tools(pipeline: Pipeline, broker: Broker) -> None:
    pipeline.produce(event("a", 1), event("b", 2))
    pipeline.run("raw")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    request = [
        ConsumerGroupTopicPartitions("kafka-assets.raw", [TopicPartition(pipeline.topic, 0)])
    ]
    (future,) = admin.list_consumer_group_offsets(request).values()
    assert future.result().topic_partitions[0].offset == 2


def test_a_broken_fail_rule_commits_nothing_of_its_batch(pipeline: Pipeline) -> None:
    pipeline.graph = pipeline.graph_with(ka.expect_or_fail("known", "id <> 'intruder'"))
    pipeline.produce(event("a", 1))
    pipeline.run("raw", "clean")
    pipeline.produce(event("b", 2), event("intruder", 3), event("c", -1))
    with pytest.raises(ExpectationFailed) as raised:
        pipeline.run("raw", "clean")
    assert raised.value.rules["known"]["broken"] == 1
    assert "offset 2" in raised.value.what
    assert pipeline.rows("clean", "id") == [("a",)]
    assert pipeline.letters("offset") == []

    pipeline.graph = pipeline.graph_with()
    pipeline.run("raw", "clean")
    assert pipeline.rows("clean", "id") == [("a",), ("b",), ("intruder",)]
    assert pipeline.letters("offset") == [(3,)]


@pytest.mark.verify
def test_what_a_dead_run_committed_is_reported_by_the_next(pipeline: Pipeline) -> None:
    pipeline.produce(event("a", 1), event("c", -1))
    unreported = pipeline.run("raw", "clean")["clean"]
    pipeline.produce(event("b", 2))
    pipeline.run("raw", "clean")
    node = pipeline.graph.tables["clean"]
    both = run_table(
        node,
        pipeline.spark,
        pipeline.settings,
        reported_version=unreported.version_from or 0,
    )
    assert (both.rows_read, both.kept, both.dead) == (3, 2, 1)
    assert all(c.holds for c in both.conservation)


@pytest.mark.verify
def test_a_batch_that_reached_the_table_is_not_written_again(pipeline: Pipeline) -> None:
    pipeline.produce(event("a", 1), event("c", -1), b"garbage")
    pipeline.run("raw", "clean")
    commits = Path(pipeline.graph.tables["clean"].checkpoint) / "commits"
    for file in ("0", ".0.crc"):
        (commits / file).unlink()
    pipeline.graph = pipeline.graph_with(ka.expect_or_drop("new", "x > 50"))
    pipeline.run("raw", "clean")
    assert pipeline.rows("clean", "id") == [("a",)]
    assert len(pipeline.letters("offset")) == 2


@pytest.mark.verify
def test_letters_of_a_batch_that_never_reached_the_table_are_replaced(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*arguments: Any) -> None:
        raise RuntimeError("the process ends between the dead letters and the table")

    pipeline.produce(event("a", 1), event("b", -1))
    run_table(pipeline.graph.tables["raw"], pipeline.spark, pipeline.settings)
    with monkeypatch.context() as patched:
        patched.setattr(batch, "_write_table", die)
        with pytest.raises(RunFailed, match="the process ends"):
            run_table(pipeline.graph.tables["clean"], pipeline.spark, pipeline.settings)
    assert pipeline.letters("offset") == [(1,)]

    pipeline.graph = pipeline.graph_with(ka.expect_or_drop("not_a", "id <> 'a'"))
    report = run_table(pipeline.graph.tables["clean"], pipeline.spark, pipeline.settings)
    assert pipeline.rows("clean", "id") == []
    assert pipeline.letters("offset", "failed_rules") == [(0, ["not_a"]), (1, ["positive"])]
    assert all(c.holds for c in report.conservation)


@pytest.mark.verify
def test_letters_of_a_batch_that_has_none_any_more_are_removed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*arguments: Any) -> None:
        raise RuntimeError("the process ends between the dead letters and the table")

    pipeline.graph = pipeline.graph_with(ka.expect_or_drop("not_a", "id <> 'a'"))
    pipeline.produce(event("a", 1))
    run_table(pipeline.graph.tables["raw"], pipeline.spark, pipeline.settings)
    with monkeypatch.context() as patched:
        patched.setattr(batch, "_write_table", die)
        with pytest.raises(RunFailed):
            run_table(pipeline.graph.tables["clean"], pipeline.spark, pipeline.settings)

    pipeline.graph = pipeline.graph_with()
    run_table(pipeline.graph.tables["clean"], pipeline.spark, pipeline.settings)
    assert pipeline.rows("clean", "id") == [("a",)]
    assert pipeline.letters("offset") == []


def test_a_second_run_of_one_table_is_refused_and_told_who_runs(pipeline: Pipeline) -> None:
    node = pipeline.graph.tables["raw"]
    with (
        lease(node, pipeline.settings, "first-run"),
        pytest.raises(LeaseHeld, match="run first-run, pid "),
    ):
        run_table(node, pipeline.spark, pipeline.settings)
    run_table(node, pipeline.spark, pipeline.settings)


def test_a_missing_topic_is_named(pipeline: Pipeline) -> None:
    missing = Pipeline.__new__(Pipeline)
    missing.settings, missing.topic = pipeline.settings, "never-created"
    node = missing.graph_with().tables["raw"]
    with pytest.raises(SourceError, match="the topic 'never-created' does not exist at 127"):
        run_table(node, pipeline.spark, pipeline.settings)


def test_a_broker_that_is_down_is_named_and_worth_a_retry(pipeline: Pipeline) -> None:
    down = pipeline.settings.model_copy(
        update={"kafka": KafkaSettings(bootstrap_servers="127.0.0.1:1", request_timeout_seconds=2)}
    )
    with pytest.raises(
        SourceError, match=r"the broker at 127\.0\.0\.1:1 cannot be reached"
    ) as raised:
        run_table(pipeline.graph.tables["raw"], pipeline.spark, down)
    assert raised.value.transient


def test_a_table_before_its_upstream_is_told_to_wait(pipeline: Pipeline) -> None:
    with pytest.raises(SourceError, match="'clean' reads 'raw', which does not exist yet"):
        run_table(pipeline.graph.tables["clean"], pipeline.spark, pipeline.settings)


def test_a_lake_that_cannot_be_written_is_named(pipeline: Pipeline) -> None:
    file = Path(pipeline.settings.lake)
    file.write_text("a file where the lake should be")
    with pytest.raises(LakeError, match="cannot be written"):
        run_table(pipeline.graph.tables["raw"], pipeline.spark, pipeline.settings)


def test_a_new_column_of_the_function_widens_the_table_whatever_its_fields_are_called(
    pipeline: Pipeline,
) -> None:
    pipeline.produce(event("a", 1))
    pipeline.run("raw")
    events = ka.kafka_topic(pipeline.topic, name="events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events.withColumn("seen", F.array(F.struct(F.lit(1).alias("user-agent"))))

    pipeline.produce(event("b", 2))
    graph = graph_of(pipeline.settings, events, raw)
    run_table(graph.tables["raw"], pipeline.spark, pipeline.settings)
    assert pipeline.rows("raw", "offset", "seen") == [(0, None), (1, [{"user-agent": 1}])]


def test_a_column_that_changes_its_type_is_refused(pipeline: Pipeline) -> None:
    pipeline.produce(event("a", 1))
    pipeline.run("raw")
    events = ka.kafka_topic(pipeline.topic, name="events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events.withColumn("offset", F.col("offset").cast("string"))

    graph = graph_of(pipeline.settings, events, raw)
    with pytest.raises(LakeError, match="has offset bigint, its function now returns offset strin"):
        run_table(graph.tables["raw"], pipeline.spark, pipeline.settings)
