"""Two workers on one lake, started together or one overtaking the other."""

from __future__ import annotations

import time

from kafka_assets_tests.helpers import create_topic
from kafka_assets_tests.reliability.killer import POLL_SECONDS
from kafka_assets_tests.reliability.ledger import Ledger
from kafka_assets_tests.reliability.siege import SEED
from kafka_assets_tests.reliability.windows import Places, Snapshot
from kafka_assets_tests.reliability.workers import PATIENCE, Setup, Worker


class Pair:
    """Two workers on one lake. A context manager.

    Args:
        setup: How both are started.
        warm: Both have run the tables before they are given back; else neither has, and the tables
            are not there yet.
    """

    def __init__(self, setup: Setup, *, warm: bool = False) -> None:
        self._warm = warm
        create_topic(setup.bootstrap, setup.topic, 2)
        self.lake = setup.lake
        self.ledger = Ledger(setup.bootstrap, setup.topic, SEED)
        self.workers = (Worker(setup), Worker(setup))

    def __enter__(self) -> Pair:
        for worker in self.workers:
            worker.await_ready()
        for worker in self.workers if self._warm else ():
            self.ledger.send(100)
            worker.do("run")
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()

    def start_both(self) -> list[str]:
        """Send events, start a run in both at once, and return what they say."""
        self.ledger.send(300)
        for worker in self.workers:
            worker.tell("run")
        return [worker.answer() or "no answer" for worker in self.workers]

    def overtake(self, window: str, table: str) -> tuple[str, str]:
        """Freeze a run at a window, let the other worker run, and thaw it.

        Returns:
            What the other worker says, and then the frozen one.
        """
        slow, quick = self.workers
        self.ledger.send(300)
        before = Snapshot.take(Places(self.lake, table))
        slow.tell("run")
        deadline = time.monotonic() + PATIENCE
        while not (before.reached(window) or slow.answered) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        slow.pause()
        try:
            quick.tell("run")
            first = quick.answer() or "no answer"
        finally:
            slow.resume()
        return first, slow.answer() or "no answer"
