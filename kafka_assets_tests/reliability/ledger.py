"""The producer that knows what the broker acknowledged: the truth that tables are judged by.

Every event has a number that is used once, in its key and in its payload; the number and the seed
decide all its bytes, so nothing but one status for each number has to be kept. What the tables made
of the events is `judge`'s.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
from confluent_kafka import KafkaException, Producer

OPEN, ACKNOWLEDGED, ABORTED = 0, 1, 2
"""Status of an event: no answer yet (may or may not be in the topic), in the topic, aborted."""

Fate = Literal["kept", "dead"]

BAD_PERCENT = 8
STRICT_BELOW = 900
"""Limit of the rule that a changed pipeline adds; a tenth of the good rows break it."""

_BASE = datetime(2026, 11, 20, tzinfo=UTC)


def event(seed: int, number: int) -> tuple[Fate, bytes | None]:
    """What becomes of an event, and its payload; None is a tombstone."""
    chance = zlib.crc32(f"{seed}/{number}".encode())
    kind = chance % 100
    at = _BASE + timedelta(seconds=chance // 100 % 14_400)
    x = chance // 7 % 1000 + 1
    if kind == 0:
        x = -x
    good = json.dumps({"id": number, "x": x, "at": at.isoformat()}).encode()
    if kind == 0:
        return "dead", good
    if kind >= BAD_PERCENT:
        return "kept", good
    spoilt = (
        good[:-2],
        good + b" tail",
        b"\xff\xfe" + good,
        good.replace(b'"x": ', b'"x": "many'),
        b"",
        None,
        b"no json at all " + str(number).encode(),
    )
    return "dead", spoilt[kind - 1]


class Ledger:
    """Sends events to one topic and keeps the status of each.

    Args:
        bootstrap: The broker's address.
        topic: An existing topic.
        seed: Decides all bytes.
        partitions: Partitions of the topic; events go to them in turn.
    """

    def __init__(self, bootstrap: str, topic: str, seed: int, partitions: int = 2) -> None:
        self.bootstrap, self.topic, self.seed = bootstrap, topic, seed
        self.transactions = {"committed": 0, "aborted": 0}
        self._partitions = partitions
        self._statuses = bytearray()
        self._dead = bytearray()
        self._failed: list[str] = []
        # One lock for the numbers: events may be sent from several threads.
        self._lock = threading.Lock()
        self._producer = Producer(self._config())

    def _config(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            # An event stays in the client's hands as long as the broker is away.
            "message.timeout.ms": 300_000,
            "queue.buffering.max.messages": 500_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }

    def __getstate__(self) -> dict[str, Any]:
        """What a round that goes on later needs: all but the client and the lock."""
        return {n: v for n, v in vars(self).items() if n not in ("_lock", "_producer")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()
        self._producer = Producer(self._config())

    @property
    def sent(self) -> int:
        """Events handed to the client so far; their numbers are 0 up to this."""
        return len(self._statuses)

    @property
    def acknowledged(self) -> int:
        """Events that the broker acknowledged and that were not aborted."""
        return self._statuses.count(ACKNOWLEDGED)

    @property
    def aborted(self) -> int:
        """Events of aborted transactions."""
        return self._statuses.count(ABORTED)

    def statuses(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The status of each number, as of now."""
        return np.frombuffer(bytes(self._statuses), dtype=np.uint8)

    def dead(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """For each number whether its event has to become a dead letter."""
        return np.frombuffer(bytes(self._dead), dtype=np.bool_)

    def expected(self, number: int) -> tuple[Fate, bytes | None]:
        """What was sent under a number, and what has to become of it."""
        return event(self.seed, number)

    def send(self, count: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Send events and wait until the broker has acknowledged each.

        Args:
            count: How many.
            stop: Asked before each thousand; True ends the sending early.
        """
        for first in range(0, count, 1000):
            if stop():
                break
            for number in self._numbers(min(1000, count - first)):
                self._produce(self._producer, number, self._settle)
            self._producer.poll(0)
        waiting = self._producer.flush(300)
        assert not waiting, f"{waiting} events are without an answer"
        assert not self._failed, self._failed[:3]

    def send_dead(self, count: int) -> None:
        """Send events of which every one has to become a dead letter."""
        sent = 0
        while sent < count:
            for number in self._numbers(1):
                if self.expected(number)[0] == "dead":
                    self._produce(self._producer, number, self._settle)
                    sent += 1
                else:
                    # A number that was skipped must not appear, as one that was aborted.
                    self._statuses[number] = ABORTED
        assert self._producer.flush(60) == 0

    def transact(self, transactions: int, events: int, aborted_percent: int) -> None:
        """Send transactions, of which a share is aborted.

        Args:
            transactions: How many.
            events: Events of each.
            aborted_percent: Share that is aborted after all its events were sent.
        """
        unique = f"{self.topic}-{self.sent}"
        # An event may not outlive its transaction.
        limits = {"message.timeout.ms": 60_000, "transaction.timeout.ms": 60_000}
        producer = Producer({**self._config(), **limits, "transactional.id": unique})
        producer.init_transactions(60)
        for index in range(transactions):
            aborts = zlib.crc32(f"{self.seed}/{unique}/{index}".encode()) % 100 < aborted_percent
            producer.begin_transaction()
            numbers = self._numbers(events)
            for number in numbers:
                self._produce(producer, number, None)
            producer.flush(60)
            try:
                (producer.abort_transaction if aborts else producer.commit_transaction)(60)
            except KafkaException as error:
                raise AssertionError(f"transaction {index} has no outcome: {error}") from error
            self.transactions["aborted" if aborts else "committed"] += 1
            for number in numbers:
                self._statuses[number] = ABORTED if aborts else ACKNOWLEDGED

    def _numbers(self, count: int) -> range:
        with self._lock:
            first = len(self._statuses)
            self._statuses.extend(bytes(count))
            self._dead.extend(event(self.seed, n)[0] == "dead" for n in range(first, first + count))
        return range(first, first + count)

    def _produce(
        self, producer: Producer, number: int, settle: Callable[[Any, Any], None] | None
    ) -> None:
        _, value = self.expected(number)
        key = str(number).encode()
        partition = number % self._partitions
        while True:
            try:
                producer.produce(self.topic, value, key, partition=partition, on_delivery=settle)
            except BufferError:
                producer.poll(0.2)
            else:
                return

    def _settle(self, error: Any, message: Any) -> None:
        if error is None:
            self._statuses[int(message.key())] = ACKNOWLEDGED
        else:
            self._failed.append(str(error))
