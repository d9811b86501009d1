"""A stream's checkpoint as files: which query it is, and how far it came.

Reads what Spark writes there, and keeps one record of our own beside it that ties the checkpoint
to its table and sources. What a state means is `fence`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from upath import UPath

RECORD = "kafka_assets.json"


@dataclass(frozen=True)
class Checkpoint:
    """How far a stream came.

    Attributes:
        path: Where the checkpoint lies.
        query_id: The query's id; None when the checkpoint does not exist yet.
        last_offsets: Number of the last batch that was begun, or -1.
        last_commit: Number of the last batch that was finished, or -1.
        record: What this checkpoint was made for: table id and source ids.
    """

    path: str
    query_id: str | None
    last_offsets: int
    last_commit: int
    record: Mapping[str, Any]

    @classmethod
    def read(cls, path: str) -> Checkpoint:
        """Read a checkpoint, also one that does not exist.

        Raises:
            ValueError: A file of it is damaged; names the file.
        """
        root = UPath(path)
        metadata = _json(root / "metadata")
        return cls(
            path=path,
            query_id=None if metadata is None else str(metadata["id"]),
            last_offsets=_last(root / "offsets"),
            last_commit=_last(root / "commits"),
            record=_json(root / RECORD) or {},
        )

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Keep what this checkpoint is for, beside it."""
        root = UPath(self.path)
        root.mkdir(parents=True, exist_ok=True)
        (root / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")

    def end_offsets(self, batch_id: int) -> list[Any]:
        """End offsets of a batch, one parsed value for each source; empty when not there.

        Raises:
            ValueError: The file is damaged.
        """
        file = UPath(self.path) / "offsets" / str(batch_id)
        if not file.exists():
            return []
        lines = file.read_text(encoding="utf-8").splitlines()
        if len(lines) < 3:
            raise ValueError(f"{file} is incomplete: it has {len(lines)} lines instead of 3")
        return [json.loads(line) for line in lines[2:]]

    def first_offsets(self, source: int = 0) -> Any:
        """The offsets that a source began at, as it wrote them down; None when it did not."""
        file = UPath(self.path) / "sources" / str(source) / "0"
        if not file.exists():
            return None
        text = file.read_text(encoding="utf-8")
        return json.loads(text[text.index("{") :]) if "{" in text else None


def _last(folder: UPath) -> int:
    if not folder.exists():
        return -1
    return max((int(f.name) for f in folder.iterdir() if f.name.isdigit()), default=-1)


def _json(file: UPath) -> dict[str, Any] | None:
    if not file.exists():
        return None
    text = file.read_text(encoding="utf-8")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is damaged: {error.msg}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{file} is damaged: no JSON object")
    return value
