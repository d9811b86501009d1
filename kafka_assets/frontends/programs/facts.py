"""What is known of a frame that a program makes: its sources, and how its streams are aggregated.

Frozen values and pure functions on them; the frames themselves are in `recording`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kafka_assets.declarations import Place, Read
from kafka_assets.errors import Problem
from kafka_assets.frontends.programs.columns import is_session_window, name_of, reference_of

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
    """

    place: Place
    keys: tuple[str, ...] | None
    bounded: bool
    session: bool = False


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
        """Of a frame that is made from two."""
        return Facts(
            sources=tuple(dict.fromkeys((*self.sources, *other.sources))),
            streams=self.streams or other.streams,
            watermark=self.watermark or other.watermark,
            aggregate=self.aggregate or other.aggregate,
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
    return replace(facts, aggregate=Aggregate(place, keys, bounded, session))


def flat(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments, lists of them opened."""
    found: list[Any] = []
    for one in given:
        found.extend(one) if isinstance(one, list | tuple) else found.append(one)
    return tuple(found)


def renamed(facts: Facts, aggregate: Aggregate, name: str, arguments: tuple[Any, ...]) -> Facts:
    """Follow the names of an aggregate's keys through what is done after it."""
    keys = aggregate.keys
    if keys is None:
        return facts
    if name == "withColumnRenamed" and len(arguments) == 2:
        old, new = arguments
        keys = tuple(new if key == old else key for key in keys)
    elif name == "withColumnsRenamed" and arguments:
        keys = tuple(arguments[0].get(key, key) for key in keys)
    elif name == "drop" and set(keys) & {str(one) for one in arguments}:
        return replace(facts, aggregate=replace(aggregate, keys=None))
    elif name == "select":
        found = [_selected(key, flat(arguments)) for key in keys]
        known = tuple(one for one in found if one is not None)
        keys = known if len(known) == len(found) else None
    return replace(facts, aggregate=replace(aggregate, keys=keys))


def _selected(key: str, selected: tuple[Any, ...]) -> str | None:
    """The name under which a key is selected; a window is known by its start or its end."""
    if any(isinstance(one, str) and one == "*" for one in selected):
        return key
    for wanted in (key, f"{key}.start", f"{key}.end"):
        for one in selected:
            if reference_of(one) == wanted:
                return name_of(one)
    return None
