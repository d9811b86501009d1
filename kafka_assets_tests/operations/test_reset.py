"""A table is built anew only from what its source still has, and never silently."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import LeaseHeld, OperationRefused
from kafka_assets.graph import Graph, Node
from kafka_assets.operations import audit
from kafka_assets.operations.letters import Filter, discard
from kafka_assets.operations.reset import examine, reset
from kafka_assets.settings import Settings
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.run import run_table
from kafka_assets_tests.helpers import create_topic, graph_of, ids, produce
from kafka_assets_tests.pipeline import Bronze, Pipeline, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def bronze(spark: SparkSession, settings: Settings, topic_name: str) -> Bronze:
    return Bronze(spark, settings, topic_name)


def test_a_reset_builds_the_table_anew_and_deletes_nothing_from_disk(bronze: Bronze) -> None:
    report = reset(bronze.graph, "raw", bronze.settings)
    assert (report.tables, report.losses) == (("raw",), ())
    assert Path(report.moved["raw"]).is_dir()
    assert bronze.offsets() == []
    assert bronze.run().kept == 3
    assert bronze.offsets() == [0, 1, 2]
    assert [line["operation"] for line in audit.read(bronze.settings)] == ["reset"]


def test_a_reset_that_would_lose_rows_is_refused_until_it_is_accepted_in_words(
    bronze: Bronze,
) -> None:
    bronze.delete_records(before=2)
    with pytest.raises(OperationRefused, match="lose 2 rows of raw for ever") as refused:
        reset(bronze.graph, "raw", bronze.settings)
    assert '--accept "lose 2 rows of raw"' in str(refused.value.fix)
    with pytest.raises(OperationRefused):
        reset(bronze.graph, "raw", bronze.settings, accept="yes")
    assert bronze.offsets() == [0, 1, 2]
    assert bronze.run().kept == 0

    reset(bronze.graph, "raw", bronze.settings, accept="lose 2 rows of raw", by="me")
    bronze.run()
    assert bronze.offsets() == [2]
    (line,) = audit.read(bronze.settings)
    assert (line["rows"], line["by"]) == (2, "me")


def test_a_stream_that_reads_the_table_is_not_left_behind(bronze: Bronze) -> None:
    bronze.run("copy")
    with pytest.raises(OperationRefused, match="copy read 'raw' as a stream"):
        reset(bronze.graph, "raw", bronze.settings)
    assert reset(bronze.graph, "raw", bronze.settings, downstream=True).tables == ("raw", "copy")
    bronze.run()
    assert bronze.run("copy").kept == 3


def test_a_table_that_is_being_written_keeps_its_readers_as_they_are_too(bronze: Bronze) -> None:
    bronze.run("copy")
    copy = bronze.graph.tables["copy"]
    with (
        lease(bronze.node, bronze.settings, "another run"),
        pytest.raises(LeaseHeld, match=r"'raw' is being written.*nothing was done here"),
    ):
        reset(bronze.graph, "raw", bronze.settings, downstream=True)
    assert (bronze.offsets(), ids(copy.path, "offset")) == ([0, 1, 2], [0, 1, 2])
    assert Path(copy.checkpoint).is_dir()
    assert audit.read(bronze.settings) == []
    assert reset(bronze.graph, "raw", bronze.settings, downstream=True).tables == ("raw", "copy")


@pytest.mark.verify
def test_a_table_of_two_flows_is_filled_by_both_again_and_goes_on(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    web, app = f"{topic_name}-web", f"{topic_name}-app"
    for topic in (web, app):
        create_topic(settings.kafka.bootstrap_servers, topic)
    graph = _both(settings, web, app)
    node = graph.tables["both"]
    _send(settings, web, b"w0", b"w1")
    _send(settings, app, b"a0")
    run_table(node, spark, settings)

    assert reset(graph, "both", settings).losses == ()
    assert ids(node.path, "value") == []
    run_table(node, spark, settings)
    assert ids(node.path, "value") == [b"a0", b"w0", b"w1"]
    _send(settings, web, b"w2")
    _send(settings, app, b"a1")
    run_table(node, spark, settings)
    assert ids(node.path, "value") == [b"a0", b"a1", b"w0", b"w1", b"w2"]

    _lose(settings, web, before=1)
    _lose(settings, app, before=2)
    (loss,) = examine(graph, "both", settings).losses
    assert (loss.rows, loss.why) == (3, f"{web}/0 now begins at 1; {app}/0 now begins at 2")


@pytest.mark.verify
def test_a_flow_that_runs_once_runs_again_after_a_reset_and_only_then(bronze: Bronze) -> None:
    events = ka.kafka_topic(bronze.topic, name="events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events

    both = ka.create_streaming_table("both", layer="silver")

    @ka.append_flow(target=both)
    def live(raw: Any) -> Any:
        return raw.withColumn("flow", F.lit("live"))

    @ka.append_flow(target=both, once=True)
    def backfill(raw: Any) -> Any:
        return raw.filter("offset > 1").withColumn("flow", F.lit("backfill"))

    graph = graph_of(bronze.settings, events, raw, both, live, backfill)
    node = graph.tables["both"]

    def run() -> list[tuple[str, int]]:
        bronze.run()
        run_table(node, bronze.spark, bronze.settings)
        return _rows(node)

    first = [("backfill", 2), ("live", 0), ("live", 1), ("live", 2)]
    assert run() == first
    bronze.produce(b"d")
    assert run() == [*first, ("live", 3)]
    reset(graph, "both", bronze.settings)
    again = [("backfill", 2), ("backfill", 3), *first[1:], ("live", 3)]
    assert run() == again
    bronze.produce(b"e")
    assert run() == [*again, ("live", 4)]


def test_dead_letters_whose_records_are_gone_are_a_loss_until_somebody_has_decided_on_them(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    assert settings.schemas is not None
    (settings.schemas / "event.ddl").write_text("id STRING NOT NULL")
    create_topic(settings.kafka.bootstrap_servers, topic_name)
    events = ka.kafka_topic(topic_name, name="events")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clean(events: Any) -> Any:
        return events

    graph = graph_of(settings, events, clean)
    node = graph.tables["clean"]
    _send(settings, topic_name, b"no json 0", b"no json 1", b"no json 2")
    run_table(node, spark, settings)
    assert examine(graph, "clean", settings).losses == ()

    _lose(settings, topic_name, before=2)
    with pytest.raises(OperationRefused, match="lose 2 dead letters of clean for ever") as refused:
        reset(graph, "clean", settings)
    assert f"{topic_name}/0 now begins at 2" in refused.value.what
    assert ids(node.dead_letters_path, "value") == [b"no json 0", b"no json 1", b"no json 2"]

    discard(node, settings, Filter(offsets=(0, 0)), reason="a test of the sender")
    phrase = "lose 1 dead letters of clean"
    reset(graph, "clean", settings, accept=phrase, reason="nobody needs it")
    assert ids(node.dead_letters_path, "value") == []
    (line,) = audit.read(settings)
    assert (line["rows"], line["reason"]) == (0, f"{phrase}: nobody needs it")
    run_table(node, spark, settings)
    assert ids(node.dead_letters_path, "value") == [b"no json 2"]


def test_a_reset_of_a_table_whose_checkpoint_is_damaged_asks_before_it_trusts_the_topic(
    bronze: Bronze,
) -> None:
    (bronze.checkpoint / "metadata").write_text("")
    with pytest.raises(OperationRefused, match=r"what was read of .* is not known any more"):
        reset(bronze.graph, "raw", bronze.settings)
    reset(bronze.graph, "raw", bronze.settings, accept="lose 3 rows of raw")
    bronze.run()
    assert bronze.offsets() == [0, 1, 2]


def test_a_table_that_does_not_allow_a_reset_is_never_reset(bronze: Bronze) -> None:
    events = ka.kafka_topic(bronze.topic, name="events")

    @ka.streaming_table(layer="bronze", reset_allowed=False)
    def raw(events: Any) -> Any:
        return events

    graph = graph_of(bronze.settings, events, raw)
    with pytest.raises(OperationRefused, match="reset_allowed=False"):
        reset(graph, "raw", bronze.settings, accept="lose 3 rows of raw")
    assert bronze.offsets() == [0, 1, 2]


def test_bronze_rebuilds_everything_downstream_also_when_the_topic_has_lost_all(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    pipeline = Pipeline(spark, settings, topic_name)
    pipeline.produce(event("a", 1), event("b", 2, hour=11), event("c", -1), b"no json")
    pipeline.run()
    before = {table: pipeline.rows(table, *columns) for table, columns in SHOWN.items()}
    letters = pipeline.letters("offset", "reason", "value")

    _lose(settings, topic_name, before=4)
    told = "4 rows of raw and 2 rows and 2 dead letters of clean"
    assert examine(pipeline.graph, "raw", settings, downstream=True).phrase.startswith(
        f"lose {told} and rows that cannot be counted of hourly"
    )
    assert examine(pipeline.graph, "clean", settings, downstream=True).losses == ()
    reset(pipeline.graph, "clean", settings, downstream=True)
    assert all(pipeline.rows(table, *columns) == [] for table, columns in SHOWN.items())
    assert pipeline.letters("offset") == []
    pipeline.run()
    assert {table: pipeline.rows(table, *columns) for table, columns in SHOWN.items()} == before
    assert pipeline.letters("offset", "reason", "value") == letters


SHOWN = {"clean": ("id", "x"), "hourly": ("hour", "total"), "largest": ("x",)}


def _both(settings: Settings, web: str, app: str) -> Graph:
    """A bronze table that a flow from each of two topics feeds."""
    both = ka.create_streaming_table("both", layer="bronze")

    @ka.append_flow(target=both)
    def from_web(web: Any) -> Any:
        return web

    @ka.append_flow(target=both)
    def from_app(app: Any) -> Any:
        return app

    topics = [ka.kafka_topic(web, name="web"), ka.kafka_topic(app, name="app")]
    return graph_of(settings, *topics, both, from_web, from_app)


def _rows(node: Node) -> list[tuple[str, int]]:
    rows = DeltaTable(node.path).to_pyarrow_table(columns=["flow", "offset"]).to_pylist()
    return sorted((row["flow"], row["offset"]) for row in rows)


def _send(settings: Settings, topic: str, *values: bytes) -> None:
    produce(settings.kafka.bootstrap_servers, topic, values)


def _lose(settings: Settings, topic: str, before: int) -> None:
    """Let a topic lose its records before an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
    (future,) = admin.delete_records([TopicPartition(topic, 0, before)]).values()
    future.result(timeout=20)
