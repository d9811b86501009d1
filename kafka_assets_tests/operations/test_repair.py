"""A table goes on after a loss or a lost checkpoint, with every row accounted for."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import FenceRefused, OperationRefused, RunFailed
from kafka_assets.graph import Node
from kafka_assets.operations import audit, repair
from kafka_assets.operations.losses import Lost
from kafka_assets.settings import Settings
from kafka_assets.streaming import batch
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.run import run_table
from kafka_assets.streaming.tables import LakeTable
from kafka_assets_tests.helpers import create_topic, graph_of, produce
from kafka_assets_tests.pipeline import Bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def bronze(spark: SparkSession, settings: Settings, topic_name: str) -> Bronze:
    return Bronze(spark, settings, topic_name)


@pytest.fixture(scope="module")
def original(spark: SparkSession, settings_of_file: Settings) -> Bronze:
    """What the copies are of: two batches, and a record that was not read yet."""
    original = Bronze(spark, settings_of_file, f"t-{uuid.uuid4().hex[:12]}")
    original.produce(b"d")
    original.run()
    original.produce(b"e")
    return original


@pytest.fixture
def copied(original: Bronze, settings: Settings) -> Bronze:
    """A copy of its own for each test that leaves the topic alone, which is theirs together."""
    return Bronze(original.spark, settings, original.topic, like=original)


def test_an_accepted_loss_is_written_down_and_the_table_goes_on_behind_it(bronze: Bronze) -> None:
    bronze.produce(b"d", b"e", b"f")
    bronze.delete_records(before=5)
    assert bronze.refused().state == "offsets_lost"

    lost = repair.accept_loss(bronze.node, bronze.settings, reason="retention", by="me")
    assert lost == (Lost(bronze.topic, 0, 3, 5),)
    (line,) = audit.read(bronze.settings)
    assert (line["operation"], line["table"], line["by"], line["reason"]) == (
        "accept_loss",
        "raw",
        "me",
        "retention",
    )
    assert (line["partition"], line["first_offset"], line["end_offset"]) == (0, 3, 5)

    report = bronze.run()
    assert bronze.offsets() == [0, 1, 2, 5]
    assert report.kept == 1
    bronze.produce(b"g")
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 5, 6]


def test_a_loss_is_accepted_also_when_a_batch_was_begun(bronze: Bronze) -> None:
    bronze.produce(b"d", b"e")
    bronze.run()
    # As if the process had died after the table's commit, then before it.
    for committed in (True, False):
        last = max(int(f.name) for f in (bronze.checkpoint / "offsets").glob("[0-9]*"))
        for file in (f"{last}", f".{last}.crc"):
            (bronze.checkpoint / "commits" / file).unlink(missing_ok=True)
        if not committed:
            break
        bronze.produce(b"f", b"g")
        bronze.delete_records(before=6)
        assert repair.accept_loss(bronze.node, bronze.settings, reason="test")[0].first == 5
        bronze.run()
    assert bronze.offsets() == [0, 1, 2, 3, 4, 6]
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 3, 4, 6]


def test_rows_of_a_batch_of_which_only_the_letters_were_written_are_not_passed_over(
    spark: SparkSession, settings: Settings, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(settings.kafka.bootstrap_servers, topic_name)
    events = ka.kafka_topic(topic_name, name="events")

    @ka.streaming_table(layer="bronze")
    @ka.expect_or_drop("good", "string(value) <> 'bad'")
    def raw(events: Any) -> Any:
        return events

    node = graph_of(settings, events, raw).tables["raw"]
    produce(settings.kafka.bootstrap_servers, topic_name, ["a"])
    run_table(node, spark, settings)
    produce(settings.kafka.bootstrap_servers, topic_name, ["b", "bad"])

    def dies(*_: object) -> None:
        raise OSError("no table")

    with monkeypatch.context() as patched:
        patched.setattr(batch, "_write_table", dies)
        with pytest.raises(RunFailed, match="no table"):
            run_table(node, spark, settings)
    shutil.rmtree(node.checkpoint)
    assert f"{topic_name}/0 at 1" in repair.repair(node, settings)
    report = run_table(node, spark, settings)
    assert (report.kept, report.dead) == (1, 1)


def test_nothing_is_accepted_where_nothing_is_lost(bronze: Bronze) -> None:
    assert repair.accept_loss(bronze.node, bronze.settings, reason="test") == ()
    assert audit.read(bronze.settings) == []
    with pytest.raises(OperationRefused, match="for a reason"):
        repair.accept_loss(bronze.node, bronze.settings, reason="")
    with pytest.raises(OperationRefused, match="reads no topic"):
        repair.accept_loss(bronze.graph.tables["copy"], bronze.settings, reason="test")


def test_a_lost_checkpoint_is_made_anew_from_the_offsets_in_bronze(bronze: Bronze) -> None:
    bronze.produce(b"d")
    shutil.rmtree(bronze.checkpoint)
    assert bronze.refused().state == "checkpoint_lost"
    assert "/0 at 3" in repair.repair(bronze.node, bronze.settings)
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 3]
    assert "nothing was to be repaired" in repair.repair(bronze.node, bronze.settings)


@pytest.mark.parametrize(
    ("of", "step", "logs_are_left"),
    [
        (Checkpoint, "write_offsets", False),
        (LakeTable, "append_nothing", False),
        (Checkpoint, "write_commit", False),
        (Checkpoint, "set_aside", True),
        (Checkpoint, "create", False),
    ],
)
def test_a_repair_that_is_interrupted_anywhere_leaves_a_refused_table_and_begins_anew(
    copied: Bronze, monkeypatch: pytest.MonkeyPatch, of: type, step: str, logs_are_left: bool
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    if logs_are_left:
        (copied.checkpoint / "metadata").unlink()
    else:
        shutil.rmtree(copied.checkpoint)
    with monkeypatch.context() as at:
        at.setattr(of, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            repair.repair(copied.node, copied.settings)
    assert copied.refused().state == "checkpoint_lost"
    assert "/0 at 4" in repair.repair(copied.node, copied.settings)
    copied.run()
    assert copied.offsets() == [0, 1, 2, 3, 4]


def test_a_checkpoint_is_not_made_anew_over_records_that_were_never_read(bronze: Bronze) -> None:
    bronze.produce(b"d", b"e")
    bronze.delete_records(before=4)
    shutil.rmtree(bronze.checkpoint)
    with pytest.raises(OperationRefused, match=r"offsets \[3, 4\)"):
        repair.repair(bronze.node, bronze.settings)
    repair.repair(bronze.node, bronze.settings, accept=True)
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 4]


def test_torn_files_are_repaired_where_the_table_says_what_happened(bronze: Bronze) -> None:
    (bronze.checkpoint / "commits" / "0").write_bytes(b"")
    assert bronze.refused().state == "commit_torn"
    repair.repair(bronze.node, bronze.settings)
    bronze.produce(b"d")
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 3]

    (bronze.checkpoint / "offsets" / "2").write_bytes(b"")
    assert bronze.refused().state == "batch_torn"
    repair.repair(bronze.node, bronze.settings)
    bronze.produce(b"e")
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 3, 4]


def test_what_only_a_reset_repairs_is_refused_by_a_repair(bronze: Bronze) -> None:
    shutil.rmtree(bronze.node.path)
    bronze.refused()
    with pytest.raises(FenceRefused, match="table_replaced"):
        repair.repair(bronze.node, bronze.settings)


@pytest.mark.parametrize("directly", [pytest.param(True, marks=pytest.mark.verify), False])
def test_rows_of_another_flow_do_not_tell_how_far_a_flow_came(
    spark: SparkSession, settings: Settings, topic_name: str, directly: bool
) -> None:
    create_topic(settings.kafka.bootstrap_servers, topic_name)
    produce(settings.kafka.bootstrap_servers, topic_name, ["a"])
    events = ka.kafka_topic(topic_name, name="events")
    every = ka.create_streaming_table("every", layer="bronze")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events

    @ka.append_flow(target=every)
    def behind(events: Any) -> Any:
        return events.withColumn("flow", F.lit("behind"))

    @ka.append_flow(target=every, name="ahead")
    def ahead(events: Any) -> Any:
        return events.withColumn("flow", F.lit("ahead"))

    @ka.append_flow(target=every, name="ahead")
    def ahead_through_a_table(raw: Any) -> Any:
        return raw.withColumn("flow", F.lit("ahead"))

    other = ahead if directly else ahead_through_a_table
    graph = graph_of(settings, events, raw, every, behind, other)
    node = graph.tables["every"]
    for table in graph.tables.values():
        run_table(table, spark, settings)
    lost = Path(node.parts[0].checkpoint)
    shutil.rmtree(lost)
    with pytest.raises(OperationRefused) as refused:
        repair.repair(node, settings)
    assert "flow 'behind'" in refused.value.what
    assert f"flow 'ahead' brings rows of {topic_name} too" in refused.value.what
    assert "kafka-assets reset every" in str(refused.value.fix)
    assert not lost.exists()


class TwoTopics:
    """Two topics, and a table that one query fills from both."""

    def __init__(self, spark: SparkSession, settings: Settings, name: str) -> None:
        self.spark, self.settings = spark, settings
        self.first, self.second = f"{name}-first", f"{name}-second"
        for topic in (self.first, self.second):
            create_topic(settings.kafka.bootstrap_servers, topic)
        # The query names them in another order than the function's parameters.
        self.node = self.node_of(lambda first, second: second.unionByName(first))
        self.checkpoint = Path(self.node.checkpoint)

    def node_of(self, function: Any) -> Node:
        @ka.streaming_table(layer="bronze")
        def both(first: Any, second: Any) -> Any:
            return function(first, second)

        topics = [
            ka.kafka_topic(self.first, name="first"),
            ka.kafka_topic(self.second, name="second"),
        ]
        return graph_of(self.settings, *topics, both).tables["both"]

    def produce(self, topic: str, *values: str) -> None:
        produce(self.settings.kafka.bootstrap_servers, topic, values)

    def lose(self, topic: str, before: int) -> None:
        """Let a topic lose its records before an offset, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.settings.kafka.bootstrap_servers})
        (future,) = admin.delete_records([TopicPartition(topic, 0, before)]).values()
        future.result(timeout=20)

    def run(self) -> None:
        run_table(self.node, self.spark, self.settings)

    def values(self) -> list[str]:
        table = DeltaTable(self.node.path).to_pyarrow_table(columns=["value"])
        return sorted(value.decode() for value in table.column("value").to_pylist())


@pytest.fixture
def two(spark: SparkSession, settings: Settings, topic_name: str) -> TwoTopics:
    """The table has one record of the first topic, and two of the second."""
    two = TwoTopics(spark, settings, topic_name)
    two.produce(two.first, "a0")
    two.produce(two.second, "b0", "b1")
    two.run()
    return two


def test_a_loss_in_one_of_two_topics_of_a_query_is_accepted_and_both_go_on(two: TwoTopics) -> None:
    two.produce(two.first, "a1", "a2")
    two.produce(two.second, "b2")
    two.lose(two.first, before=2)
    with pytest.raises(FenceRefused, match="offsets_lost"):
        two.run()
    lost = repair.accept_loss(two.node, two.settings, reason="retention")
    assert lost == (Lost(two.first, 0, 1, 2),)
    two.run()
    assert two.values() == ["a0", "a2", "b0", "b1", "b2"]


def test_a_query_of_two_topics_is_repaired_where_what_is_left_says_their_order(
    two: TwoTopics,
) -> None:
    (two.checkpoint / "commits" / "0").write_bytes(b"")
    assert "will be finished" in repair.repair(two.node, two.settings)
    two.produce(two.first, "a1")
    two.run()
    (two.checkpoint / "metadata").unlink()
    assert f"{two.first}/0 at 2" in repair.repair(two.node, two.settings)
    two.produce(two.second, "b2")
    two.run()
    assert two.values() == ["a0", "a1", "b0", "b1", "b2"]
    shutil.rmtree(two.checkpoint)
    with pytest.raises(OperationRefused, match=r"several sources in one query \(first, second\)"):
        repair.repair(two.node, two.settings)
    assert not two.checkpoint.exists()


def test_a_query_that_keeps_state_is_not_led_past_a_loss(two: TwoTopics) -> None:
    def matched(first: Any, second: Any) -> Any:
        left = first.withWatermark("timestamp", "1 hour").alias("l")
        right = second.select("value", "timestamp").withWatermark("timestamp", "1 hour").alias("r")
        return left.join(right, F.expr("l.value = r.value")).select("l.*")

    shutil.rmtree(two.checkpoint)
    shutil.rmtree(two.node.path)
    two.node = two.node_of(matched)
    two.run()
    two.produce(two.first, "a1", "a2")
    two.lose(two.first, before=2)
    offsets = sorted((two.checkpoint / "offsets").iterdir())
    with pytest.raises(OperationRefused, match="'both' keeps state from batch to batch"):
        repair.accept_loss(two.node, two.settings, reason="retention")
    assert sorted((two.checkpoint / "offsets").iterdir()) == offsets
