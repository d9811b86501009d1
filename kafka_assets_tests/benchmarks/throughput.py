"""What the product's care costs: the same topic by a plain script, and by bronze and silver.

Both run in one Spark session, in turn, so that a slow moment of the machine meets both. (a) is what
one writes by hand: Kafka, `from_json`, one Delta table; it checks nothing, and a bad event becomes
a row of nulls. (b) is a bronze table and a silver one with strict decoding, three expectations and
dead letters. The ratio is the time of (b) over that of (a), as the median of the rounds. The
first rounds are not counted: the JVM still compiles what it runs, and (b) gives it more to compile.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kafka_assets as ka
from kafka_assets.demo.broker import Broker
from kafka_assets.demo.events import TRACKER_TOPIC
from kafka_assets.demo.producing import ensure_topics, produce
from kafka_assets.graph import Graph
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph
from kafka_assets.streaming.session import spark_session
from kafka_assets_tests.helpers import graph_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAD_RATIO = 0.01
WARM_UP = 2
SCHEMA = "event_id STRING, time TIMESTAMP, version STRING, model STRING, heart_bpm INT, kcal DOUBLE"


def measure(events: int, rounds: int) -> dict[str, Any]:
    """Run both, print what they took, and give the figures.

    Args:
        events: Events in the topic, one in a hundred of them bad.
        rounds: Counted rounds, after those that warm up.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-assets-bench-") as folder:
        lake = Path(folder) / "lake"
        with Broker(Path(folder) / "broker") as broker:
            ensure_topics(broker.bootstrap, [TRACKER_TOPIC])
            produce(broker.bootstrap, {TRACKER_TOPIC: events}, BAD_RATIO, seed=1, timeout=600)
            settings = Settings(lake=str(lake), kafka={"bootstrap_servers": broker.bootstrap})
            session = spark_session(settings)
            graph = _graph(settings)
            plain, whole = [], []
            for number in range(1 - WARM_UP, rounds + 1):
                a = _timed(lambda: _plain(session, settings, lake / "plain"))
                shutil.rmtree(lake)
                b = _timed(lambda: run_graph(graph, session, settings))
                shutil.rmtree(lake)
                counted = "warm-up" if number < 1 else f"round {number}"
                print(f"{counted}: plain {a:.1f} s, bronze + silver {b:.1f} s, ratio {b / a:.2f}")
                if number > 0:
                    plain.append(a)
                    whole.append(b)
    ratio = statistics.median(b / a for a, b in zip(plain, whole, strict=True))
    a, b = statistics.median(plain), statistics.median(whole)
    print(
        f"throughput, {events:,} events: plain {a:.1f} s ({events / a:,.0f} events/s), "
        f"bronze + silver + 3 expectations + dead letters {b:.1f} s ({events / b:,.0f} events/s), "
        f"ratio {ratio:.2f} (median of {rounds} rounds)"
    )
    return {
        "ratio": round(ratio, 3),
        "plain_seconds": round(a, 2),
        "whole_seconds": round(b, 2),
        "events": events,
        "rounds": rounds,
    }


def _graph(settings: Settings) -> Graph:
    events = ka.kafka_topic(TRACKER_TOPIC, name="events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events

    @ka.streaming_table(layer="silver", schema="tracker_events.json")
    @ka.expect_or_drop("plausible_heart_rate", "heart_bpm BETWEEN 30 AND 220")
    @ka.expect("model_known", "model IS NOT NULL")
    @ka.expect("energy_not_negative", "kcal >= 0")
    def clean(raw: Any) -> Any:
        return raw

    return graph_of(settings, events, raw, clean)


def _plain(session: SparkSession, settings: Settings, path: Path) -> None:
    from pyspark.sql import functions as F

    raw = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka.bootstrap_servers)
        .option("subscribe", TRACKER_TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = raw.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("event"))
    query = (
        parsed.select("event.*")
        .writeStream.format("delta")
        .option("checkpointLocation", str(path / "_checkpoint"))
        .trigger(availableNow=True)
        .start(str(path))
    )
    query.awaitTermination()


def _timed(work: Any) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start
