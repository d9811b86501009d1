"""A state of checkpoint, table and topic that would lose or double rows is refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import kafka_assets as ka
from kafka_assets.errors import FenceRefused
from kafka_assets.graph import Graph
from kafka_assets.streaming.run import run_table
from kafka_assets_tests.helpers import create_topic, graph_of, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.settings import Settings


class Bronze:
    """A topic with three records and the bronze table that has them."""

    def __init__(self, spark: SparkSession, settings: Settings, topic: str) -> None:
        self.spark, self.settings, self.topic = spark, settings, topic
        self.admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
        create_topic(settings.kafka.bootstrap_servers, topic)
        self.produce(b"a", b"b", b"c")
        self.graph = self._graph()
        self.node = self.graph.tables["raw"]
        self.run()
        self.checkpoint = Path(self.node.checkpoint)

    def _graph(self) -> Graph:
        events = ka.kafka_topic(self.topic, name="events")

        @ka.streaming_table(layer="bronze")
        def raw(events: Any) -> Any:
            return events

        @ka.streaming_table(layer="silver")
        def copy(raw: Any) -> Any:
            return raw

        return graph_of(self.settings, events, raw, copy)

    def produce(self, *values: bytes) -> None:
        produce(self.settings.kafka.bootstrap_servers, self.topic, values)

    def run(self, table: str = "raw") -> Any:
        return run_table(self.graph.tables[table], self.spark, self.settings)

    def refused(self, table: str = "raw") -> FenceRefused:
        with pytest.raises(FenceRefused) as raised:
            self.run(table)
        assert raised.value.fix
        assert f"'{table}'" in raised.value.what
        return raised.value


@pytest.fixture
def bronze(spark: SparkSession, settings: Settings, topic_name: str) -> Bronze:
    return Bronze(spark, settings, topic_name)


def test_a_lost_checkpoint_is_refused_because_rows_would_double(bronze: Bronze) -> None:
    shutil.rmtree(bronze.checkpoint)
    assert bronze.refused().state == "checkpoint_lost"


def test_a_checkpoint_without_metadata_is_refused(bronze: Bronze) -> None:
    (bronze.checkpoint / "metadata").unlink()
    assert bronze.refused().state == "checkpoint_lost"


def test_a_damaged_checkpoint_is_refused_with_the_file(bronze: Bronze) -> None:
    (bronze.checkpoint / "metadata").write_text("{")
    error = bronze.refused()
    assert error.state == "checkpoint_damaged"
    assert "metadata" in error.what


def test_emptied_logs_under_the_old_query_id_are_refused(bronze: Bronze) -> None:
    for folder in ("offsets", "commits"):
        shutil.rmtree(bronze.checkpoint / folder)
    assert bronze.refused().state == "batches_disagree"


def test_an_older_checkpoint_is_refused(bronze: Bronze) -> None:
    shutil.copytree(bronze.checkpoint, bronze.checkpoint.with_name("older"))
    for value in (b"d", b"e"):
        bronze.produce(value)
        bronze.run()
    shutil.rmtree(bronze.checkpoint)
    bronze.checkpoint.with_name("older").rename(bronze.checkpoint)
    assert bronze.refused().state == "batches_disagree"


def test_another_table_under_the_checkpoint_is_refused(bronze: Bronze) -> None:
    shutil.rmtree(bronze.node.path)
    assert bronze.refused().state == "table_replaced"


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


def test_an_upstream_table_made_anew_is_refused(bronze: Bronze) -> None:
    bronze.run("copy")
    shutil.rmtree(bronze.node.path)
    shutil.rmtree(bronze.checkpoint)
    bronze.run()
    assert bronze.refused("copy").state == "source_recreated"


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
