"""Files as a source: the frame that a table gets, and what a folder holds now.

Which of the files a stream has read stands in its checkpoint, and is Spark's business. What rows
mean is the reading table's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from upath import UPath

from kafka_assets.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafka_assets.graph import Files

KEPT = {
    # A row that does not fit is kept as text beside its nulls, and never dropped.
    "mode": "PERMISSIVE",
    # Spark passes over files that are a week older than the newest one that it has seen.
    "maxFileAge": "36500d",
    "latestFirst": "false",
    "cleanSource": "off",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
"""What is set for every file source, so that none of its rows is passed over in silence."""

_CSV = {
    # Else columns are taken by their place, whatever the header says.
    "enforceSchema": "false",
    # Else a row that is cut short is only seen when its last columns are asked for.
    "columnPruning": "false",
}


@dataclass(frozen=True)
class FolderState:
    """What a folder holds now.

    Attributes:
        files: How many files.
        bytes: Their size together.
        newest: When the newest was changed, in seconds since 1970-01-01 UTC; 0 when not known.
        version: Changes when a file appears, changes or goes.
    """

    files: int
    bytes: int
    newest: float
    version: str


def read_stream(session: SparkSession, source: Files) -> DataFrame:
    """The stream of a source's rows, from its first file on.

    Args:
        session: Where it is read.
        source: The source.
    """
    frame: DataFrame = _reader(session.readStream, source).load(source.path)
    return frame


def read_all(session: SparkSession, source: Files) -> DataFrame:
    """The rows of all files that a source's folder holds now.

    Args:
        session: Where they are read.
        source: The source.
    """
    frame: DataFrame = _reader(session.read, source).load(source.path)
    return frame


def empty_frame(session: SparkSession, source: Files) -> DataFrame:
    """A frame without rows that has the columns of the source, the hidden ones too.

    Args:
        session: Any session; nothing is listed or read.
        source: The source.
    """
    frame: DataFrame = _reader(session.read, source).load([])
    return frame


def require(source: Files, table: str) -> None:
    """Refuse a folder that is not there.

    Args:
        source: The source.
        table: The table that reads it, for the message.

    Raises:
        SourceError: There is no such folder, or it cannot be looked at.
    """
    try:
        folder = UPath(source.path)
        fs, path = folder.fs, folder.path
        # A pattern may match nothing yet.
        there = _is_pattern(path) or fs.exists(path)
    except (OSError, ValueError, ImportError) as error:
        raise _unreachable(source, error) from error
    if not there:
        raise SourceError(
            f"table {table!r} reads the files {source.name!r} at {source.path}, and there is no "
            "such folder; nothing was read",
            fix="create it, or correct path=",
        )


def gone(paths: Iterable[str]) -> list[str]:
    """Those of these files that are not there any more, in order.

    Each is asked for by itself, as they may lie in folders without end; so many at a time, as an
    object store takes its time for each.
    """
    asked = sorted(paths)
    with ThreadPoolExecutor(max_workers=16) as pool:
        there = list(pool.map(lambda path: bool(UPath(path).exists()), asked))
    return [path for path, is_there in zip(asked, there, strict=True) if not is_there]


def state_of(source: Files) -> FolderState:
    """What a folder holds now, by its listing alone.

    Raises:
        SourceError: It cannot be listed.
    """
    try:
        folder = UPath(source.path)
        fs, path = folder.fs, folder.path
        found = fs.glob(path, detail=True) if _is_pattern(path) else {path: None}
        listed: dict[str, Any] = {}
        for at, about in found.items():
            if about is not None and about["type"] == "file":
                listed[at] = about
            elif fs.exists(at):
                listed |= fs.find(at, detail=True)
    except (OSError, ValueError, ImportError) as error:
        raise _unreachable(source, error) from error
    lines = sorted(
        f"{at} {about.get('size')} {about.get('mtime') or about.get('LastModified')}"
        for at, about in listed.items()
        if not _hidden(at, path)
    )
    times = [t for a in listed.values() if isinstance(t := a.get("mtime"), int | float)]
    return FolderState(
        files=len(lines),
        bytes=sum(int(about.get("size") or 0) for about in listed.values()),
        newest=max(times, default=0.0),
        version=hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16],
    )


def _is_pattern(path: str) -> bool:
    return any(character in path for character in "*?[{")


def _unreachable(source: Files, error: Exception) -> SourceError:
    return SourceError(
        f"the folder of the file source {source.name!r}, {source.path}, cannot be listed: "
        f"{type(error).__name__} {error}",
        fix="correct path=, or give this process access to it",
    )


def _hidden(file: str, folder: str) -> bool:
    """Whether Spark passes over a file: its name, or a folder's in between, begins with _ or ."""
    inside = file.removeprefix(folder)
    return any(part[:1] in ("_", ".") for part in inside.split("/"))


def _reader(reader: Any, source: Files) -> Any:
    declaration = source.declaration
    more = _CSV if declaration.format == "csv" else {}
    options = {**more, **declaration.options, **KEPT}
    if source.rescues:
        options["columnNameOfCorruptRecord"] = source.schema.names[-1]
    reader = reader.format(declaration.format).options(**options)
    return reader.schema(source.schema)
