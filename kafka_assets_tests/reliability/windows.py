"""The moments of a run at which it is killed, as they show in its files.

A window is recognized twice, from files alone: `reached` is polled while the run goes on and says
when to kill; `seen` looks at what the kill left and says which window was really hit. No part of
the product helps.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

BEFORE_OFFSETS = "before_offset_log"
AFTER_OFFSETS = "after_offset_log"
MID_PARQUET = "mid_parquet"
BETWEEN = "between_dead_letters_and_table"
AFTER_DELTA = "after_delta_commit_before_commit_log"
AFTER_COMMIT = "after_commit_log_before_report"
COMPACTION = "during_compaction"
CHECKPOINT = "during_delta_checkpoint"

WINDOWS = (
    BEFORE_OFFSETS,
    AFTER_OFFSETS,
    MID_PARQUET,
    BETWEEN,
    AFTER_DELTA,
    AFTER_COMMIT,
    COMPACTION,
    CHECKPOINT,
)

REPLAY_MARKED = "replay_marked_before_write"
REPLAY_WRITTEN = "replay_written_before_mark"
"""Windows of a replay of dead letters, which only tests aim at."""

MID_LETTERS = "mid_dead_letters"
NOT_BEGUN = "between_runs"
SETUP = "before_first_batch"
AFTER_COMPACTION = "after_compaction"
REPLAYED = "after_replay"
"""What a kill can hit beside the windows that are aimed at."""

LAYERS = {
    "raw": "bronze",
    "clean": "silver",
    "hourly": "gold",
    "copied": "silver",
    "latest": "silver",
    "totals": "gold",
    "once": "silver",
    "joined": "silver",
    "named": "silver",
    "states": "silver",
    "digits": "gold",
    "feed": "gold",
    "alerts": "_sinks",
    "archived": "..",
    "landed": "bronze",
    "begun": "silver",
    "closed": "gold",
    "newest_changes": "silver",
    "newest": "silver",
}
FLOWS = {
    "copied": "odd",
    "latest": "latest",
    "states": "states",
    "begun": "since",
    "newest": "newest",
}
"""The last flow of a table that flows feed: its checkpoint is looked at."""


@dataclass(frozen=True)
class Places:
    """Where a table's files lie.

    Args:
        lake: The lake.
        table: One of `LAYERS`.
    """

    lake: Path
    table: str

    @property
    def data(self) -> Path:
        return self.lake / LAYERS[self.table] / self.table

    @property
    def letters(self) -> Path:
        return self.lake / "dlq" / self.table

    @property
    def statuses(self) -> Path:
        """What became of the dead letters."""
        return self.lake / "dlq" / f"{self.table}__status"

    @property
    def checkpoint(self) -> Path:
        return (
            self.lake / "_checkpoints" / LAYERS[self.table] / self.table / FLOWS.get(self.table, "")
        )

    @property
    def lease(self) -> Path:
        return self.lake / "_leases" / f"{self.table}.json"


@dataclass(frozen=True)
class Snapshot:
    """The names of a table's files before a run."""

    places: Places
    offsets: frozenset[str]
    commits: frozenset[str]
    log: frozenset[str]
    letters_log: frozenset[str]
    status_log: frozenset[str]
    letters: frozenset[str]
    data: frozenset[str]
    lease: int

    @classmethod
    def take(cls, places: Places) -> Snapshot:
        return cls(
            places,
            offsets=_names(places.checkpoint / "offsets"),
            commits=_names(places.checkpoint / "commits"),
            log=_names(places.data / "_delta_log"),
            letters_log=_names(places.letters / "_delta_log"),
            status_log=_names(places.statuses / "_delta_log"),
            letters=_names(places.letters),
            data=_names(places.data),
            lease=_changed(places.lease),
        )

    def reached(self, window: str) -> bool:
        """Whether a run that began after this snapshot has come to a window."""
        places = self.places
        if window == BEFORE_OFFSETS:
            return _changed(places.lease) != self.lease
        if window == AFTER_OFFSETS:
            return bool(_new_numbers(places.checkpoint / "offsets", self.offsets))
        if window in (MID_PARQUET, COMPACTION):
            return bool(_parquet(_names(places.data) - self.data))
        if window == MID_LETTERS:
            return bool(_parquet(_names(places.letters) - self.letters))
        if window == BETWEEN:
            return bool(_json(_names(places.letters / "_delta_log") - self.letters_log))
        if window == REPLAY_MARKED:
            return bool(self._new_statuses())
        if window in (AFTER_DELTA, REPLAY_WRITTEN):
            return bool(_json(_names(places.data / "_delta_log") - self.log))
        if window == AFTER_COMMIT:
            return bool(_new_numbers(places.checkpoint / "commits", self.commits))
        if window == CHECKPOINT:
            new = _names(places.data / "_delta_log") - self.log
            return any(".checkpoint." in name for name in new)
        raise ValueError(window)

    def _new_statuses(self) -> list[str]:
        names = _json(_names(self.places.statuses / "_delta_log") - self.status_log)
        # The first version makes the table.
        return [name for name in names if int(name.split(".")[0]) > 0]

    def seen_of_replay(self, interrupted: bool) -> str:
        """Which window of a replay of letters that all pass a kill has hit.

        Args:
            interrupted: Whether another was killed before, whose letters are marked first.
        """
        marks = len(self._new_statuses()) - interrupted
        written = _json(_names(self.places.data / "_delta_log") - self.log)
        if marks > 1:
            return REPLAYED
        if written:
            return REPLAY_WRITTEN
        return REPLAY_MARKED if marks > 0 else NOT_BEGUN

    def seen(self) -> str:
        """Which window a kill has hit, from what it left."""
        places = self.places
        log = _names(places.data / "_delta_log") - self.log
        data = _parquet(_names(places.data) - self.data)
        begun = _last(places.checkpoint / "offsets")
        finished = _last(places.checkpoint / "commits")
        if begun > finished:
            return self._seen_in_batch(begun, log, data)
        if _new_numbers(places.checkpoint / "commits", self.commits):
            return AFTER_COMMIT
        if _checkpoint_cut_short(places.data, log):
            return CHECKPOINT
        if any("OPTIMIZE" in _operation(places.data, name) for name in _json(log)):
            return AFTER_COMPACTION
        if _changed(places.lease) != self.lease:
            return BEFORE_OFFSETS if (places.checkpoint / "metadata").exists() else SETUP
        return COMPACTION if data else NOT_BEGUN

    def _seen_in_batch(self, begun: int, log: frozenset[str], data: list[str]) -> str:
        places = self.places
        query = json.loads((places.checkpoint / "metadata").read_text())["id"]
        if _transaction(places.data, query) >= begun:
            cut_short = _checkpoint_cut_short(places.data, log)
            return CHECKPOINT if cut_short else AFTER_DELTA
        if data:
            return MID_PARQUET
        if _json(_names(places.letters / "_delta_log") - self.letters_log):
            return BETWEEN
        if _parquet(_names(places.letters) - self.letters):
            return MID_LETTERS
        return AFTER_OFFSETS


def last_seen(before: list[Snapshot]) -> tuple[str, str]:
    """Table and window that a kill has hit: those of the last table of the run that had begun.

    Args:
        before: Snapshots of the tables in the order in which the run takes them.
    """
    found = (before[0].places.table, NOT_BEGUN)
    for snapshot in before:
        window = snapshot.seen()
        if window != NOT_BEGUN:
            found = (snapshot.places.table, window)
    return found


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(entry.name for entry in folder.iterdir())
    except FileNotFoundError:
        return frozenset()


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _last(folder: Path) -> int:
    return max((int(name) for name in _names(folder) if name.isdigit()), default=-1)


def _new_numbers(folder: Path, before: frozenset[str]) -> list[str]:
    return [name for name in _names(folder) - before if name.isdigit()]


def _json(names: frozenset[str]) -> list[str]:
    return sorted(name for name in names if name.endswith(".json") and name[0].isdigit())


def _parquet(names: frozenset[str]) -> list[str]:
    return [name for name in names if name.endswith(".parquet")]


def _operation(table: Path, log_file: str) -> str:
    for line in (table / "_delta_log" / log_file).read_text().splitlines():
        action: dict[str, Any] = json.loads(line)
        if "commitInfo" in action:
            return str(action["commitInfo"].get("operation", ""))
    return ""


def _checkpoint_cut_short(table: Path, log: frozenset[str]) -> bool:
    """A checkpoint of the log was begun and `_last_checkpoint` does not name it yet."""
    begun = [name for name in log if ".checkpoint." in name and not name.endswith(".crc")]
    if not begun:
        return False
    pointer = table / "_delta_log" / "_last_checkpoint"
    try:
        version = int(json.loads(pointer.read_text())["version"])
    except (FileNotFoundError, ValueError, KeyError):
        return True
    return any(version != int(name.lstrip(".").split(".")[0]) for name in begun)


def _transaction(table: Path, query: str) -> int:
    try:
        version = DeltaTable(str(table)).transaction_version(query)
    except TableNotFoundError:
        return -1
    return -1 if version is None else int(version)
