"""A reader beside the writers: every version of silver that it meets holds only whole batches.

Events of one partition arrive in the order of their numbers, so whole batches are a prefix: all
that must be kept up to the highest number seen, and nothing else.
"""

from __future__ import annotations

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


class Reader:
    """Reads silver all the time in a thread of its own. A context manager.

    Attributes:
        versions: How many versions were read.
        torn: Versions that did not hold a prefix, with what was wrong.

    Args:
        table: Path of silver `clean`.
        ledger: What was sent, in order, by one sender at a time.
        partitions: Partitions of the topic.
    """

    def __init__(self, table: Path, ledger: Ledger, partitions: int = 2) -> None:
        self.versions = 0
        self.torn: list[str] = []
        self._table, self._ledger, self._partitions = table, ledger, partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self) -> None:
        last = -1
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                table = DeltaTable(str(self._table))
                if table.version() == last:
                    continue
                last = table.version()
                ids = table.to_pyarrow_table(columns=["id"])["id"]
            except TableNotFoundError:
                continue
            except Exception as error:  # no version may be unreadable at any moment
                self.torn.append(f"version {last}: {type(error).__name__} {error}")
                continue
            self.versions += 1
            self.look(last, pc.cast(ids, pa.int64()).to_numpy())

    def look(self, version: int, ids: Any) -> None:
        """Compare one version's numbers with the prefixes that they have to be."""
        statuses, dead = self._ledger.statuses(), self._ledger.dead()
        size = min(len(statuses), len(dead))
        counts = np.bincount(ids, minlength=size)[:size]
        numbers = np.arange(size)
        for partition in range(self._partitions):
            own = numbers % self._partitions == partition
            seen = np.flatnonzero(own & (counts > 0))
            if not len(seen):
                continue
            wanted = own & (numbers <= seen[-1]) & ~dead[:size] & (statuses[:size] != ABORTED)
            wrong = np.flatnonzero(own & (counts != wanted))
            if len(wrong):
                self.torn.append(
                    f"version {version}, partition {partition}: {len(wrong)} numbers, the first "
                    f"{wrong[0]} is there {counts[wrong[0]]} times"
                )
