"""Sending sample events, with an exact account of what the broker acknowledged."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import tenacity
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from kafka_assets.demo.events import BAD_KINDS, TOPICS, Fate, bad_event, events, good_event
from kafka_assets.errors import BrokerError


@dataclass(frozen=True)
class Produced:
    """What the broker acknowledged.

    Attributes:
        counts: topic -> kind -> number of events; the kind of a good event is `GOOD`.
        seconds: How long it took, waiting for the last acknowledgement included.
    """

    counts: Mapping[str, Mapping[str, int]]
    seconds: float = field(compare=False)

    def total(self, topic: str) -> int:
        """Return the number of acknowledged events of a topic."""
        return sum(self.counts.get(topic, {}).values())

    def expected(self, topic: str, fate: Fate) -> int:
        """Return how many of a topic's events are expected to meet a fate."""
        fates = BAD_KINDS.get(topic, {})
        kinds = self.counts.get(topic, {})
        return sum(count for kind, count in kinds.items() if fates.get(kind, "kept") == fate)

    def expected_dead(self, topic: str) -> int:
        """Return how many of a topic's events are expected among its dead letters."""
        return self.expected(topic, "undecodable") + self.expected(topic, "rule")


def produce(
    bootstrap: str,
    events_per_topic: int | Mapping[str, int],
    bad_ratio: float = 0.02,
    seed: int = 1,
    *,
    now: datetime | None = None,
    first: int = 0,
    timeout: float = 120,
) -> Produced:
    """Send events and wait until the broker has acknowledged each.

    The topics must exist; see `ensure_topics`.

    Args:
        bootstrap: The broker's address.
        events_per_topic: How many for each of `TOPICS`, or a number for each topic named.
        bad_ratio: Share of bad events, 0 to 1.
        seed: The same seed, counts and `now` give the same events in the same order.
        now: Latest event time; None means the current time.
        first: Number of each topic's first event; the numbers stand in the events' ids.
        timeout: Seconds to wait for the last acknowledgements.

    Raises:
        BrokerError: An event was refused or not acknowledged in time; says how many were.
    """
    if isinstance(events_per_topic, int):
        events_per_topic = dict.fromkeys(TOPICS, events_per_topic)
    begin = time.monotonic()
    sender = _Sender(bootstrap, "kafka-assets-demo-producer")
    for topic, count in events_per_topic.items():
        for kind, value in events(topic, count, bad_ratio, seed, now, first):
            sender.send(topic, kind, value)
    counts = sender.finish(timeout)
    return Produced(counts=counts, seconds=time.monotonic() - begin)


def trickle(
    bootstrap: str,
    per_second: float,
    bad_ratio: float,
    seed: int,
    stop: threading.Event,
    topics: Iterable[str] = TOPICS,
) -> Produced:
    """Send events at a steady pace, the topics in turn, until told to stop.

    It outlives a pause or a restart of the broker: the client keeps what is not acknowledged.

    Args:
        bootstrap: The broker's address.
        per_second: Events a second, all topics together.
        bad_ratio: Probability that an event is bad.
        seed: Decides the values; the event ids differ from those of `produce` and of other calls.
        stop: Set it to end; looked at before each event.
        topics: Which of `TOPICS`.

    Raises:
        BrokerError: An event was refused, or not acknowledged within 10 s after `stop`.
    """
    rng = random.Random(seed)  # noqa: S311 - sample data
    # Counted from the clock, so that two trickles and a batch never share an event id.
    seq = time.time_ns() // 1000
    sender = _Sender(bootstrap, "kafka-assets-demo-trickle", linger_ms=20)
    names = tuple(topics)
    begin = time.monotonic()
    sent = 0
    while not stop.wait(max(0.0, begin + sent / per_second - time.monotonic())):
        topic = names[sent % len(names)]
        make = bad_event if rng.random() < bad_ratio else good_event
        kind, value = make(rng, seq + sent, topic, datetime.now(UTC))
        sender.send(topic, kind, value)
        sender.poll()
        sent += 1
    return Produced(counts=sender.finish(10), seconds=time.monotonic() - begin)


def ensure_topics(
    bootstrap: str, names: Iterable[str] = TOPICS, partitions: int = 2, timeout: float = 30
) -> tuple[str, ...]:
    """Create the topics that do not exist and return their names; others stay as they are.

    When it returns, the broker answers for every partition of the new ones.

    Raises:
        BrokerError: The broker does not answer or refuses a topic.
    """
    admin = AdminClient(
        {"bootstrap.servers": bootstrap, "client.id": "kafka-assets-demo-admin", "log_level": 0}
    )
    wanted = [NewTopic(name, num_partitions=partitions, replication_factor=1) for name in names]
    created = []
    for name, done in admin.create_topics(wanted, operation_timeout=timeout).items():
        try:
            done.result(timeout)
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise BrokerError(
                    f"Topic {name} could not be created on {bootstrap}: {error.args[0].str()}.",
                    fix="Start the broker (`kafka-assets broker`) or correct the address.",
                ) from error
    _await_partitions(admin, created, partitions, timeout)
    return tuple(created)


class _Sender:
    """A producer that counts acknowledgements by topic and kind."""

    def __init__(self, bootstrap: str, client_id: str, linger_ms: int = 50) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "batch.size": 1_000_000,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 256 * 1024,
                # Failures come by the delivery callbacks; a restarting broker is not news.
                "log_level": 2,
            }
        )
        self._counts: dict[str, Counter[str]] = {}
        self._callbacks: dict[tuple[str, str], Callable[[Any, Any], None]] = {}
        self._refused: Counter[str] = Counter()

    def send(self, topic: str, kind: str, value: bytes | None) -> None:
        on_delivery = self._callbacks.get((topic, kind)) or self._callback(topic, kind)
        while True:
            try:
                self._producer.produce(topic, value, on_delivery=on_delivery)
            except BufferError:
                # The client's queue is full: let the broker catch up.
                self._producer.poll(0.5)
            else:
                return

    def poll(self) -> None:
        self._producer.poll(0)

    def finish(self, timeout: float) -> dict[str, dict[str, int]]:
        waiting = self._producer.flush(timeout)
        counts = {topic: dict(kinds) for topic, kinds in self._counts.items()}
        if waiting or self._refused:
            known = sum(sum(kinds.values()) for kinds in counts.values())
            why = "; ".join(f"{count} x {text}" for text, count in self._refused.items())
            raise BrokerError(
                f"{self._bootstrap} acknowledged {known} events, {waiting} are without an answer "
                f"after {timeout:g} s, {sum(self._refused.values())} were refused"
                + (f" ({why})." if why else "."),
                fix="Look at the broker's log; the acknowledged events are kept.",
            )
        return counts

    def _callback(self, topic: str, kind: str) -> Callable[[Any, Any], None]:
        # One callback for each topic and kind, made once: the kind must not travel in the event.
        kinds = self._counts.setdefault(topic, Counter())
        refused = self._refused

        def acknowledged(error: Any, _message: Any) -> None:
            if error is None:
                kinds[kind] += 1
            else:
                refused[str(error.str())] += 1

        self._callbacks[topic, kind] = acknowledged
        return acknowledged


def _await_partitions(
    admin: AdminClient, topics: Iterable[str], partitions: int, timeout: float
) -> None:
    """Wait until offsets of all partitions can be read.

    A topic is "created" when the controller has it; its leaders serve it a moment later, and what
    asks in between gets NOT_LEADER_FOR_PARTITION.
    """
    wanted = {
        TopicPartition(topic, number): OffsetSpec.latest()
        for topic in topics
        for number in range(partitions)
    }
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(timeout),
        wait=tenacity.wait_fixed(0.1),
        retry=tenacity.retry_if_exception_type(KafkaException),
    )

    def ask() -> None:
        for answer in (
            admin.list_offsets(wanted, request_timeout=timeout).values() if wanted else ()
        ):
            answer.result(timeout)

    try:
        retry(ask)
    except tenacity.RetryError as error:
        cause = error.last_attempt.exception()
        raise BrokerError(
            f"New topics ({', '.join(topics)}) have no leader after {timeout:g} s: {cause}."
        ) from cause
