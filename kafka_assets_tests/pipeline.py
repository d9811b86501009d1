"""A small pipeline of every kind of table, for tests of runs and of operations on them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import FenceRefused
from kafka_assets.graph import Graph
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph, run_table
from kafka_assets_tests.helpers import create_topic, graph_of, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.streaming.report import RunReport


class Pipeline:
    """A topic `events`, bronze, silver, an hourly table and a view, in a lake of their own."""

    def __init__(
        self, spark: SparkSession, settings: Settings, topic: str, *, like: Pipeline | None = None
    ) -> None:
        """A new topic and an empty lake; or the topic, and a copy of the lake, of another."""
        self.spark, self.settings, self.topic = spark, settings, topic
        assert settings.schemas is not None
        (settings.schemas / "event.ddl").write_text("id STRING NOT NULL, x INT, at TIMESTAMP")
        if like is None:
            create_topic(settings.kafka.bootstrap_servers, topic)
        else:
            shutil.copytree(like.settings.lake, settings.lake)
        self.graph = self.graph_with()

    def graph_with(self, *rules: Any) -> Graph:
        """The graph, with more expectations on silver."""
        events = ka.kafka_topic(self.topic, name="events")

        @ka.streaming_table(layer="bronze")
        def raw(events: Any) -> Any:
            return events

        @ka.streaming_table(layer="silver", schema="event.ddl")
        @ka.expect_or_drop("positive", "x > 0")
        @ka.expect("small", "x < 100")
        def clean(raw: Any) -> Any:
            return raw.withColumn("hour", F.date_trunc("hour", "at"))

        for rule in rules:
            clean = rule(clean)

        @ka.windowed_table(layer="gold", event_time="at", window="1 hour")
        def hourly(clean: Any) -> Any:
            return clean.groupBy("hour").agg(F.sum("x").alias("total"))

        @ka.materialized_view(layer="gold")
        def largest(clean: Any) -> Any:
            return clean.agg(F.max("x").alias("x"))

        return graph_of(self.settings, events, raw, clean, hourly, largest)

    def produce(self, *values: Any) -> None:
        """Send events; a dict as JSON, bytes and None as they are."""
        payloads = [json.dumps(v) if isinstance(v, dict) else v for v in values]
        produce(self.settings.kafka.bootstrap_servers, self.topic, payloads)

    def run(self, *names: str) -> dict[str, RunReport]:
        """Run tables in order, by default all."""
        return run_graph(self.graph, self.spark, self.settings, names=names)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Rows of a table, read without Spark."""
        return self._read(self.graph.tables[table].path, *columns)

    def letters(self, *columns: str, table: str = "clean") -> list[tuple[Any, ...]]:
        """Dead letters of silver or another table, read without Spark."""
        return self._read(self.graph.tables[table].dead_letters_path, *columns)

    def _read(self, path: str, *columns: str) -> list[tuple[Any, ...]]:
        table = DeltaTable(path).to_pyarrow_table(columns=list(columns))
        return sorted(
            (tuple(row[c] for c in columns) for row in table.to_pylist()),
            key=lambda row: tuple(str(value) for value in row),
        )


def event(id: str, x: int | None, hour: int = 10) -> dict[str, Any]:
    return {"id": id, "x": x, "at": f"2026-11-20T{hour:02}:30:00Z"}


class Bronze:
    """A topic with three records and the bronze table that has them."""

    def __init__(
        self, spark: SparkSession, settings: Settings, topic: str, *, like: Bronze | None = None
    ) -> None:
        """A topic and a lake of its own; or the topic, and a copy of the lake, of another."""
        self.spark, self.settings, self.topic = spark, settings, topic
        self.admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
        self.graph = self._graph()
        self.node = self.graph.tables["raw"]
        if like is None:
            create_topic(settings.kafka.bootstrap_servers, topic)
            self.produce(b"a", b"b", b"c")
            self.run()
        else:
            shutil.copytree(like.settings.lake, settings.lake)
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

    def offsets(self) -> list[int]:
        """Offsets of the rows that bronze has, read without Spark."""
        table = DeltaTable(self.node.path).to_pyarrow_table(columns=["offset"])
        return sorted(table.column("offset").to_pylist())

    def delete_records(self, before: int) -> None:
        """Let the topic lose its records before an offset, as retention does."""
        partition = TopicPartition(self.topic, 0, before)
        (future,) = self.admin.delete_records([partition]).values()
        future.result(timeout=20)
