"""Frames that hold no rows: they note what a program's function reads, and whether it aggregates.

Whatever is called on one gives another; what needs rows, or an engine, is refused by an exception
after which the function's text is looked at instead (`reading`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_assets.declarations import Place, Read
from kafka_assets.frontends.programs.columns import (
    is_column,
    is_session_window,
    name_of,
    reference_of,
)

if TYPE_CHECKING:
    from kafka_assets.frontends.programs.execution import Execution

SECRET = "[secret of dbutils]"  # noqa: S105
"""Stands in a program for a secret that it asked dbutils for."""


class Untraceable(Exception):
    """A function wants something that only real rows have."""


@dataclass(frozen=True)
class Source:
    """A topic or table that a program reads.

    Attributes:
        name: The topic's name at the broker, or the table's as written.
        is_topic: Which of the two.
        how: How it is read.
        place: Where.
        headers: Of a topic: whether the headers are asked for.
        most: Of a topic: most records of a batch.
    """

    name: str
    is_topic: bool
    how: Read
    place: Place
    headers: bool = False
    most: int | None = None


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
    """What is known of a recording frame."""

    sources: tuple[Source, ...] = ()
    streams: bool = False
    watermark: str = ""
    aggregate: Aggregate | None = None

    def with_other(self, other: Facts) -> Facts:
        """Of a frame that is made from two."""
        return Facts(
            sources=tuple(dict.fromkeys((*self.sources, *other.sources))),
            streams=self.streams or other.streams,
            watermark=self.watermark or other.watermark,
            aggregate=self.aggregate or other.aggregate,
        )


_ACTIONS = (
    *("collect", "count", "first", "head", "take", "tail", "toPandas", "toArrow", "isEmpty"),
    *("toLocalIterator", "show", "foreach", "foreachPartition", "describe", "summary", "rdd"),
    *("approxQuantile", "corr", "cov", "toJSON", "pandas_api", "explain", "printSchema"),
)
_INNER = ("_jdf", "_sc", "_session", "_plan")
_WRITES = ("write", "writeStream", "writeTo", "mergeInto")
_GROUPINGS = ("groupBy", "groupby", "rollup", "cube", "groupingSets")


class Recorded:
    """A frame without rows."""

    def __init__(self, by: Execution, facts: Facts) -> None:
        self._by = by
        self._facts = facts

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # Spark's own helpers, such as broadcast(), ask for a DataFrame of Spark Connect.
        from pyspark.sql.connect.dataframe import DataFrame

        return DataFrame

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _WRITES:
            self._by.registry.problem(
                f".{name} writes by itself",
                "let a table's function return the frame, or an append_flow feed a sink",
            )
            return Nothing()
        if name in _ACTIONS or name in _INNER:
            raise Untraceable(f".{name} needs rows")
        if name in ("columns", "dtypes"):
            return []
        if name == "schema":
            from pyspark.sql.types import StructType

            return StructType([])
        if name == "isStreaming":
            return self._facts.streams
        if name in ("sparkSession", "sql_ctx"):
            return self._by.spark
        if name in ("na", "stat"):
            return self
        return self._method(name)

    def _method(self, name: str) -> Any:
        from pyspark.sql import DataFrame, functions

        if not hasattr(DataFrame, name) and name not in ("fill", "replace"):
            return functions.col(name)

        def call(*arguments: Any, **named: Any) -> Any:
            return self._called(name, arguments, named)

        return call

    def __getitem__(self, item: Any) -> Any:
        from pyspark.sql import functions

        return functions.col(item) if isinstance(item, str) else self

    def _called(self, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        given = (*arguments, *named.values())
        self._refuse_secrets(given)
        if name == "transform":
            function, *rest = arguments
            return function(self, *rest, **named)
        if name in _GROUPINGS:
            return Grouped(self._by, self._facts, flat(arguments), self._by.registry.place())
        if name in ("createOrReplaceTempView", "createTempView", "createGlobalTempView"):
            self._by.keep_view(str(given[0]), self)
            return None
        facts = self._facts
        if name == "withWatermark":
            facts = replace(facts, watermark=str(given[0]))
        elif name == "agg":
            facts = aggregated(facts, (), self._by.registry.place(), ())
        elif facts.aggregate is not None:
            facts = _renamed(facts, facts.aggregate, name, arguments)
        for other in flat(given):
            if type(other) is Recorded:
                facts = facts.with_other(other._facts)
        return Recorded(self._by, facts)

    def _refuse_secrets(self, given: tuple[Any, ...]) -> None:
        if any(
            SECRET in repr(one) for one in flat(given) if isinstance(one, str) or is_column(one)
        ):
            self._by.registry.problem(
                "a secret of dbutils is used in a table's columns",
                'give its value: conf={"<scope>/<key>": ...}',
            )


class Grouped:
    """A grouped recording frame."""

    def __init__(self, by: Execution, facts: Facts, groups: tuple[Any, ...], place: Place) -> None:
        self._by, self._facts, self._groups, self._place = by, facts, groups, place

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments: Any, **named: Any) -> Any:
            if name == "pivot":
                return self
            if name in ("applyInPandasWithState", "transformWithStateInPandas"):
                # It says itself when a row is given.
                mode = named.get("outputMode") or next(
                    (a for a in arguments if a in ("append", "update", "Append", "Update")), ""
                )
                if str(mode).lower() == "append":
                    return Recorded(self._by, self._facts)
                return Recorded(self._by, aggregated(self._facts, None, self._place, ()))
            keys = [name_of(group) for group in self._groups]
            known = tuple(key for key in keys if key is not None)
            facts = aggregated(
                self._facts,
                known if len(known) == len(keys) else None,
                self._place,
                self._groups,
            )
            return Recorded(self._by, facts)

        return call


class Nothing:
    """What is given in place of something refused, so that the rest is looked at too."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Do nothing; as a decorator it leaves the function alone."""
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else self


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


def _renamed(facts: Facts, aggregate: Aggregate, name: str, arguments: tuple[Any, ...]) -> Facts:
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
