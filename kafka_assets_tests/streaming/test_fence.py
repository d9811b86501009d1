"""A state of checkpoint, table and topic that would lose or double rows is refused by name."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

import kafka_assets as ka
from kafka_assets.errors import FenceRefused
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.run import run_table
from kafka_assets_tests.helpers import Send, create_topic, graph_of, ids
from kafka_assets_tests.pipeline import Bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
