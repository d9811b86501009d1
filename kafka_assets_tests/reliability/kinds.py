"""Tables of the other kinds, which long rounds run beside `raw`, `clean` and `hourly`.

Most of them follow from `clean`, in a way that does not depend on how it was cut into runs;
`landed` reads files that appear beside the lake, and `newest` a topic of its own. What they must
hold is `kinds_judge`'s, which knows nothing of this module.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from deltalake import write_deltalake
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.declarations.places import DECLARED
from kafka_assets_tests.helpers import create_topic

CHAINS = (
    ("copied", "digits"),
    ("latest", "feed"),
    ("totals",),
    ("once", "joined"),
    ("named", "states"),
    ("alerts",),
    ("archived",),
    ("landed",),
    ("begun",),
    ("closed",),
    ("newest_changes", "newest"),
)
"""Tables that a run may take by themselves, each after what it reads."""

KINDS = tuple(table for chain in CHAINS for table in chain)

HORIZON = "30 days"
SCHEMAS = {"keyed.ddl": "n BIGINT NOT NULL"}
LINES = 20
"""Lines of a file; one of them does not fit the columns."""
STEP, LAG = 500, 5_000
"""Offsets that make one row of `closed`, and how far one partition may be behind another."""
KEYS = 7


def topics(topic: str) -> tuple[str, str]:
    """The topics beside a pipeline's own: the sink's, and that with a few keys."""
    return f"{topic}-alerts", f"{topic}-keyed"


def prepare(lake: Path, bootstrap: str, topic: str) -> None:
    """Make the other topics, the table that another team keeps, and the first file."""
    for other in topics(topic):
        create_topic(bootstrap, other)
    put_file(lake, 0)
    numbers = range(1, 11)
    names = {"x": pa.array(numbers, pa.int32()), "label": [f"n{x}" for x in numbers]}
    write_deltalake(str(lake / "silver/names"), pa.table(names))


def put_file(lake: Path, number: int) -> None:
    """Let a file appear whole, as an upload does."""
    folder = _landing(lake)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"n": number * LINES + line} for line in range(1, LINES)]
    lines = [*map(json.dumps, rows), json.dumps({"n": f"number {number}"})]
    draft = folder / f".{number}"
    draft.write_text("\n".join(lines), encoding="utf-8")
    draft.rename(folder / f"{number}.json")


def put_records(bootstrap: str, topic: str, number: int) -> None:
    """Send values, tombstones and what is no number for a few keys."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    for line in range(LINES):
        n = number * LINES + line
        value = {8: None, 9: b"no json", 10: b'{"n": -1}'}.get(n % 11, b'{"n": %d}' % n)
        producer.produce(topics(topic)[1], value, b"k%d" % (n % KEYS))
    assert producer.flush(60) == 0, "the broker did not take all records"


def files_put(lake: Path) -> int:
    """How many files have appeared."""
    return len(list(_landing(lake).glob("*.json")))


def _landing(lake: Path) -> Path:
    return lake.parent / "landing"


def declare(clean: Any, topic: str, lake: Path, lag: int = LAG) -> tuple[Any, ...]:
    """Their declarations.

    Args:
        clean: The silver table that they read.
        topic: The pipeline's topic; the others are named after it.
        lake: The lake; the Delta sink lies beside it.
        lag: How many offsets a partition may be behind another.
    """
    names = ka.external_table("names", layer="silver")
    made = (*_rows(names), *_aggregates(lag), *_changes(clean), *_sinks(topic, lake))
    newest = runpy.run_path(
        str(Path(__file__).with_name("newest.py")), {"TOPIC": topics(topic)[1]}
    )[DECLARED]
    return (_few(), names, *made, *_files(lake), *newest)


def _few() -> Any:
    @ka.temporary_view()
    def few(clean: Any) -> Any:
        return clean.filter("x <= 10")

    return few


def _rows(names: Any) -> tuple[Any, ...]:
    copied = ka.create_streaming_table("copied", layer="silver")

    @ka.append_flow(target=copied)
    def even(clean: Any) -> Any:
        return clean.filter("id % 2 = 0").select("id")

    @ka.append_flow(target=copied)
    def odd(clean: Any) -> Any:
        return clean.filter("id % 2 = 1").select("id")

    @ka.streaming_table(layer="silver")
    def once(clean: Any) -> Any:
        return clean.withWatermark("at", HORIZON).dropDuplicatesWithinWatermark(["hour", "x"])

    @ka.streaming_table(layer="silver")
    def joined(clean: Any, once: Any) -> Any:
        event = clean.filter("x > 990").withWatermark("at", HORIZON).alias("e")
        first = once.filter("x > 990").withWatermark("at", HORIZON).alias("o")
        near = "o.at BETWEEN e.at - INTERVAL 1 HOUR AND e.at + INTERVAL 1 HOUR"
        return event.join(first, F.expr(f"e.hour = o.hour AND e.x = o.x AND {near}")).select("e.id")

    @ka.streaming_table(layer="silver", reads={"names": "static"})
    def named(few: Any, names: Any) -> Any:
        return few.join(names, "x").select("id", "x", "hour", "label", "_source")

    begun = ka.create_streaming_table("begun", layer="silver")

    @ka.append_flow(target=begun, once=True)
    def before(names: Any) -> Any:
        return names.select("x", F.lit(-1).cast("bigint").alias("id"))

    @ka.append_flow(target=begun)
    def since(few: Any) -> Any:
        return few.select("x", "id")

    return copied, even, odd, once, joined, named, begun, before, since


def _aggregates(lag: int) -> tuple[Any, ...]:
    @ka.streaming_table(layer="gold", keys="hour")
    def totals(clean: Any) -> Any:
        return clean.groupBy("hour").agg(F.count("*").alias("events"))

    @ka.streaming_table(layer="gold")
    def closed(clean: Any) -> Any:
        # An offset stands for a time, as both go forward in each partition.
        passed = clean.select(F.timestamp_seconds(F.col("_source.offset")).alias("passed"))
        step = F.window("passed", f"{STEP} seconds").alias("step")
        steps = passed.withWatermark("passed", f"{lag} seconds").groupBy(step).count()
        return steps.select(F.unix_timestamp(F.col("step.start")).alias("first"), "count")

    @ka.materialized_view(layer="gold")
    def digits(copied: Any) -> Any:
        return copied.groupBy((F.col("id") % 10).alias("digit")).count()

    return totals, closed, digits


def _changes(clean: Any) -> tuple[Any, ...]:
    latest = ka.create_streaming_table("latest", layer="silver")
    newest = ka.create_auto_cdc_flow(
        target=latest, source=clean, keys="x", sequence_by="id", column_list=["id"]
    )
    states = ka.create_streaming_table("states", layer="silver")
    history = ka.create_auto_cdc_flow(
        target=states,
        source="named",
        keys="x",
        sequence_by="id",
        column_list=["hour"],
        stored_as_scd_type=2,
    )

    @ka.streaming_table(layer="gold", reads={"latest": "changes"})
    def feed(latest: Any) -> Any:
        return latest.select("x", "id", F.col("_change_type").alias("what"))

    return latest, newest, states, history, feed


def _sinks(topic: str, lake: Path) -> tuple[Any, ...]:
    alerts = ka.create_sink("alerts", "kafka", {"topic": f"{topic}-alerts"})

    @ka.append_flow(target=alerts)
    def to_topic(few: Any) -> Any:
        key = F.col("id").cast("string").alias("key")
        return few.select(key, F.to_json(F.struct("id", "x")).alias("value"))

    archived = ka.create_sink("archived", "delta", {"path": str(lake.parent / "archived")})

    @ka.append_flow(target=archived)
    def to_archive(few: Any) -> Any:
        return few.select("id", "x")

    return alerts, to_topic, archived, to_archive


def _files(lake: Path) -> tuple[Any, ...]:
    arrived = ka.file_source("arrived", str(_landing(lake)), format="json", schema="n BIGINT")

    @ka.streaming_table(layer="bronze")
    @ka.expect_or_drop("fits", "_rescued_data IS NULL")
    def landed(arrived: Any) -> Any:
        return arrived

    return arrived, landed
