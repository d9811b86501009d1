"""Kills a worker at a window or at any moment, and says which window was really hit.

Polling the files once a millisecond aims well enough: what counts in a report is what was seen in
the files afterwards, not what was aimed at.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_assets_tests.reliability.windows import (
    BETWEEN,
    CHECKPOINT,
    COMPACTION,
    NOT_BEGUN,
    Places,
    Snapshot,
    last_seen,
)
from kafka_assets_tests.reliability.workers import GROUP, JVM, PATIENCE, Worker

POLL_SECONDS = 0.001
RUN = ("raw", "clean")
"""The tables that a worker runs unless told otherwise, in order."""


@dataclass(frozen=True)
class Kill:
    """One SIGKILL.

    Attributes:
        aimed: The window that it was aimed at, or "random".
        part: What was killed: see `workers`.
        table: The table whose run was hit.
        seen: The window that the files show.
        answer: What the Python that lost its JVM said; None otherwise.
    """

    aimed: str
    part: str
    table: str
    seen: str
    answer: str | None = None

    def __str__(self) -> str:
        answer = f" ({self.answer[:200]})" if self.answer else ""
        return f"{self.aimed} [{self.part}] -> {self.table}: {self.seen}{answer}"


def kill_at(
    worker: Worker,
    window: str,
    table: str,
    *,
    part: str = GROUP,
    delay: float = 0.0,
    tables: Sequence[str] = RUN,
) -> Kill:
    """Start a run, or a compaction, and kill the worker at a window.

    Args:
        worker: The victim, ready.
        window: One of `windows.WINDOWS`.
        table: The table whose window it is.
        part: What is killed.
        delay: Seconds between the window's first sign and the kill.
        tables: What the run takes, in order.
    """
    compacts = window == COMPACTION
    command = f"optimize bronze/{table}" if compacts else f"run {' '.join(tables)}"
    before = _before(worker, (table,) if compacts else tables)
    aim = next(snapshot for snapshot in before if snapshot.places.table == table)
    worker.tell(command)
    deadline = time.monotonic() + PATIENCE
    while not (aim.reached(window) or worker.answered) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    time.sleep(delay)
    return _kill(worker, before, window, part)


def kill_after(
    worker: Worker, seconds: float, *, part: str = GROUP, tables: Sequence[str] = RUN
) -> Kill:
    """Start a run and kill the worker after so many seconds."""
    before = _before(worker, tables)
    worker.tell(f"run {' '.join(tables)}")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not worker.answered:
        time.sleep(0.01)
    return _kill(worker, before, "random", part)


def kill_replay(worker: Worker, window: str, table: str, words: str, *, interrupted: bool) -> Kill:
    """Start a replay of dead letters, all of which pass, and kill it at a window.

    Args:
        worker: The victim, ready.
        window: `REPLAY_MARKED` or `REPLAY_WRITTEN`.
        table: The letters' table.
        words: Which letters; see `worker`.
        interrupted: Whether a replay of this table was killed before, and not started again.
    """
    before = Snapshot.take(Places(worker.setup.lake, table))
    worker.tell(f"replay {table} {words}")
    deadline = time.monotonic() + PATIENCE
    while not (before.reached(window) or worker.answered) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    worker.kill(GROUP)
    return Kill(window, GROUP, table, before.seen_of_replay(interrupted))


def tables_of(window: str) -> tuple[str, ...]:
    """The tables that have a window."""
    if window in (COMPACTION, CHECKPOINT):
        return ("raw",)
    return ("clean",) if window == BETWEEN else RUN


def _before(worker: Worker, tables: Sequence[str]) -> list[Snapshot]:
    return [Snapshot.take(Places(worker.setup.lake, table)) for table in tables]


def _kill(worker: Worker, before: list[Snapshot], aimed: str, part: str) -> Kill:
    finished = worker.answered
    worker.kill(part)
    answer = None
    if part == JVM and not finished:
        # Python finds its JVM gone: it has to say so, and not to hang.
        answer = worker.answer(60) or "no answer"
    table, seen = last_seen(before)
    if finished:
        seen = NOT_BEGUN
    return Kill(aimed, part, table, seen, answer)
