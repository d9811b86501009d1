"""Sample events for the demo, the tests and the benchmarks, and the producer that sends them.

Here belongs what the two sample topics hold, good and bad, and sending it with an exact account of
what the broker acknowledged. What is expected to happen to each bad kind is `BAD_KINDS`, so that a
demo or a test can compare the tables with it.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal

import tenacity
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from kafka_assets.errors import BrokerError

TRACKER_TOPIC = "tracker-events"
ORDER_TOPIC = "orders"
TOPICS = (TRACKER_TOPIC, ORDER_TOPIC)

GOOD = "good"

Fate = Literal["undecodable", "rule", "kept"]
"""What becomes of an event: a dead letter as unreadable, a dead letter by a rule, or a row."""

MODELS = ("aria-2", "aria-3", "bolt-mini", "pulse-pro", "pulse-se")
VERSIONS = ("1.8.2", "2.0.0", "2.1.4")
STATUSES = ("placed", "paid", "shipped", "cancelled")
SPREAD = timedelta(hours=4)
"""How far back from `now` the event times of a batch reach."""

_ANY: Mapping[str, Fate] = MappingProxyType(
    {
        "truncated_json": "undecodable",
        "invalid_utf8": "undecodable",
        "wrong_type": "undecodable",
        "trailing_garbage": "undecodable",
        "empty_value": "undecodable",
        "tombstone": "undecodable",
    }
)
BAD_KINDS: Mapping[str, Mapping[str, Fate]] = MappingProxyType(
    {
        TRACKER_TOPIC: MappingProxyType(
            {**_ANY, "heart_bpm_zero": "rule", "heart_bpm_too_high": "rule"}
        ),
        ORDER_TOPIC: MappingProxyType(
            {
                **_ANY,
                "amount_not_positive": "rule",
                "customer_missing": "rule",
                "unknown_status": "kept",
            }
        ),
    }
)
"""For each topic its kinds of bad events and what the sample pipelines make of each."""


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


def tracker_event(rng: random.Random, seq: int, now: datetime | None = None) -> bytes:
    """Return one heart-rate event of a fitness tracker as JSON.

    Args:
        rng: Decides the values; the same seed gives the same bytes.
        seq: Makes `event_id` unique.
        now: Latest event time; None means the current time.
    """
    # Written out rather than dumped: json would be half of the producer's time, and no value here
    # needs escaping.
    return (
        f'{{"event_id":"t-{seq}","time":"{_time(rng, now)}",'
        f'"version":"{_pick(rng, VERSIONS)}","model":"{_pick(rng, MODELS)}",'
        f'"heart_bpm":{45 + int(rng.random() * 75 + rng.random() * 75)},'
        f'"kcal":{rng.random() * 12:.2f}}}'
    ).encode()


def order_event(rng: random.Random, seq: int, now: datetime | None = None) -> bytes:
    """Return one event of a shop order as JSON; arguments as for `tracker_event`."""
    return (
        f'{{"order_id":"o-{seq}",'
        f'"customer_id":"c-{int(rng.random() * 500)}",'
        f'"amount":{1 + rng.random() * 250:.2f},"status":"{_pick(rng, STATUSES)}",'
        f'"order_time":"{_time(rng, now)}"}}'
    ).encode()


def bad_event(
    rng: random.Random, seq: int, topic: str, now: datetime | None = None
) -> tuple[str, bytes | None]:
    """Return the kind and the value of one bad event; the value of a tombstone is None.

    Raises:
        KeyError: The topic is not one of `BAD_KINDS`.
    """
    kind = rng.choice(tuple(BAD_KINDS[topic]))
    return kind, _SPOIL[kind](rng, _GOOD[topic](rng, seq, now))


def events(
    topic: str, count: int, bad_ratio: float, seed: int, now: datetime | None = None
) -> Iterator[tuple[str, bytes | None]]:
    """Yield kind and value of a topic's events; the same arguments give the same bytes.

    Args:
        topic: One of `TOPICS`.
        count: How many.
        bad_ratio: Share of bad ones, 0 to 1. At least one of them if it is above 0 and count too.
        seed: Decides all values, with the topic's name.
        now: Latest event time; None means the current time, which makes the times differ.
    """
    if not 0 <= bad_ratio <= 1:
        raise ValueError(f"bad_ratio is {bad_ratio}; it is a share, from 0 to 1")
    rng = random.Random(f"{seed}/{topic}")  # noqa: S311 - sample data
    now = now or datetime.now(UTC)
    bad = set(rng.sample(range(count), _bad_count(count, bad_ratio)))
    make = _GOOD[topic]
    for seq in range(count):
        if seq in bad:
            yield bad_event(rng, seq, topic, now)
        else:
            yield GOOD, make(rng, seq, now)


def produce(
    bootstrap: str,
    events_per_topic: int | Mapping[str, int],
    bad_ratio: float = 0.02,
    seed: int = 1,
    *,
    now: datetime | None = None,
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
        timeout: Seconds to wait for the last acknowledgements.

    Raises:
        BrokerError: An event was refused or not acknowledged in time; says how many were.
    """
    if isinstance(events_per_topic, int):
        events_per_topic = dict.fromkeys(TOPICS, events_per_topic)
    begin = time.monotonic()
    sender = _Sender(bootstrap, "kafka-assets-demo-producer")
    for topic, count in events_per_topic.items():
        for kind, value in events(topic, count, bad_ratio, seed, now):
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
        now = datetime.now(UTC)
        if rng.random() < bad_ratio:
            kind, value = bad_event(rng, seq + sent, topic, now)
        else:
            kind, value = GOOD, _GOOD[topic](rng, seq + sent, now)
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


def _bad_count(count: int, bad_ratio: float) -> int:
    return max(min(count, 1 if bad_ratio > 0 else 0), round(count * bad_ratio))


def _time(rng: random.Random, now: datetime | None) -> str:
    moment = (now or datetime.now(UTC)) - SPREAD * rng.random()
    return moment.isoformat(timespec="milliseconds")[:23] + "Z"


def _pick(rng: random.Random, names: tuple[str, ...]) -> str:
    return names[int(rng.random() * len(names))]


def _changed(event: bytes, **changed: object) -> bytes:
    return json.dumps({**json.loads(event), **changed}, separators=(",", ":")).encode()


_GOOD: Mapping[str, Callable[[random.Random, int, datetime | None], bytes]] = {
    TRACKER_TOPIC: tracker_event,
    ORDER_TOPIC: order_event,
}


def _truncated(rng: random.Random, event: bytes) -> bytes:
    return event[: rng.randrange(10, len(event) - 1)]


def _invalid_utf8(rng: random.Random, _event: bytes) -> bytes:
    # 0xff appears in no UTF-8 text.
    return b"\xff\xfe" + rng.randbytes(30)


def _wrong_type(_rng: random.Random, event: bytes) -> bytes:
    if b'"heart_bpm"' in event:
        return _changed(event, heart_bpm="seventy")
    return _changed(event, amount={"value": 12})


_SPOIL: Mapping[str, Callable[[random.Random, bytes], bytes | None]] = {
    "truncated_json": _truncated,
    "invalid_utf8": _invalid_utf8,
    "wrong_type": _wrong_type,
    "trailing_garbage": lambda _rng, event: event + b"}]garbage",
    "empty_value": lambda _rng, _event: b"",
    "tombstone": lambda _rng, _event: None,
    "heart_bpm_zero": lambda _rng, event: _changed(event, heart_bpm=0),
    "heart_bpm_too_high": lambda _rng, event: _changed(event, heart_bpm=400),
    "amount_not_positive": lambda rng, event: _changed(event, amount=-rng.randrange(50)),
    "customer_missing": lambda _rng, event: _changed(event, customer_id=None),
    "unknown_status": lambda _rng, event: _changed(event, status="teleported"),
}
