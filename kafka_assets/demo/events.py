"""Sample events for the demo, the tests and the benchmarks: what the two sample topics hold.

What is expected to happen to each bad kind is `BAD_KINDS`, so that a demo or a test can compare the
tables with it. Sending them is `producing`'s.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Literal

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


def good_event(
    rng: random.Random, seq: int, topic: str, now: datetime | None = None
) -> tuple[str, bytes | None]:
    """Return `GOOD` and the value of one good event.

    Raises:
        KeyError: The topic is not one of `TOPICS`.
    """
    return GOOD, _GOOD[topic](rng, seq, now)


def events(
    topic: str,
    count: int,
    bad_ratio: float,
    seed: int,
    now: datetime | None = None,
    first: int = 0,
) -> Iterator[tuple[str, bytes | None]]:
    """Yield kind and value of a topic's events; the same arguments give the same bytes.

    Args:
        topic: One of `TOPICS`.
        count: How many.
        bad_ratio: Share of bad ones, 0 to 1. At least one of them if it is above 0 and count too.
        seed: Decides all values, with the topic's name.
        now: Latest event time; None means the current time, which makes the times differ.
        first: Number of the first event; the numbers stand in the events' ids.
    """
    if not 0 <= bad_ratio <= 1:
        raise ValueError(f"bad_ratio is {bad_ratio}; it is a share, from 0 to 1")
    rng = random.Random(f"{seed}/{topic}")  # noqa: S311 - sample data
    now = now or datetime.now(UTC)
    bad = set(rng.sample(range(count), _bad_count(count, bad_ratio)))
    for seq in range(count):
        make = bad_event if seq in bad else good_event
        yield make(rng, first + seq, topic, now)


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
