"""A topic, its bronze table and a silver table that decodes it, for tests of odd topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tenacity
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from deltalake import DeltaTable

import kafka_assets as ka
from kafka_assets.streaming.run import run_table
from kafka_assets_tests.helpers import graph_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.settings import Settings
    from kafka_assets.streaming.report import RunReport


class Chain:
    """Tables `raw` (bronze), `clean` (silver, from bronze) and `direct` (silver, from the topic).

    Args:
        spark: The session.
        settings: The lake and the broker.
        topic: A topic that does not exist yet.
        partitions: How many it gets.
        config: Its configuration at the broker.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        topic: str,
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.spark, self.settings, self.topic = spark, settings, topic
        self.bootstrap = settings.kafka.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.create(partitions, config)
        assert settings.schemas is not None
        (settings.schemas / "event.ddl").write_text("id BIGINT NOT NULL, text STRING")
        events = ka.kafka_topic(topic, name="events")

        @ka.streaming_table(layer="bronze")
        def raw(events: Any) -> Any:
            return events

        @ka.streaming_table(layer="silver", schema="event.ddl", max_dead_share=1)
        def clean(raw: Any) -> Any:
            return raw

        @ka.streaming_table(layer="silver", schema="event.ddl", max_dead_share=1)
        @ka.expect_or_drop("positive", "id > 0")
        def direct(events: Any) -> Any:
            return events

        self.graph = graph_of(settings, events, raw, clean, direct)

    def create(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create the topic, waiting while one of that name is still being deleted."""
        new = NewTopic(self.topic, partitions, 1, config=dict(config or {}))
        patiently(lambda: self.admin.create_topics([new])[self.topic].result(timeout=20))

    def delete(self) -> None:
        """Delete the topic."""
        self.admin.delete_topics([self.topic])[self.topic].result(timeout=20)

    def grow(self, partitions: int) -> None:
        """Add partitions, up to this number, and wait until clients see them."""
        new = NewPartitions(self.topic, partitions)
        self.admin.create_partitions([new])[self.topic].result(timeout=20)
        while len(self.admin.list_topics(self.topic).topics[self.topic].partitions) < partitions:
            pass

    def remove(self, before: int, partition: int = 0) -> None:
        """Remove the records of a partition before an offset, as retention does."""
        where = TopicPartition(self.topic, partition, before)
        (future,) = self.admin.delete_records([where]).values()
        future.result(timeout=20)

    def clean_often(self) -> None:
        """Let the broker compact topics several times a second; its default is 15 seconds."""
        every = ConfigResource(
            ConfigResource.Type.BROKER,
            "1",
            incremental_configs=[
                ConfigEntry(
                    "log.cleaner.backoff.ms",
                    "200",
                    incremental_operation=AlterConfigOpType.SET,
                )
            ],
        )
        self.admin.incremental_alter_configs([every])[every].result(timeout=20)

    def compacted(self, at_most: int, seconds: float = 60) -> list[int]:
        """Wait until partition 0 holds few enough records, and say which offsets are left."""
        until = time.monotonic() + seconds
        while len(left := self._offsets()) > at_most:
            assert time.monotonic() < until, f"not compacted: {left}"
            time.sleep(0.2)
        return left

    def _offsets(self) -> list[int]:
        """The offsets of partition 0's records, as a consumer other than Spark sees them."""
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.topic, "log_level": 0}
        consumer = Consumer({**config, "enable.partition.eof": True})
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found: list[int] = []
        while (message := consumer.poll(20)) is not None and not message.error():
            found.append(int(message.offset() or 0))
        consumer.close()
        return found

    def send(self, *values: bytes | None, partition: int = 0, **config: Any) -> None:
        """Send values to a partition, in order."""
        self.send_all(({"value": value} for value in values), partition=partition, **config)

    def send_all(
        self, records: Iterable[Mapping[str, Any]], partition: int = 0, **config: Any
    ) -> None:
        """Send records with keys and headers, and wait until the broker has them all."""
        base = {"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0}
        producer = Producer({**base, **config})
        failed: list[Any] = []
        for record in records:
            producer.produce(
                self.topic,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
                **record,
            )
            producer.poll(0)
        assert producer.flush(30) == 0, "the broker did not take all records"
        assert not failed, failed

    def run(self, table: str = "raw") -> RunReport:
        """Run a table; what its report says must add up."""
        report = run_table(self.graph.tables[table], self.spark, self.settings)
        assert all(equality.holds for equality in report.conservation), report.conservation
        return report

    def checkpoint(self, table: str = "raw") -> Path:
        """A table's checkpoint."""
        return Path(self.graph.tables[table].checkpoint)

    def forget_last_commit(self, table: str = "raw") -> None:
        """Leave the checkpoint as a run does that dies right after it wrote the table."""
        commits = self.checkpoint(table) / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        for name in (str(last), f".{last}.crc"):
            (commits / name).unlink()

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Rows of a table in the order of partition and offset, read without Spark."""
        return _read(self.graph.tables[table].path, columns)

    def letters(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Dead letters of a table in the same order, read without Spark."""
        return _read(self.graph.tables[table].dead_letters_path, columns)


def _read(path: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    rows.sort(key=lambda row: [(row.get("_source") or row)[c] for c in ("partition", "offset")])
    return [tuple(row[column] for column in columns) for row in rows]


def patiently(attempt: Callable[[], Any], seconds: float = 20) -> Any:
    """Try again while the broker refuses."""
    return tenacity.Retrying(
        stop=tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_fixed(0.1),
        retry=tenacity.retry_if_exception_type(KafkaException),
        reraise=True,
    )(attempt)
