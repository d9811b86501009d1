"""Bad data behind every kind of table: what silver keeps reaches all of them, and stops none.

Damaged payloads go through a topic in two runs; what each kind of table must hold follows from
silver by `kinds_judge`, which the long rounds use too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph
from kafka_assets_tests.decoding.mutations import DDL, Record
from kafka_assets_tests.decoding.test_mutations import generated
from kafka_assets_tests.helpers import create_topic, graph_of
from kafka_assets_tests.reliability import kinds
from kafka_assets_tests.reliability.kinds_judge import alerts_wrong, kinds_wrong, newest_wrong

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.graph import Graph

pytestmark = [pytest.mark.verify, pytest.mark.timeout(900)]

EXAMPLES = 1000
LAG = 600
"""Offsets that the watermark of `closed` stays behind; there is one partition."""


def pipeline(settings: Settings, topic: str) -> Graph:
    """Raw, a silver table with a rule on the time, and all kinds of tables behind it."""
    assert settings.schemas is not None
    for name, columns in {"damaged.ddl": DDL, **kinds.SCHEMAS}.items():
        (settings.schemas / name).write_text(columns, encoding="utf-8")
    events = ka.kafka_topic(topic, name="events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events

    @ka.streaming_table(layer="silver", schema="damaged.ddl", max_dead_share=1)
    @ka.expect_or_drop("plausible", "at IS NULL OR year(at) = 2026")
    @ka.expect("small", "x < 100")
    def clean(raw: Any) -> Any:
        return raw.withColumn("hour", F.date_trunc("hour", "at"))

    @ka.windowed_table(layer="gold", event_time="at", window="1 hour")
    def hourly(clean: Any) -> Any:
        return clean.groupBy("hour").agg(F.count("*").alias("events"))

    others = kinds.declare(clean, topic, Path(settings.lake), LAG)
    return graph_of(settings, events, raw, clean, hourly, *others)


def produce(bootstrap: str, topic: str, records: Iterable[Record]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    for record in records:
        headers: list[tuple[str, str | bytes | None]] = [*record.headers]
        producer.produce(topic, record.value, record.key, partition=0, headers=headers)
        producer.poll(0)
    assert producer.flush(60) == 0, "the broker did not take all records"


def test_damaged_payloads_reach_and_stop_no_kind_of_table(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    bootstrap = settings.kafka.bootstrap_servers
    create_topic(bootstrap, topic_name)
    lake = Path(settings.lake)
    kinds.prepare(lake, bootstrap, topic_name)
    graph = pipeline(settings, topic_name)
    records = generated(EXAMPLES)
    half = len(records) // 2
    for number, part in enumerate((records[:half], records[half:])):
        produce(bootstrap, topic_name, part)
        kinds.put_records(bootstrap, topic_name, number)
        reports = run_graph(graph, spark, settings)
        unequal = [
            (name, equality.name)
            for name, report in reports.items()
            for equality in report.conservation
            if not equality.holds
        ]
        assert unequal == []
    clean = DeltaTable(graph.tables["clean"].path).to_pyarrow_table()
    clean = clean.append_column("offset", pc.struct_field(clean["_source"], "offset"))
    clean = clean.sort_by("offset").select(["id", "x", "hour", "offset"])
    letters = DeltaTable(graph.tables["clean"].dead_letters_path).to_pyarrow_table()
    assert clean.num_rows + letters.num_rows == len(records)
    assert min(clean.num_rows, letters.num_rows) > len(records) // 10
    wrong = kinds_wrong(lake, clean, kinds.KINDS, LAG, late=0)
    # A row without a time cannot be remembered for a while: it is kept, each time it comes.
    assert [one for one in wrong if not one.startswith("silver/once has (None,")] == []
    assert alerts_wrong(bootstrap, topic_name, clean)[0] == ()
    assert newest_wrong(lake, bootstrap, topic_name) == ()
    assert DeltaTable(graph.tables["closed"].path).to_pyarrow_table().num_rows > 0
