"""A stream's checkpoint as files: which query it is, and how far it came.

Reads what Spark writes there, writes it in the same form for repairs, and keeps one record of our
own beside it that ties the checkpoint to its table and sources. What a state means is `fence`'s,
what is repaired when is `operations.repair`'s.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from upath import UPath

RECORD = "kafka_assets.json"
FILES_SEEN = "kafka_assets.files.json"
NOTHING_YET = "-"
"""What Spark writes for a source that has no offset."""

_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Checkpoint:
    """How far a stream came.

    Attributes:
        path: Where the checkpoint lies.
        query_id: The query's id; None when the checkpoint does not exist yet.
        last_offsets: Number of the last batch that was begun, or -1.
        last_commit: Number of the last batch that was finished, or -1.
        record: What this checkpoint was made for: table id and source ids.
        files_seen: Up to where the files of its sources are known to have been there when they
            were read: see `file_positions`; None when nothing was noted.
    """

    path: str
    query_id: str | None
    last_offsets: int
    last_commit: int
    record: Mapping[str, Any]
    files_seen: Mapping[str, int] | None = None

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
            last_offsets=max(_batches(root / "offsets"), default=-1),
            last_commit=max(_batches(root / "commits"), default=-1),
            record=_json(root / RECORD) or {},
            files_seen=_files_seen(root),
        )

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Keep what this checkpoint is for, beside it."""
        root = UPath(self.path)
        root.mkdir(parents=True, exist_ok=True)
        _write_whole(root / RECORD, json.dumps(record, indent=1))

    def write_files_seen(self, positions: Mapping[str, int]) -> None:
        """Note up to where files are known to have been there; see `file_positions`."""
        if positions == self.files_seen:
            return
        root = UPath(self.path)
        root.mkdir(parents=True, exist_ok=True)
        _write_whole(root / FILES_SEEN, json.dumps(dict(positions)))

    def end_offsets(self, batch_id: int) -> list[Any]:
        """End offsets of a batch, one parsed value for each source; empty when not there.

        The value of a source that had nothing yet is empty too.

        Raises:
            ValueError: The file is damaged.
        """
        file = UPath(self.path) / "offsets" / str(batch_id)
        if not file.exists():
            return []
        lines = file.read_text(encoding="utf-8").splitlines()
        if len(lines) < 3:
            raise ValueError(f"{file} is incomplete: it has {len(lines)} lines instead of 3")
        return [{} if line == NOTHING_YET else json.loads(line) for line in lines[2:]]

    def position(
        self, batch_id: int, *, topic: str | None = None, table_id: str | None = None
    ) -> dict[str, Any] | None:
        """Where a batch of one source ends: a topic by its name, a table by its id.

        Returns:
            Partition -> offset for a topic, Delta's offset for a table; None when the batch or the
            source is not there.
        """
        for offset in self.end_offsets(batch_id):
            if topic is not None and topic in offset:
                return dict(offset[topic])
            if table_id is not None and offset.get("reservoirId") == table_id:
                return dict(offset)
        return None

    def is_whole(self, log: str, batch_id: int) -> bool:
        """Whether a batch's file of a log (`offsets` or `commits`) can be read by Spark.

        A power loss leaves files behind that are empty or end early.
        """
        file = self.file(log, batch_id)
        if not file.exists():
            return False
        lines = file.read_text(encoding="utf-8").splitlines()
        if len(lines) < (3 if log == "offsets" else 2) or not lines[0].startswith("v"):
            return False
        try:
            for line in lines[1:]:
                if line != NOTHING_YET:
                    json.loads(line)
        except json.JSONDecodeError:
            return False
        return True

    def file(self, log: str, batch_id: int) -> UPath:
        """Where a batch's file of a log (`offsets` or `commits`) lies."""
        return UPath(self.path) / log / str(batch_id)

    def batches(self, log: str) -> list[int]:
        """The batches that have a file in a log (`offsets` or `commits`), in order."""
        return _batches(UPath(self.path) / log)

    def set_aside(self, log: str, batch_id: int) -> str:
        """Move a batch's file out of its log, where Spark does not see it; gives its new name."""
        file = self.file(log, batch_id)
        kept = UPath(self.path) / f"set-aside-{log}-{batch_id}-{int(time.time() * 1000)}"
        kept.write_bytes(file.read_bytes())
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        return str(kept)

    def write_offsets(self, batch_id: int, offsets: Sequence[Any]) -> None:
        """Write down a batch as begun, in Spark's form.

        Args:
            batch_id: The batch.
            offsets: Its end offsets, one value for each source; empty where it has nothing yet.
        """
        now = int(time.time() * 1000)
        about = {"batchWatermarkMs": 0, "batchTimestampMs": now, "conf": {}}
        before = self.file("offsets", batch_id - 1)
        if before.exists():
            about = {
                **json.loads(before.read_text(encoding="utf-8").splitlines()[1]),
                "batchTimestampMs": now,
            }
        ends = [json.dumps(offset) if offset else NOTHING_YET for offset in offsets]
        lines = ["v1", json.dumps(about), *ends]
        self._write("offsets", batch_id, lines)

    def write_commit(self, batch_id: int) -> None:
        """Write down a batch as finished, in Spark's form."""
        before = self.file("commits", batch_id - 1)
        lines = ["v1", '{"nextBatchWatermarkMs":0}']
        if before.exists():
            lines = before.read_text(encoding="utf-8").splitlines()
        self._write("commits", batch_id, lines)

    def create(self) -> Checkpoint:
        """Write down the query, a new one if it has no id, and give the checkpoint back with it."""
        root = UPath(self.path)
        root.mkdir(parents=True, exist_ok=True)
        (root / ".metadata.crc").unlink(missing_ok=True)
        _write_whole(root / "metadata", json.dumps({"id": self.query_id or str(uuid.uuid4())}))
        return Checkpoint.read(self.path)

    def _write(self, log: str, batch_id: int, lines: Sequence[str]) -> None:
        file = self.file(log, batch_id)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        _write_whole(file, "\n".join(lines))

    def first_offsets(self, topic: str) -> dict[str, int] | None:
        """The offsets that a topic was begun at, as its source wrote them down; None when not."""
        sources = UPath(self.path) / "sources"
        for folder in sources.iterdir() if sources.exists() else ():
            file = folder / "0"
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            # A source that reads files lists them here, line by line.
            first = _DECODER.raw_decode(text, text.index("{"))[0] if "{" in text else {}
            if isinstance(first.get(topic), dict):
                return dict(first[topic])
        return None

    def file_positions(self, batch_id: int) -> dict[str, int]:
        """Where a batch ends in the logs of the sources that read files: number -> place.

        Args:
            batch_id: The batch; the newest hundred are there. None of them for -1.
        """
        ends = self.end_offsets(batch_id) if batch_id >= 0 else []
        return {
            str(number): int(end["logOffset"])
            for number, end in enumerate(ends)
            if isinstance(end, dict) and "logOffset" in end
        }

    def files_read(self, after: Mapping[str, int] | None = None) -> set[str]:
        """The files that batches of this checkpoint are made from, as Spark's sources wrote them.

        Args:
            after: Only those after these places, also of a batch that has not begun yet.

        Raises:
            ValueError: A source's log is damaged.
        """
        found: set[str] = set()
        sources = UPath(self.path) / "sources"
        for folder in sources.iterdir() if sources.exists() else ():
            done = (after or {}).get(folder.name, -1)
            for log in folder.iterdir():
                name = log.name.removesuffix(".compact")
                if name.isdigit() and int(name) > done:
                    found |= _paths_in(log, done)
        return found


def _files_seen(root: UPath) -> Mapping[str, int] | None:
    try:
        return _json(root / FILES_SEEN)
    except ValueError:
        # A power loss tore it. It is a note, and made anew from the offsets.
        return None


def _paths_in(log: UPath, done: int) -> set[str]:
    lines = log.read_text(encoding="utf-8").splitlines()[1:]
    try:
        entries = [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise ValueError(f"{log} is damaged: {error.msg}") from None
    # A topic may be named "path": then it is one of Kafka's sources, whose partitions these are.
    read = [e for e in entries if isinstance(e.get("path"), str)]
    return {unquote(e["path"]) for e in read if e.get("batchId", 0) > done}


def _write_whole(file: UPath, text: str) -> None:
    """Write a file whole or not at all; while it is written it has a name that nobody reads."""
    draft = file.with_name(f".{file.name}.draft")
    draft.write_text(text, encoding="utf-8")
    file.fs.mv(draft.path, file.path)


def _batches(folder: UPath) -> list[int]:
    if not folder.exists():
        return []
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())


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
