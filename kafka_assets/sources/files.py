"""Files as a source: the frame that a table gets, and what a folder holds now.

Which of the files a stream has read stands in its checkpoint, and is Spark's business. What rows
mean is the reading table's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
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
    from pyspark.errors import AnalysisException

    try:
        frame: DataFrame = _reader(session.read, source).load(source.path)
        # Spark Connect looks for the files when it is asked for the columns.
        frame.schema  # noqa: B018
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND" or not _is_pattern(source.path):
            raise
        # A pattern may match nothing yet.
        return empty_frame(session, source)
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


def fixed_part(source: Files) -> str:
    """What the paths of all files of a source have in common, without the scheme."""
    return re.split(r"[*?\[{]", source.path.split("://")[-1])[0].rstrip("/")


def state_of(source: Files) -> FolderState:
    """What a folder holds now, by its listing alone.

    Raises:
        SourceError: It cannot be listed.
    """
    try:
        folder = UPath(source.path)
        fs, path = folder.fs, folder.path
        listed: dict[str, Any] = {}
        for pattern in _alternatives(path):
            for root in fs.glob(pattern) if _is_pattern(pattern) else [pattern]:
                if fs.exists(root):
                    listed |= _below(fs, root)
    except (OSError, ValueError, ImportError) as error:
        raise _unreachable(source, error) from error
    lines = sorted(f"{at} {about.get('size')} {_state(about)}" for at, about in listed.items())
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


def _alternatives(pattern: str) -> list[str]:
    """What a pattern stands for without its braces: `{a,b}` is `a` or `b`."""
    inner = re.search(r"\{([^{}]*)\}", pattern)
    if inner is None:
        return [pattern]
    before, after = pattern[: inner.start()], pattern[inner.end() :]
    return [one for part in inner[1].split(",") for one in _alternatives(before + part + after)]


def _below(fs: Any, root: str) -> dict[str, Any]:
    """The files that Spark reads of a folder, or a file that is named itself."""
    found: dict[str, Any] = fs.find(root, detail=True)
    return {
        at: about
        for at, about in found.items()
        if not any(_is_hidden(part) for part in _names(at, root))
    }


def _names(file: str, root: str) -> list[str]:
    """A file's name and those of its folders below a root, which itself may have any name."""
    return file.removeprefix(root).split("/") if file != root else [file.split("/")[-1]]


def _is_hidden(name: str) -> bool:
    """Whether Spark passes over a file or folder of this name (its `HadoopFSUtils`)."""
    if name.startswith(("_common_metadata", "_metadata")):
        return False
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return hidden or name.endswith("._COPYING_")


def _state(about: Mapping[str, Any]) -> str:
    """What changes when a file is written anew, as file systems name it."""
    names = ("mtime", "LastModified", "last_modified", "updated", "ETag", "etag")
    return " ".join(str(about[name]) for name in names if about.get(name))


def _reader(reader: Any, source: Files) -> Any:
    declaration = source.declaration
    more = _CSV if declaration.format == "csv" else {}
    options = {**more, **declaration.options, **KEPT}
    if source.rescues:
        options["columnNameOfCorruptRecord"] = source.schema.names[-1]
    reader = reader.format(declaration.format).options(**options)
    return reader.schema(source.schema)
