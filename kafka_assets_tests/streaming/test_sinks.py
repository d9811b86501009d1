"""Sinks: rows that leave the lake, to a topic or to a Delta table elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from deltalake import DeltaTable, Schema
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import FenceRefused, PlanError
from kafka_assets.graph import Graph
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph, run_table
from kafka_assets_tests.helpers import create_topic, graph_of, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sinks(settings: Settings, topic: str, delta: Path) -> Graph:
    """Rows of a topic, in silver, that go to the topic `<topic>-out` and to a Delta table."""
    assert settings.schemas is not None
    (settings.schemas / "event.ddl").write_text("id STRING, x INT", encoding="utf-8")
    create_topic(settings.kafka.bootstrap_servers, topic)
    create_topic(settings.kafka.bootstrap_servers, f"{topic}-out")
    events = ka.kafka_topic(topic, name="events")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clean(events: Any) -> Any:
        return events

    out = ka.create_sink("out", "kafka", {"topic": f"{topic}-out"})
    elsewhere = ka.create_sink("elsewhere", "delta", {"path": str(delta)})

    @ka.append_flow(target=out)
    def to_topic(clean: Any) -> Any:
        return clean.select(F.col("id").alias("key"), F.to_json(F.struct("id", "x")).alias("value"))

    @ka.append_flow(target="elsewhere")
    def to_delta(clean: Any) -> Any:
        return clean.select("id", "x")

    return graph_of(settings, events, clean, out, elsewhere, to_topic, to_delta)


def records(settings: Settings, topic: str) -> list[tuple[bytes | None, Any]]:
    """Key and value of all committed records of a topic's partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap_servers,
            "group.id": f"{topic}-reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found = []
    while True:
        message = consumer.poll(20)
        assert message is not None, "the broker is silent"
        if message.error():
            break
        found.append((message.key(), json.loads(message.value() or b"")))
    consumer.close()
    return found


def test_rows_go_to_a_topic_and_to_a_delta_table_outside_of_the_lake(
    spark: SparkSession, settings: Settings, topic_name: str, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    columns = Schema.from_arrow(pa.schema([("id", pa.string()), ("x", pa.int32())]))
    theirs = {"owner": "them"}
    DeltaTable.create(elsewhere, columns, configuration=dict(theirs), raise_if_key_not_exists=False)
    graph = sinks(settings, topic_name, elsewhere)
    produce(settings.kafka.bootstrap_servers, topic_name, ['{"id": "a", "x": 1}'])
    first = run_graph(graph, spark, settings)
    assert (first["out"].kept, first["elsewhere"].kept) == (1, 1)
    produce(settings.kafka.bootstrap_servers, topic_name, ['{"id": "b", "x": 2}'])
    run_graph(graph, spark, settings)
    assert run_graph(graph, spark, settings)["out"].batches == 0
    assert records(settings, f"{topic_name}-out") == [
        (b"a", {"id": "a", "x": 1}),
        (b"b", {"id": "b", "x": 2}),
    ]
    there = DeltaTable(elsewhere).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["x"]) for row in there) == [("a", 1), ("b", 2)]
    # All that is written down there is that a flow has begun.
    found = DeltaTable(elsewhere).metadata().configuration
    assert found == {**theirs, "kafka_assets.flow.to_delta": "true"}


@pytest.mark.verify
def test_a_batch_that_a_topic_has_is_not_sent_again_when_only_its_commit_is_missing(
    spark: SparkSession, settings: Settings, topic_name: str, tmp_path: Path
) -> None:
    graph = sinks(settings, topic_name, tmp_path / "elsewhere")
    produce(settings.kafka.bootstrap_servers, topic_name, ['{"id": "a", "x": 1}'])
    run_graph(graph, spark, settings)
    commits = Path(graph.tables["out"].parts[0].checkpoint) / "commits"
    (commits / "0").unlink()
    (commits / ".0.crc").unlink()
    run_graph(graph, spark, settings)
    assert len(records(settings, f"{topic_name}-out")) == 1
    shutil.rmtree(commits.parent)
    with pytest.raises(FenceRefused, match=r"its checkpoint .* is not there"):
        run_table(graph.tables["out"], spark, settings)


def test_rows_that_a_topic_has_no_place_for_are_refused_at_plan_time(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    events = ka.kafka_topic(topic_name, name="events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events

    out = ka.create_sink("out", "kafka", {"topic": "t"})

    @ka.append_flow(target=out)
    def rows(raw: Any) -> Any:
        return raw.select("offset", "value")

    node = graph_of(settings, events, raw, out, rows).tables["out"]
    with pytest.raises(PlanError, match=r"flow 'rows'.*takes value and key.*offset bigint"):
        run_table(node, spark, settings)
