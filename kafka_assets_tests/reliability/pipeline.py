"""The pipeline that is killed: bronze `raw`, silver `clean` with dead letters, gold `hourly`.

Long rounds run the tables of `kinds` too.
It is what a pipeline author would write, and nothing in it knows that it is being tested.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.graph import Graph
from kafka_assets.settings import KafkaSettings, Settings, SparkSettings
from kafka_assets_tests.helpers import QUICK_JVM, graph_of
from kafka_assets_tests.reliability.judge import STRICT_RULE
from kafka_assets_tests.reliability.kinds import SCHEMAS, declare
from kafka_assets_tests.reliability.ledger import STRICT_BELOW

SCHEMA = "id BIGINT NOT NULL, x INT, at TIMESTAMP"


def settings_for(lake: Path, bootstrap: str, most_offsets: int = 1_000_000) -> Settings:
    """Settings of one worker.

    Args:
        lake: Where its tables lie; the schema files are put beside it.
        bootstrap: The broker.
        most_offsets: Most records of a bronze batch.
    """
    schemas = lake.parent / "schemas"
    schemas.mkdir(parents=True, exist_ok=True)
    for name, columns in {"ledger_event.ddl": SCHEMA, **SCHEMAS}.items():
        # Renamed into place: several workers may do so at once.
        draft = schemas / f".{os.getpid()}.{threading.get_ident()}"
        draft.write_text(columns)
        draft.rename(schemas / name)
    return Settings(
        lake=str(lake),
        schemas=schemas,
        kafka=KafkaSettings(bootstrap_servers=bootstrap, max_offsets_per_trigger=most_offsets),
        spark=SparkSettings(
            master="local[2]",
            driver_memory="1g",
            conf={
                "spark.driver.extraJavaOptions": f"{QUICK_JVM} -XX:+UseSerialGC",
                "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
            },
        ),
    )


def graph(settings: Settings, topic: str, *, strict: bool = False) -> Graph:
    """The tables over a topic.

    Args:
        settings: The lake.
        topic: The topic's name at the broker.
        strict: Silver has one more rule, as after a change of the pipeline's code.
    """
    events = ka.kafka_topic(topic, name="events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events

    @ka.streaming_table(layer="silver", schema="ledger_event.ddl")
    @ka.expect_or_drop("positive", "x > 0")
    def clean(raw: Any) -> Any:
        return raw.withColumn("hour", F.date_trunc("hour", "at"))

    if strict:
        clean = ka.expect_or_drop(STRICT_RULE, f"x < {STRICT_BELOW}")(clean)

    @ka.windowed_table(layer="gold", event_time="at", window="1 hour")
    def hourly(clean: Any) -> Any:
        return clean.groupBy("hour").agg(F.sum("x").alias("total"), F.count("*").alias("events"))

    others = declare(clean, topic, Path(settings.lake))
    return graph_of(settings, events, raw, clean, hourly, *others)
