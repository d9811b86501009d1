"""One lake under attack: events come in, runs are killed, the next worker takes over.

Tests and the soak share it. It counts what was done and what was seen, and judges nothing itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from kafka_assets_tests.helpers import create_topic
from kafka_assets_tests.reliability.judge import Verdict, judge
from kafka_assets_tests.reliability.killer import RUN, Kill, kill_after, kill_at, kill_replay
from kafka_assets_tests.reliability.kinds import files_put, prepare, put_file, put_records
from kafka_assets_tests.reliability.ledger import Ledger
from kafka_assets_tests.reliability.windows import CHECKPOINT
from kafka_assets_tests.reliability.workers import GROUP, PYTHON, Crew, Setup, Worker

MOST_TRIES = 4
"""A run that meets what a killed one left may fail by a named error; so often it may be tried."""

LAST_ROWS = 20

SEED = 20_261_121


class Siege:
    """A topic with two partitions, a lake of its own, and workers. A context manager.

    Args:
        folder: A folder of its own.
        bootstrap: The broker.
        topic: A topic's name that is not in use; it is created.
        ledger: What was sent to that topic, if an earlier siege of this folder has to go on.
        without: Protections that are switched off in the workers.
        most_offsets: Most records of a bronze batch.
        events: Events that are sent before each strike; records of a few keys and a file come with
            them.
    """

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        topic: str,
        *,
        ledger: Ledger | None = None,
        without: tuple[str, ...] = (),
        most_offsets: int = 1_000_000,
        events: int = 200,
    ) -> None:
        self.lake = folder / "lake"
        if ledger is None:
            create_topic(bootstrap, topic, 2)
            prepare(self.lake, bootstrap, topic)
        self.events = events
        self.ledger = ledger or Ledger(bootstrap, topic, SEED)
        self.kills: list[Kill] = []
        self.failures: list[str] = []
        self._crew = Crew(Setup(self.lake, bootstrap, topic, most_offsets, without))
        self._dead: list[Worker] = []
        self._worker: Worker | None = None
        self._seconds_a_table = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.__exit__()

    @property
    def worker(self) -> Worker:
        """The worker whose turn it is."""
        if self._worker is None:
            self._worker = self._crew.take()
        return self._worker

    def strike(
        self, window: str, table: str, part: str = GROUP, tables: Sequence[str] = RUN
    ) -> Kill:
        """Send events, start a run, and kill it at a window."""
        self._send()
        if window == CHECKPOINT:
            self.worker.do("set bronze/raw delta.checkpointInterval 1")
        kill = kill_at(self.worker, window, table, part=part, tables=tables)
        return self._struck(kill)

    def strike_after(self, share: float, part: str = GROUP, tables: Sequence[str] = RUN) -> Kill:
        """Send events, start a run, and kill it after a share of the time that it would take.

        As judged by the last run to the end: how long one takes is the machine's business.
        """
        self._send()
        seconds = share * len(tables) * self._seconds_a_table
        kill = kill_after(self.worker, seconds, part=part, tables=tables)
        return self._struck(kill)

    def strike_replay(self, window: str, words: str, *, interrupted: bool) -> Kill:
        """Start a replay of silver's letters, and kill it at a window; see `kill_replay`."""
        kill = kill_replay(self.worker, window, "clean", words, interrupted=interrupted)
        return self._struck(kill)

    def recover(self, *words: str, whole: bool = True) -> Verdict:
        """Let the next worker run to the end, and compare the tables with the ledger.

        Args:
            words: Words of the `run` command; see `worker`.
            whole: See `judge`.
        """
        if "closed" in words:
            # What a watermark closed before a kill is written with the next rows that come.
            self.ledger.send(LAST_ROWS)
        for _ in range(MOST_TRIES):
            worker, begin = self.worker, time.monotonic()
            worker.tell(f"run {' '.join(words)}")
            line = worker.answer() or "no answer"
            if line.startswith("done"):
                self._seconds_a_table = (time.monotonic() - begin) / len(words or RUN)
                break
            self.failures.append(line)
        else:
            raise AssertionError(f"no run succeeded: {self.failures[-MOST_TRIES:]}")
        assert "NOT CONSERVED" not in line, line
        if self.kills and self.kills[-1].aimed == CHECKPOINT:
            self.worker.do("set bronze/raw delta.checkpointInterval 10")
        self._crew.dismiss(self._dead)
        self._dead = []
        return judge(self.lake, self.ledger, tables=words, whole=whole)

    def double_start(self) -> list[str]:
        """Send events, start a run in two workers at once, and return what they say."""
        first, second = self.worker, self._crew.take()
        self._send()
        for worker in (first, second):
            worker.tell("run")
        answers = [worker.answer() or "no answer" for worker in (first, second)]
        self._crew.dismiss([first])
        self._worker = second
        return answers

    def glance(self) -> Verdict:
        """Compare the tables as they are; what waits in the topic shows as lost."""
        return judge(self.lake, self.ledger, whole=False)

    def _send(self) -> None:
        """Send events and records of a few keys, and let a file appear."""
        self.ledger.send(self.events)
        files = files_put(self.lake)
        put_records(self.ledger.bootstrap, self.ledger.topic, files)
        put_file(self.lake, files)

    def _struck(self, kill: Kill) -> Kill:
        self.kills.append(kill)
        assert self._worker is not None
        if kill.part == PYTHON:
            # Its JVM lives on for a moment, as after a real crash: the next run may meet it.
            self._dead.append(self._worker)
        else:
            self._crew.dismiss([self._worker])
        self._worker = None
        return kill
