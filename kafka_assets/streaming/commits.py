"""What a commit of a Delta table did, whoever made it, by its entry in the table's log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class Commit:
    """One commit of a Delta table.

    Attributes:
        version: The Delta version that it made.
        operation: Delta's name of what it did.
        rows: Rows that it added or changed, without those that it only copied from one file to
            another.
        bytes: Bytes of the files that it added.
        query_id: The query that wrote it; None for other writers.
        batch_id: The query's batch.
        info: What our own commits carry in `userMetadata`.
        at: When it was made (UTC).
        removed: Rows that it took away; of an overwrite whose writer does not count them, files.
        measured: Its writer says how many rows or files it changed.
        appended: It added rows and took none away.
        restored: The version that a RESTORE went back to; None when it named a time.
    """

    version: int
    operation: str
    rows: int
    bytes: int
    query_id: str | None
    batch_id: int | None
    at: datetime
    info: Mapping[str, Any] = field(default_factory=dict)
    removed: int = 0
    measured: bool = True
    appended: bool = False
    restored: int | None = None

    @property
    def changed_data(self) -> bool:
        """True when rows were added, replaced or removed."""
        unknown = not self.measured and self.operation in _WRITES
        took_away = self.removed > 0 or self.operation in _REMOVES
        return self.operation not in _NOT_DATA and (self.rows > 0 or took_away or unknown)


_NOT_DATA = (
    "OPTIMIZE",
    "VACUUM START",
    "VACUUM END",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "ADD COLUMNS",
    "CHANGE COLUMN",
    "CREATE TABLE",
    "UPGRADE PROTOCOL",
    "CLUSTER BY",
)
_REMOVES = ("DELETE", "TRUNCATE", "RESTORE", "UPDATE")
_WRITES = (
    "WRITE",
    "MERGE",
    "STREAMING UPDATE",
    "CREATE TABLE AS SELECT",
    "REPLACE TABLE AS SELECT",
    "CREATE OR REPLACE TABLE AS SELECT",
)
_MEASURES = ("numOutputRows", "numAddedRows", "numTargetRowsInserted", "numAddedFiles", "numFiles")


def commit_of(entry: Mapping[str, Any]) -> Commit:
    """A commit from its entry in the log."""
    # delta-rs writes snake_case.
    metrics = {_camel(k): v for k, v in (entry.get("operationMetrics") or {}).items()}
    parameters = entry.get("operationParameters") or {}
    info = _info(entry.get("userMetadata"))
    batch = info.get("batch_id", parameters.get("epochId"))
    return Commit(
        version=int(entry["version"]),
        operation=str(entry.get("operation", "")),
        rows=_rows(metrics),
        bytes=int(metrics.get("numOutputBytes", metrics.get("numAddedBytes", 0))),
        query_id=info.get("query_id", parameters.get("queryId")),
        batch_id=None if batch is None else int(batch),
        at=datetime.fromtimestamp(int(entry.get("timestamp", 0)) / 1000, UTC),
        info=info,
        removed=_removed(metrics, str(entry.get("operation", ""))),
        measured=any(name in metrics for name in _MEASURES),
        appended=str(parameters.get("mode", parameters.get("outputMode"))).lower() == "append",
        restored=int(parameters["version"])
        if str(parameters.get("version")).isdigit() and entry.get("operation") == "RESTORE"
        else None,
    )


def _rows(metrics: Mapping[str, Any]) -> int:
    if "numTargetRowsInserted" in metrics:
        updated = int(metrics.get("numTargetRowsUpdated", 0))
        return int(metrics["numTargetRowsInserted"]) + updated
    rows = metrics.get("numOutputRows", metrics.get("numAddedRows", 0))
    return int(rows) - int(metrics.get("numCopiedRows", 0))


def _removed(metrics: Mapping[str, Any], operation: str) -> int:
    for name in ("numTargetRowsDeleted", "numDeletedRows"):
        if name in metrics:
            return int(metrics[name])
    # An overwrite, which leaves nothing of the files that it takes away.
    return int(metrics.get("numRemovedFiles", 0)) if operation == "WRITE" else 0


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _info(text: str | None) -> dict[str, Any]:
    try:
        info = json.loads(text) if text else {}
    except json.JSONDecodeError:
        return {}
    return info if isinstance(info, dict) else {}
