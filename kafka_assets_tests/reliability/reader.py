"""A reader beside the writers: every version of silver that it meets holds only whole batches.

Events of one partition arrive in the order of their numbers, so a version is a prefix of each
partition: all that must be kept up to the highest number seen, and nothing else. And these prefixes
end together where one of bronze's batches ends, as Spark wrote it down before it read them.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from kafka_assets_tests.reliability.ledger import ABORTED, Ledger

PAUSE_SECONDS = 0.05
SOURCE_LINE = 2
"""Line of Spark's offset log with the offsets."""


class Reader:
    """Reads silver all the time in a thread of its own. A context manager.

    Attributes:
        versions: How many versions were read.
        torn: Versions that did not hold whole batches, with what was wrong; complete at its end.

    Args:
        lake: Where bronze `raw` and silver `clean` lie.
        ledger: What was sent, in order, by one sender at a time.
        partitions: Partitions of the topic.
    """

    def __init__(self, lake: Path, ledger: Ledger, partitions: int = 2) -> None:
        self.versions = 0
        self.torn: list[str] = []
        self._lake, self._ledger, self._partitions = lake, ledger, partitions
        self._last: dict[int, tuple[int, ...]] = {}
        self._ends: dict[str, tuple[int, ...]] = {}
        self._bronze: tuple[Any, Any, Any] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.compare_with_batches()

    def _read(self) -> None:
        last = -1
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                self._note_batches()
                table = DeltaTable(str(self._lake / "silver/clean"))
                if table.version() == last:
                    continue
                last = table.version()
                ids = table.to_pyarrow_table(columns=["id"])["id"]
                self.look(last, pc.cast(ids, pa.int64()).to_numpy())
            except TableNotFoundError:
                continue
            except Exception as error:  # no version may be unreadable at any moment
                self.torn.append(f"version {last}: {type(error).__name__} {error}")
                continue
            self.versions += 1

    def look(self, version: int, ids: Any) -> None:
        """Compare one version's numbers with the prefixes that they have to be."""
        statuses, dead = self._ledger.statuses(), self._ledger.dead()
        size = min(len(statuses), len(dead))
        counts = np.bincount(ids, minlength=size)[:size]
        numbers = np.arange(size)
        last = [-1] * self._partitions
        for partition in range(self._partitions):
            own = numbers % self._partitions == partition
            seen = np.flatnonzero(own & (counts > 0))
            if not len(seen):
                continue
            last[partition] = int(seen[-1])
            wanted = own & (numbers <= seen[-1]) & ~dead[:size] & (statuses[:size] != ABORTED)
            wrong = np.flatnonzero(own & (counts != wanted))
            if len(wrong):
                self.torn.append(
                    f"version {version}, partition {partition}: {len(wrong)} numbers, the first "
                    f"{wrong[0]} is there {counts[wrong[0]]} times"
                )
        self._last[version] = tuple(last)

    def compare_with_batches(self) -> None:
        """Find versions that end elsewhere than a batch of bronze."""
        if not self._last:
            return
        self._note_batches()
        # A table that was only made is whole, too.
        nothing = (0,) * self._partitions
        wholes = {self._kept_before(ends) for ends in [nothing, *self._ends.values()]}
        self.torn += [
            f"version {version} ends with the numbers {last}, where no batch ends"
            for version, last in self._last.items()
            if last not in wholes
        ]

    def _note_batches(self) -> None:
        """Keep what Spark wrote down of bronze's batches; it removes old ones by and by."""
        folder = self._lake / "_checkpoints/bronze/raw/offsets"
        for file in folder.glob("[0-9]*"):
            if file.name in self._ends:
                continue
            try:
                lines = file.read_text(encoding="utf-8").splitlines()
            except FileNotFoundError:
                continue
            # A version, a line about the batch, and the offsets of the only source.
            if len(lines) == SOURCE_LINE + 1:
                (offsets,) = json.loads(lines[SOURCE_LINE]).values()
                self._ends[file.name] = tuple(offsets[str(p)] for p in range(self._partitions))

    def _kept_before(self, ends: tuple[int, ...]) -> tuple[int, ...]:
        """The last number of each partition that silver has to keep of all before these offsets."""
        if self._bronze is None:
            table = DeltaTable(str(self._lake / "bronze/raw"))
            rows = table.to_pyarrow_table(columns=["key", "partition", "offset"])
            keys = pc.cast(pc.cast(rows["key"], pa.string()), pa.int64()).to_numpy()
            kept = ~self._ledger.dead()[keys]
            self._bronze = (
                keys[kept],
                rows["partition"].to_numpy()[kept],
                rows["offset"].to_numpy()[kept],
            )
        keys, partitions, offsets = self._bronze
        return tuple(
            int(keys[(partitions == p) & (offsets < end)].max(initial=-1))
            for p, end in enumerate(ends)
        )
