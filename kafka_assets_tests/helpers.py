"""Small words that many tests use: a graph from declarations, records into a topic."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from kafka_assets.declarations import Table, Topic
from kafka_assets.graph import Graph, build_graph
from kafka_assets.settings import Settings

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""A process that lives for a minute sees each line of Spark a few times: to optimize it was half of
its CPU time.

The room for code is given because the JVM would else take a fifth of it for such a compiler, fill
it, and stop compiling.
"""

Send = Callable[..., None]
"""Sends events to one of two topics: `send("web", ("a", 1))`."""


def module_of(*declarations: Topic | Table | Any) -> ModuleType:
    """A pipeline module that holds these declarations."""
    module = ModuleType("pipeline_under_test")
    for number, declaration in enumerate(declarations):
        setattr(module, f"declaration_{number}", declaration)
    return module


def graph_of(settings: Settings, *declarations: Topic | Table | Any) -> Graph:
    """The validated graph of these declarations."""
    return build_graph([module_of(*declarations)], settings)


def create_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Create a topic and wait until it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(timeout=20)


def produce(bootstrap: str, topic: str, values: Iterable[bytes | str | None]) -> None:
    """Send values to partition 0, in order, and wait until the broker has them all."""
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1})
    for value in values:
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(30) == 0, "the broker did not take all records"
    assert not failed, failed


def rendered(renderable: Any) -> str:
    """What rich prints for something, as plain text."""
    console = Console(width=200, file=io.StringIO())
    console.print(renderable)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def ids(path: str, column: str = "id") -> list[Any]:
    """The values of a column of a Delta table, in order."""
    from deltalake import DeltaTable

    return sorted(DeltaTable(path).to_pyarrow_table().column(column).to_pylist())
