"""Aggregates that are updated by key, aggregates behind a watermark, and rows that come twice."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import PlanError, RunFailed
from kafka_assets.graph import Graph
from kafka_assets.settings import Settings
from kafka_assets.streaming import interpreted
from kafka_assets.streaming.run import run_graph, run_table
from kafka_assets_tests.helpers import create_topic, graph_of, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def graph(settings: Settings, topic: str) -> Graph:
    """Events of a topic, counted by key, counted by closed hours, and freed of doubles."""
    assert settings.schemas is not None
    (settings.schemas / "event.ddl").write_text("id STRING, at TIMESTAMP", encoding="utf-8")
    create_topic(settings.kafka.bootstrap_servers, topic)
    events = ka.kafka_topic(topic, name="events")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clean(events: Any) -> Any:
        return events

    @ka.streaming_table(layer="gold", keys="id")
    @ka.expect("few", "seen < 100")
    def counted(clean: Any) -> Any:
        return clean.groupBy("id").agg(F.count("*").alias("seen"))

    @ka.streaming_table(layer="gold")
    def closed(clean: Any) -> Any:
        hour = F.window("at", "1 hour").alias("hour")
        hours = clean.withWatermark("at", "10 minutes").groupBy(hour).count()
        return hours.select(F.col("hour.start").alias("hour"), "count")

    @ka.streaming_table(layer="silver")
    def once(clean: Any) -> Any:
        return clean.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"])

    return graph_of(settings, events, clean, counted, closed, once)


def send(settings: Settings, topic: str, *events: tuple[str, str]) -> None:
    values = [json.dumps({"id": id_, "at": f"2026-11-20T{at}:00Z"}) for id_, at in events]
    produce(settings.kafka.bootstrap_servers, topic, values)


def rows(node: Any, *columns: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(node.path).to_pyarrow_table(columns=list(columns)).to_pylist()
    return sorted(tuple(row[c] for c in columns) for row in found)


@pytest.fixture
def in_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Lets runs be compiled and interpreted in turns, over one state."""

    def turns() -> Iterator[int]:
        while True:
            for few in (-1, 1_000):
                monkeypatch.setattr(interpreted, "FEW", few)
                yield few

    return turns()


def test_an_updated_aggregate_is_the_same_after_one_run_and_after_many(
    spark: SparkSession, settings: Settings, topic_name: str, in_turns: Iterator[int]
) -> None:
    node = graph(settings, topic_name)
    die = random.Random(5)
    sent = [(die.choice("abcde"), "10:00") for _ in range(40)]
    for start, end in ((0, 7), (7, 8), (8, 40)):
        next(in_turns)
        send(settings, topic_name, *sent[start:end])
        reports = run_graph(node, spark, settings, names=("clean", "counted"))
        assert all(e.holds for e in reports["counted"].conservation)
    counted = Counter(id_ for id_, _ in sent)
    assert rows(node.tables["counted"], "id", "seen") == sorted(counted.items())
    assert run_table(node.tables["counted"], spark, settings).batches == 0


def test_a_window_behind_the_watermark_is_written_once_and_open_ones_and_late_rows_are_reported(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    node = graph(settings, topic_name)
    send(settings, topic_name, ("a", "10:05"), ("b", "10:50"), ("c", "11:05"))
    first = run_graph(node, spark, settings, names=("clean", "closed"))["closed"]
    assert first.extra["state_rows"] == 2
    send(settings, topic_name, ("d", "11:30"))
    run_graph(node, spark, settings, names=("clean", "closed"))
    assert [count for _, count in rows(node.tables["closed"], "hour", "count")] == [2]
    send(settings, topic_name, ("late", "10:10"), ("e", "11:31"))
    last = run_graph(node, spark, settings, names=("clean", "closed"))["closed"]
    assert (last.extra["late_rows"], last.extra["state_rows"]) == (1, 1)
    assert [count for _, count in rows(node.tables["closed"], "hour", "count")] == [2]


@pytest.mark.verify
def test_rows_that_come_twice_are_kept_once_across_runs(
    spark: SparkSession, settings: Settings, topic_name: str, in_turns: Iterator[int]
) -> None:
    node = graph(settings, topic_name)
    next(in_turns)
    send(settings, topic_name, ("a", "10:00"), ("a", "10:01"))
    run_graph(node, spark, settings, names=("clean", "once"))
    next(in_turns)
    send(settings, topic_name, ("a", "10:05"), ("b", "10:06"))
    run_graph(node, spark, settings, names=("clean", "once"))
    assert rows(node.tables["once"], "id") == [("a",), ("b",)]


def test_two_rows_of_one_key_in_a_batch_are_refused_and_nothing_is_committed(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    assert settings.schemas is not None
    (settings.schemas / "event.ddl").write_text("id STRING, at TIMESTAMP", encoding="utf-8")
    create_topic(settings.kafka.bootstrap_servers, topic_name)
    events = ka.kafka_topic(topic_name, name="events")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clean(events: Any) -> Any:
        return events

    @ka.streaming_table(layer="gold", keys="id")
    def newest(clean: Any) -> Any:
        return clean.select("id", "at")

    send(settings, topic_name, ("a", "10:00"), ("a", "10:01"), ("b", "10:02"))
    tables = graph_of(settings, events, clean, newest)
    with pytest.raises(RunFailed, match="2 rows with id=a, and keys= says that there is one"):
        run_graph(tables, spark, settings)
    assert rows(tables.tables["newest"], "id") == []


def test_keys_that_the_function_does_not_return_are_refused_at_plan_time(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    events = ka.kafka_topic(topic_name, name="events")

    @ka.streaming_table(layer="gold", keys=["id"])
    def counted(events: Any) -> Any:
        return events.groupBy("topic").count()

    node = graph_of(settings, events, counted).tables["counted"]
    with pytest.raises(PlanError, match="keys= names id, which is no column of its result"):
        run_table(node, spark, settings)


def test_a_function_with_state_that_decodes_too_is_refused_because_it_would_see_one_batch_alone(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    assert settings.schemas is not None
    (settings.schemas / "event.ddl").write_text("id STRING, at TIMESTAMP", encoding="utf-8")
    events = ka.kafka_topic(topic_name, name="events")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def once(events: Any) -> Any:
        return events.dropDuplicates(["id"])

    node = graph_of(settings, events, once).tables["once"]
    with pytest.raises(PlanError, match="keeps state"):
        run_table(node, spark, settings)
