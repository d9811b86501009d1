"""A state of checkpoint, table and topic that would lose or double rows is refused by name."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

import kafka_assets as ka
from kafka_assets.errors import FenceRefused, OperationRefused
from kafka_assets.operations.repair import repair
from kafka_assets.sources.kafka import KafkaAdmin
from kafka_assets.streaming import fence
from kafka_assets.streaming.checkpoint import RECORD, Checkpoint
from kafka_assets.streaming.run import run_table
from kafka_assets.streaming.tables import LakeTable
from kafka_assets_tests.conftest import settings_in
from kafka_assets_tests.helpers import Send, create_topic, graph_of, ids
from kafka_assets_tests.pipeline import Bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.demo.broker import Broker
    from kafka_assets.settings import Settings


@pytest.fixture
def bronze(spark: SparkSession, settings: Settings, topic_name: str) -> Bronze:
    return Bronze(spark, settings, topic_name)


@pytest.fixture(scope="module")
def original(spark: SparkSession, settings_of_file: Settings) -> Bronze:
    """What the copies are of, with a second table that has read the first."""
    original = Bronze(spark, settings_of_file, f"t-{uuid.uuid4().hex[:12]}")
    original.run("copy")
    return original


@pytest.fixture
def copied(original: Bronze, settings: Settings) -> Bronze:
    """A copy of its own for each test that leaves the topic alone, which is theirs together."""
    return Bronze(original.spark, settings, original.topic, like=original)


def test_a_lost_checkpoint_is_refused_because_rows_would_double(copied: Bronze) -> None:
    shutil.rmtree(copied.checkpoint)
    assert copied.refused().state == "checkpoint_lost"


def test_a_checkpoint_without_metadata_is_refused(copied: Bronze) -> None:
    (copied.checkpoint / "metadata").unlink()
    assert copied.refused().state == "checkpoint_lost"


def test_a_flow_without_metadata_is_refused_once_it_has_begun(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics
    events = ka.create_streaming_table("events", layer="silver")

    @ka.append_flow(target="events", schema="event.ddl")
    def from_web(web: Any) -> Any:
        return web

    @ka.append_flow(target="events", schema="event.ddl")
    def from_app(app: Any) -> Any:
        return app

    node = graph_of(settings, web, app, events, from_web, from_app).tables["events"]
    send("app", ("c", 3))
    run_table(node, spark, settings)
    # It ended between its record and its first batch: it has nothing that could double.
    checkpoint = Checkpoint.read(node.parts[0].checkpoint)
    shutil.rmtree(checkpoint.path)
    checkpoint.write_record(checkpoint.record)
    send("web", ("a", 1))
    run_table(node, spark, settings)
    assert ids(node.path) == ["a", "c"]

    for name in ("metadata", ".metadata.crc"):
        (Path(checkpoint.path) / name).unlink()
    with pytest.raises(FenceRefused, match="'events' has 2 rows") as refused:
        run_table(node, spark, settings)
    assert refused.value.state == "checkpoint_lost"
    assert ids(node.path) == ["a", "c"]


def test_a_damaged_checkpoint_is_refused_with_the_file(copied: Bronze) -> None:
    (copied.checkpoint / "metadata").write_text("{")
    error = copied.refused()
    assert error.state == "checkpoint_damaged"
    assert "metadata" in error.what


def test_emptied_logs_under_the_old_query_id_are_refused(copied: Bronze) -> None:
    for folder in ("offsets", "commits"):
        shutil.rmtree(copied.checkpoint / folder)
    assert copied.refused().state == "batches_disagree"


def test_an_older_checkpoint_is_refused(bronze: Bronze) -> None:
    shutil.copytree(bronze.checkpoint, bronze.checkpoint.with_name("older"))
    for value in (b"d", b"e"):
        bronze.produce(value)
        bronze.run()
    shutil.rmtree(bronze.checkpoint)
    bronze.checkpoint.with_name("older").rename(bronze.checkpoint)
    assert bronze.refused().state == "batches_disagree"


def test_another_table_under_the_checkpoint_is_refused(copied: Bronze) -> None:
    shutil.rmtree(copied.node.path)
    assert copied.refused().state == "table_replaced"


def test_a_topic_made_anew_is_refused_also_when_it_is_longer_than_the_saved_offset(
    bronze: Bronze,
) -> None:
    bronze.admin.delete_topics([bronze.topic])[bronze.topic].result(timeout=20)
    _until_created(bronze)
    bronze.produce(*[b"new"] * 10)
    error = bronze.refused()
    assert error.state == "source_recreated"
    assert "would skip its first rows" in error.what


def test_records_deleted_before_they_were_read_are_refused_with_the_range(bronze: Bronze) -> None:
    bronze.produce(b"d", b"e", b"f")
    partition = TopicPartition(bronze.topic, 0, 5)
    (future,) = bronze.admin.delete_records([partition]).values()
    future.result(timeout=20)
    error = bronze.refused()
    assert error.state == "offsets_lost"
    assert "[3, 5)" in error.what


def test_records_deleted_after_they_were_read_do_no_harm(bronze: Bronze) -> None:
    partition = TopicPartition(bronze.topic, 0, 3)
    (future,) = bronze.admin.delete_records([partition]).values()
    future.result(timeout=20)
    bronze.produce(b"d")
    assert bronze.run().kept == 1


def test_an_upstream_table_made_anew_is_refused(copied: Bronze) -> None:
    shutil.rmtree(copied.node.path)
    shutil.rmtree(copied.checkpoint)
    copied.run()
    assert copied.refused("copy").state == "source_recreated"


def test_a_table_restored_to_an_older_version_is_refused_until_it_is_restored_again(
    bronze: Bronze,
) -> None:
    bronze.produce(b"d")
    newest = bronze.run().version_to
    restore = f"RESTORE TABLE delta.`{bronze.node.path}` TO VERSION AS OF "
    bronze.spark.sql(f"{restore}{newest - 1}")
    error = bronze.refused()
    assert error.state == "table_restored"
    bronze.spark.sql(str(error.fix).split(";")[0])
    bronze.produce(b"e")
    assert bronze.run().rows_total == 5


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_torn_file_whose_batch_the_table_has_is_refused(copied: Bronze, log: str) -> None:
    (copied.checkpoint / log / "0").write_bytes(b"")
    expected = {"offsets": "checkpoint_damaged", "commits": "commit_torn"}
    error = copied.refused()
    assert error.state == expected[log]
    assert f"{log}/0" in error.what


def test_a_missing_file_in_the_middle_is_refused(bronze: Bronze) -> None:
    bronze.produce(b"d")
    bronze.run()
    for file in ("0", ".0.crc"):
        (bronze.checkpoint / "offsets" / file).unlink()
    assert bronze.refused().state == "checkpoint_damaged"


def test_the_checkpoint_of_another_table_is_refused(copied: Bronze) -> None:
    copy = Path(copied.graph.tables["copy"].checkpoint)
    shutil.rmtree(copied.checkpoint)
    shutil.copytree(copy, copied.checkpoint)
    assert copied.refused().state == "table_replaced"


def test_a_table_that_forgets_its_batches_is_refused(copied: Bronze) -> None:
    copied.spark.sql(
        f"ALTER TABLE delta.`{copied.node.path}` SET TBLPROPERTIES "
        "('delta.setTransactionRetentionDuration' = 'interval 1 days')"
    )
    assert copied.refused().state == "transactions_expire"


def test_an_upstream_whose_rows_were_deleted_is_refused_by_name(copied: Bronze) -> None:
    copied.spark.sql(f"DELETE FROM delta.`{copied.node.path}` WHERE offset = 1")
    assert copied.refused("copy").state == "upstream_rewritten"


def test_a_batch_that_was_begun_and_not_finished_is_allowed(bronze: Bronze) -> None:
    bronze.produce(b"d")
    bronze.run()
    for file in ("1", ".1.crc"):
        (bronze.checkpoint / "commits" / file).unlink()
    bronze.produce(b"e")
    bronze.run()
    rows = bronze.spark.read.format("delta").load(bronze.node.path)
    assert [row.offset for row in rows.orderBy("offset").collect()] == [0, 1, 2, 3, 4]


def test_what_a_checkpoint_belongs_to_is_found_again_in_the_tables_commits(copied: Bronze) -> None:
    (copied.checkpoint / RECORD).unlink()
    assert copied.refused().state == "record_lost"
    said = repair(copied.node, copied.settings)
    assert said == "what the checkpoint belongs to was written down anew"
    assert copied.run().batches == 0


@pytest.mark.parametrize("lost", ["record", "checkpoint", "name"])
def test_a_topic_made_anew_is_known_however_much_was_lost(
    recreated: Bronze, settings: Settings, lost: str
) -> None:
    bronze = Bronze(recreated.spark, settings, recreated.topic, like=recreated)
    if lost == "record":
        (bronze.checkpoint / RECORD).unlink()
        with pytest.raises(FenceRefused, match="deleted and made anew"):
            repair(bronze.node, settings)
    if lost == "checkpoint":
        shutil.rmtree(bronze.checkpoint)
        with pytest.raises(OperationRefused, match="deleted and made anew since"):
            repair(bronze.node, settings, accept=True)
        return
    if lost == "name":
        renamed = ka.kafka_topic(bronze.topic, name="renamed")

        @ka.streaming_table(layer="bronze")
        def raw(renamed: Any) -> Any:
            return renamed

        bronze.graph = graph_of(settings, renamed, raw)
    assert bronze.refused().state == "source_recreated"


@pytest.fixture(scope="module")
def recreated(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Bronze:
    """A table whose topic was deleted, and is longer now than what the table has read."""
    settings = settings_in(tmp_path_factory.mktemp("recreated"), broker)
    bronze = Bronze(spark, settings, f"t-{uuid.uuid4().hex[:12]}")
    bronze.admin.delete_topics([bronze.topic])[bronze.topic].result(timeout=20)
    _until_created(bronze)
    bronze.produce(*[b"new"] * 10)
    return bronze


def test_a_checkpoint_whose_topic_nobody_knows_is_repaired_only_by_who_knows(
    copied: Bronze,
) -> None:
    (copied.checkpoint / RECORD).unlink()
    log = Path(copied.node.path) / "_delta_log"
    for file in log.glob("*.json"):
        file.write_text(file.read_text().replace("sources", "nothing"))
    with pytest.raises(OperationRefused, match="none of its commits says which") as refused:
        repair(copied.node, copied.settings)
    assert "--accept-loss" in str(refused.value.fix)
    assert repair(copied.node, copied.settings, accept=True)
    assert copied.run().batches == 0


@pytest.mark.parametrize(
    ("now", "state"),
    [
        ({"earliest": {}, "end": {}}, "partition_gone"),
        ({"end": {0: 2}}, "offsets_went_back"),
        ({"topic_id": "another"}, "source_recreated"),
    ],
)
def test_what_a_topic_has_no_more_is_refused_by_name(
    copied: Bronze, now: dict[str, Any], state: str
) -> None:
    """As a broker says it that lost its newest records, or an admin who made fewer partitions."""
    topic = KafkaAdmin(copied.settings.kafka).describe([copied.topic])[copied.topic]
    table = LakeTable.existing(copied.node.path)
    with pytest.raises(FenceRefused) as refused:
        fence.check(copied.node, table, {copied.topic: replace(topic, **now)})
    assert refused.value.state == state
    assert fence.check(copied.node, table, {copied.topic: topic}).committed == 0


def test_an_upstream_that_ends_before_what_was_read_is_refused(copied: Bronze) -> None:
    log = Path(copied.node.path) / "_delta_log"
    newest = max(log.glob("*.json"))
    for file in (newest, newest.with_name(f".{newest.name}.crc")):
        file.unlink(missing_ok=True)
    newest.with_suffix(".crc").unlink(missing_ok=True)
    assert copied.refused("copy").state == "upstream_went_back"


def test_checkpoints_of_two_flows_that_were_swapped_are_refused(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, _, send = two_topics
    events = ka.create_streaming_table("events", layer="silver")

    @ka.append_flow(target="events", schema="event.ddl")
    def small(web: Any) -> Any:
        return web.filter("x < 10")

    @ka.append_flow(target="events", schema="event.ddl")
    def large(web: Any) -> Any:
        return web.filter("x >= 10")

    node = graph_of(settings, web, events, small, large).tables["events"]
    send("web", ("a", 1), ("b", 20))
    run_table(node, spark, settings)
    one, other = (Path(part.checkpoint) for part in node.parts)
    one.rename(one.with_name("kept"))
    other.rename(one)
    one.with_name("kept").rename(other)
    with pytest.raises(FenceRefused, match="of its flow 'small' is that of its flow 'large'"):
        run_table(node, spark, settings)


def test_dead_letters_that_are_gone_or_were_restored_are_refused(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, _, send = two_topics

    @ka.streaming_table(layer="silver", schema="event.ddl")
    @ka.expect_or_drop("positive", "x > 0")
    def clean(web: Any) -> Any:
        return web

    node = graph_of(settings, web, clean).tables["clean"]
    send("web", ("a", 1), ("b", -1))
    run_table(node, spark, settings)
    spark.sql(f"RESTORE TABLE delta.`{node.dead_letters_path}` TO VERSION AS OF 0")
    with pytest.raises(FenceRefused, match=r"dlq/clean was restored to version 0") as refused:
        run_table(node, spark, settings)
    assert refused.value.state == "table_restored"

    shutil.rmtree(node.dead_letters_path)
    for _ in range(2):
        with pytest.raises(FenceRefused, match="its dead letters at") as refused:
            run_table(node, spark, settings)
        assert refused.value.state == "letters_replaced"
        with pytest.raises(FenceRefused):
            repair(node, settings)
    assert repair(node, settings, accept=True) == "dead letters that are gone are done without"
    send("web", ("c", 3))
    assert run_table(node, spark, settings).kept == 1


def _until_created(bronze: Bronze) -> None:
    import time

    for _ in range(50):
        try:
            create_topic(bronze.settings.kafka.bootstrap_servers, bronze.topic)
        except Exception:  # the deletion is still under way
            time.sleep(0.2)
        else:
            return
    raise AssertionError("the topic could not be created again")
