"""How the embedded broker is set: one KRaft node for a demo or a test, and its JVM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kafka_assets.demo.ports import HOST

MAX_MESSAGE_BYTES = 11 * 1024 * 1024
"""Room for records of 10 MB and what goes around them."""

# The client compiler alone and one garbage collector thread: half the start time and half the
# processor, at no loss for what a demo or a test sends.
JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
)


def properties(storage: Path, port: int, controller_port: int) -> Mapping[str, object]:
    """The broker's settings, by Kafka's names.

    Args:
        storage: Where its logs lie.
        port: Where clients connect.
        controller_port: Where it talks to itself.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dir": storage,
        # A mistyped topic must be an error, not a new empty topic.
        "auto.create.topics.enable": "false",
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
        # Nothing disappears by itself; tests of retention delete records or set it on a topic.
        "log.retention.ms": -1,
        # Kafka's internal topics as one node needs them.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # After a crash the controller waits this long before it takes the broker back.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }
