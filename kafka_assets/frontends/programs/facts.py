"""What is known of a frame that a program makes: its sources, and how its streams are aggregated.

Frozen values and pure functions on them; the frames themselves are in `recording`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kafka_assets.declarations import Place, Read
from kafka_assets.errors import Problem
from kafka_assets.frontends.programs.columns import (
    generates,
    is_column,
    is_session_window,
    name_of,
    reference_of,
    selected,
)

Kind = Literal["table", "topic", "files"]
Key = tuple[Kind, str]
"""What a topic, table or folder is known by outside of the graph: what it is, and its name."""


@dataclass(frozen=True)
class FilesRead:
    """How files are read.

    Attributes:
        format: Spark's name of their format.
        schema: Their columns as DDL, or a schema file's name; None for formats with their own.
        options: Options of Spark's reader, without limits.
        limits: How much a batch of a stream reads; no other reading has one.
    """

    format: str
    schema: str | None
    options: tuple[tuple[str, str], ...]
    limits: tuple[tuple[str, str], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Source:
    """A topic, table or folder of files that a program reads.

    Attributes:
        name: The topic's name at the broker, the table's as written, or the folder's path.
        kind: Which of the three.
        how: How it is read.
        place: Where.
        headers: Of a topic: whether the headers are asked for.
        most: Of a topic: most records of a batch.
        files: Of a folder: how its files are read; None when its path is not known.
    """

    name: str
    kind: Kind
    how: Read
    place: Place
    headers: bool = False
    most: int | None = None
    files: FilesRead | None = None

    @property
    def key(self) -> Key:
        """What it is known by outside of the graph."""
        return (self.kind, self.name)


@dataclass(frozen=True)
class Aggregate:
    """That a stream was aggregated.

    Attributes:
        place: Where it is grouped.
        keys: The result's columns that say which row is meant; None when they are not known.
        bounded: By a watermark, so that a row is given once, when it is final.
        session: By session windows, which cannot be updated.
        after: The step after it by which rows can vanish or double, so that keys are not enough.
    """

    place: Place
    keys: tuple[str, ...] | None
    bounded: bool
    session: bool = False
    after: str = ""


@dataclass(frozen=True)
class Facts:
    """What is known of a recording frame.

    Attributes:
        sources: What it was read from.
        streams: Whether it is a stream.
        watermark: The column that has a watermark, or nothing.
        aggregate: How a stream was aggregated.
        refused: Why it cannot be read, of one that stands at the top of the program: it matters
            only when a table uses it.
    """

    sources: tuple[Source, ...] = ()
    streams: bool = False
    watermark: str = ""
    aggregate: Aggregate | None = None
    refused: tuple[Problem, ...] = ()

    def with_other(self, other: Facts) -> Facts:
        """Of a frame that is made from two: which rows an aggregate's are in it is not known."""
        aggregates = [one for one in (self.aggregate, other.aggregate) if one is not None]
        aggregates.sort(key=lambda one: one.bounded)
        aggregate = _lost(aggregates[0], aggregates[0].after) if aggregates else None
        return Facts(
            sources=tuple(dict.fromkeys((*self.sources, *other.sources))),
            streams=self.streams or other.streams,
            watermark=self.watermark or other.watermark,
            aggregate=aggregate,
            refused=tuple(dict.fromkeys((*self.refused, *other.refused))),
        )


def aggregated(
    facts: Facts, keys: tuple[str, ...] | None, place: Place, groups: tuple[Any, ...]
) -> Facts:
    """The facts after grouping; of frames that are no streams, it does not matter.

    Args:
        facts: Those before.
        keys: Names of the grouping's columns.
        place: Where it is grouped.
        groups: What it is grouped by; event time with a watermark makes a row final.
    """
    if not facts.streams:
        return facts
    by_time = any("window" in repr(g) or name_of(g) == facts.watermark for g in groups)
    session = any(is_session_window(group) for group in groups)
    bounded = bool(facts.watermark) and by_time
    if facts.aggregate is not None and not facts.aggregate.bounded:
        # Rows of it are corrected later, and what was made of them would have to be taken back.
        keys, bounded = None, False
    return replace(facts, aggregate=Aggregate(place, keys, bounded, session))


def flat(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments, lists of them opened."""
    found: list[Any] = []
    for one in given:
        found.extend(one) if isinstance(one, list | tuple) else found.append(one)
    return tuple(found)


def renamed(facts: Facts, aggregate: Aggregate, name: str, arguments: tuple[Any, ...]) -> Facts:
    """Follow the names of an aggregate's keys through what is done after it.

    A row that is corrected takes the place of the one with its keys. After a step that may drop a
    row, or make two of one, the old one would stay for ever: then no keys are known.
    """
    keys = aggregate.keys
    if keys is None:
        return facts
    follow = _KEEPS.get(name)
    known = None if follow is None else follow(keys, arguments)
    if known is None:
        return replace(facts, aggregate=_lost(aggregate, f".{name}()"))
    return replace(facts, aggregate=replace(aggregate, keys=known))


def _lost(aggregate: Aggregate, after: str) -> Aggregate:
    return replace(aggregate, keys=None, after=after)


_Keys = tuple[str, ...]


def _all(keys: _Keys, arguments: tuple[Any, ...]) -> _Keys | None:
    del arguments
    return keys


def _with_column(keys: _Keys, arguments: tuple[Any, ...]) -> _Keys | None:
    return _with_columns(keys, (dict([arguments]),)) if len(arguments) == 2 else None


def _with_columns(keys: _Keys, arguments: tuple[Any, ...]) -> _Keys | None:
    if len(arguments) != 1 or any(map(generates, arguments[0].values())):
        return None
    return None if _lower(keys) & _lower(arguments[0]) else keys


def _with_column_renamed(keys: _Keys, arguments: tuple[Any, ...]) -> _Keys | None:
    return _with_columns_renamed(keys, (dict([arguments]),)) if len(arguments) == 2 else None


def _with_columns_renamed(keys: _Keys, arguments: tuple[Any, ...]) -> _Keys | None:
    if len(arguments) != 1:
        return None
    new = {old.lower(): name for old, name in arguments[0].items()}
    return tuple(new.get(key.lower(), key) for key in keys)


def _without(keys: _Keys, arguments: tuple[Any, ...]) -> _Keys | None:
    dropped = [one if isinstance(one, str) else reference_of(one) for one in flat(arguments)]
    known = [one for one in dropped if one is not None]
    return None if len(known) < len(dropped) or _lower(keys) & _lower(known) else keys


def _select(keys: _Keys, arguments: tuple[Any, ...]) -> _Keys | None:
    columns = flat(arguments)
    if any(generates(one) for one in columns if is_column(one)):
        return None
    return _selected(keys, [(reference_of(one), name_of(one)) for one in columns])


def _select_expr(keys: _Keys, arguments: tuple[Any, ...]) -> _Keys | None:
    texts = [str(one) for one in flat(arguments)]
    return None if any(map(generates, texts)) else _selected(keys, list(map(selected, texts)))


def _selected(keys: _Keys, pairs: list[tuple[str | None, str | None]]) -> _Keys | None:
    """The names under which keys are selected; a window is known by its start or its end."""
    found: list[str] = []
    for key in keys:
        wanted = [key.lower(), f"{key}.start".lower(), f"{key}.end".lower()]
        for one in wanted:
            names = [new for old, new in pairs if old is not None and old.lower() == one and new]
            if names:
                found.append(names[0])
                break
        else:
            if not any(old == "*" for old, _ in pairs):
                return None
            found.append(key)
    return tuple(found)


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


_KEEPS: dict[str, Callable[[_Keys, tuple[Any, ...]], _Keys | None]] = {
    "alias": _all,
    "coalesce": _all,
    "repartition": _all,
    "drop": _without,
    "select": _select,
    "selectExpr": _select_expr,
    "withColumn": _with_column,
    "withColumnRenamed": _with_column_renamed,
    "withColumns": _with_columns,
    "withColumnsRenamed": _with_columns_renamed,
}
"""Steps that leave each row what it was, and what becomes of the keys' names by them."""
