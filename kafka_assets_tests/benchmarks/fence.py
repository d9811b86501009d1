"""What the fence costs before each run: the median of many checks of a table on a local lake.

The table has as many commits as batches were written to it, one after the other; the time includes
reading the table's log anew, and not the broker's answer, which a run needs anyway.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import kafka_assets as ka
from kafka_assets.demo.broker import Broker
from kafka_assets.demo.events import TRACKER_TOPIC
from kafka_assets.demo.producing import ensure_topics, produce
from kafka_assets.settings import Settings
from kafka_assets.sources.kafka import KafkaAdmin
from kafka_assets.streaming import fence
from kafka_assets.streaming.run import run_table
from kafka_assets.streaming.session import spark_session
from kafka_assets.streaming.tables import LakeTable
from kafka_assets_tests.helpers import graph_of

BATCHES = 40
CHECKS = 50


def measure(events: int, rounds: int) -> dict[str, Any]:
    """Check one table many times, print what it took, and give the figures.

    Args:
        events: Not used: the fence reads no rows.
        rounds: Not used.
    """
    del events, rounds
    with (
        tempfile.TemporaryDirectory(prefix="kafka-assets-bench-") as folder,
        Broker(Path(folder) / "broker") as broker,
    ):
        ensure_topics(broker.bootstrap, [TRACKER_TOPIC])
        produce(broker.bootstrap, {TRACKER_TOPIC: BATCHES * 10}, 0.0, seed=1, timeout=60)
        kafka = {"bootstrap_servers": broker.bootstrap, "max_offsets_per_trigger": 10}
        settings = Settings(lake=f"{folder}/lake", kafka=kafka)
        topic = ka.kafka_topic(TRACKER_TOPIC, name="events")

        @ka.streaming_table(layer="bronze")
        def raw(events: Any) -> Any:
            return events

        node = graph_of(settings, topic, raw).tables["raw"]
        run_table(node, spark_session(settings), settings)
        topics = KafkaAdmin(settings.kafka).describe([TRACKER_TOPIC])
        taken = [_timed(node, topics) for _ in range(CHECKS)]
    median, most = statistics.median(taken) * 1000, max(taken) * 1000
    print(
        f"fence, a table of {BATCHES} batches: {median:.0f} ms (median of {CHECKS} checks, at most "
        f"{most:.0f} ms)"
    )
    return {"median_ms": round(median, 1), "most_ms": round(most, 1), "batches": BATCHES}


def _timed(node: Any, topics: Any) -> float:
    start = time.perf_counter()
    fence.check(node, LakeTable.existing(node.path), topics)
    return time.perf_counter() - start
