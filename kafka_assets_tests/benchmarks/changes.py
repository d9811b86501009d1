"""What applying a few changes costs when the history that they belong to is long.

Two targets of `create_auto_cdc_flow` follow two tables of changes, one short and one long, in one
session. After each has taken its history, both get the same few changes again and again, and the
runs that take them are timed in turns. All changes of the touched keys are looked up in the whole
history, so the long one costs more; the ratio says how much.
"""

from __future__ import annotations

import statistics
import tempfile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

import kafka_assets as ka
from kafka_assets.graph import Graph
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_table
from kafka_assets.streaming.session import spark_session
from kafka_assets_tests.helpers import graph_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT = 10_000
CHANGES = 1_000
KEYS = 10
"""Changes that each key has in the history."""
WARM = 1
"""Rounds that are not counted."""


def measure(events: int, rounds: int) -> dict[str, Any]:
    """Time runs that take a few changes, with a short and a long history before them.

    Args:
        events: Changes in the long history.
        rounds: Runs of each that are counted.
    """
    events = max(events, SHORT)
    with tempfile.TemporaryDirectory(prefix="kafka-assets-bench-") as folder:
        settings = Settings(lake=f"{folder}/lake")
        session = spark_session(settings)
        graph = _graph(settings)
        for name, size in (("short", SHORT), ("long", events)):
            _append(settings, name, 0, size, size // KEYS)
            run_table(graph.tables[f"{name}_now"], session, settings)
        taken: dict[str, list[float]] = {"short": [], "long": []}
        for number in range(WARM + rounds):
            for name, seconds in taken.items():
                first = events + number * CHANGES
                _append(settings, name, first, CHANGES, CHANGES)
                seconds.append(_timed(graph, f"{name}_now", session, settings))
    short, long = (statistics.median(taken[name][WARM:]) for name in ("short", "long"))
    print(
        f"changes: {CHANGES:,} changes into a history of {events:,} take {long:.2f} s, of "
        f"{SHORT:,} {short:.2f} s: {long / short:.2f} times as long (medians of {rounds} runs each)"
    )
    return {
        "ratio": round(long / short, 2),
        "short_s": round(short, 2),
        "long_s": round(long, 2),
        "history": events,
    }


def _graph(settings: Settings) -> Graph:
    declared: list[Any] = []
    for name in ("short", "long"):
        declared.append(ka.external_table(name, path=f"bronze/{name}"))
        declared.append(ka.create_streaming_table(f"{name}_now", layer="silver"))
        declared.append(
            ka.create_auto_cdc_flow(
                target=f"{name}_now", source=name, keys=["id"], sequence_by="seq"
            )
        )
    return graph_of(settings, *declared)


def _append(settings: Settings, name: str, first: int, size: int, keys: int) -> None:
    """Append changes with sequence numbers from `first` on, spread over so many keys."""
    seq = pa.array(range(first, first + size), pa.int64())
    key = pc.subtract(seq, pc.multiply(pc.divide(seq, keys), keys))
    write_deltalake(
        f"{settings.lake}/bronze/{name}",
        pa.table({"id": key, "seq": seq, "name": pc.cast(seq, pa.string())}),
        mode="append",
    )


def _timed(graph: Graph, name: str, session: SparkSession, settings: Settings) -> float:
    report = run_table(graph.tables[name], session, settings)
    if report.kept != CHANGES:
        raise AssertionError(f"{name}: {report.kept} of {CHANGES} changes were applied")
    return report.seconds
