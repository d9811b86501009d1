"""What people did to tables: one append-only Delta table of the lake, `_operations`.

Losses that were agreed to stand here with their offsets, so that a row that is nowhere can still be
accounted for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from kafka_assets.operations.letters import user
from kafka_assets.settings import Settings
from kafka_assets.streaming.creating import ensure_bookkeeping
from kafka_assets.streaming.tables import LakeTable

FIELDS = (
    ("at", "timestamp"),
    ("by", "string"),
    ("operation", "string"),
    ("table", "string"),
    ("topic", "string"),
    ("partition", "long"),
    ("first_offset", "long"),
    ("end_offset", "long"),
    ("rows", "long"),
    ("reason", "string"),
    ("run_id", "string"),
)


@dataclass(frozen=True)
class Entry:
    """One line: what was done to a table, and what of a partition was lost by it.

    Attributes:
        operation: `accept_loss`, `repair`, `reset` or `move`.
        table: The table.
        topic: The topic, where offsets are concerned.
        partition: The partition.
        first_offset: The first offset that was lost.
        end_offset: The offset after the last one that was lost; None when nobody can know.
        rows: Rows of the table that were given up.
        reason: Why, in words.
    """

    operation: str
    table: str
    topic: str | None = None
    partition: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    rows: int | None = None
    reason: str | None = None


def path(settings: Settings) -> str:
    """Where the table lies."""
    return f"{settings.lake}/_operations"


def write(
    settings: Settings,
    entries: Iterable[Entry],
    *,
    by: str | None = None,
    run_id: str | None = None,
    at: datetime | None = None,
) -> None:
    """Add lines.

    Args:
        settings: The lake.
        entries: What was done.
        by: Who did it; by default the user of this process.
        run_id: In which run.
        at: When (UTC); by default now.

    Raises:
        LakeError: The lake cannot be written.
    """
    import pyarrow as pa

    same = {"at": at or datetime.now(UTC), "by": by or user(), "run_id": run_id}
    rows = [{**vars(entry), **same} for entry in entries]
    if rows:
        table = ensure_bookkeeping(path(settings), FIELDS)
        info = {"operation": rows[0]["operation"]}
        table.append(pa.Table.from_pylist(rows, schema=table.arrow_schema), info=info)


def read(settings: Settings) -> list[dict[str, object]]:
    """All lines, oldest first."""
    table = LakeTable.open(path(settings))
    if table is None:
        return []
    rows = table.read(tuple(name for name, _ in FIELDS)).to_pylist()
    return sorted(rows, key=lambda row: row["at"])


def newest(settings: Settings) -> dict[str, dict[str, float]]:
    """When each operation was last done to a table: table -> operation -> seconds since 1970.

    Raises:
        LakeError: The lake cannot be read.
    """
    found: dict[str, dict[str, float]] = {}
    for row in read(settings):
        at = row["at"]
        if isinstance(at, datetime):
            found.setdefault(str(row["table"]), {})[str(row["operation"])] = at.timestamp()
    return found
