"""Frames that hold no rows: they note what a program's function reads, and whether it aggregates.

Whatever is called on one gives another; what needs rows, or an engine, is refused by an exception
after which the function's text is looked at instead (`reading`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafka_assets.declarations import Place
from kafka_assets.frontends.programs.columns import name_of
from kafka_assets.frontends.programs.facts import Facts, aggregated, flat, renamed
from kafka_assets.frontends.programs.unknown import refuse_unknown

if TYPE_CHECKING:
    from kafka_assets.frontends.programs.execution import Execution


class Untraceable(Exception):
    """A function wants something that only real rows have."""


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
        if name in ("columns", "dtypes", "schema"):
            return self._shape(name)
        if name == "isStreaming":
            return self._facts.streams
        if name in ("sparkSession", "sql_ctx"):
            return self._by.spark
        if name in ("na", "stat"):
            return self
        return self._method(name)

    def _shape(self, name: str) -> Any:
        """No columns; at the top of a program that would be used as if it were the truth."""
        from pyspark.sql.types import StructType

        registry = self._by.registry
        for problem in self._facts.refused:
            registry.used(problem)
        if not self._by.traces and not self._facts.refused:
            registry.problem(
                f".{name} of a frame at the top of the program is not known while it is loaded",
                "ask for it inside a table's function, or write the columns down",
            )
        return StructType([]) if name == "schema" else []

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
        refuse_unknown(self._by.registry, "a column of a table", list(given))
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
            facts = renamed(facts, facts.aggregate, name, arguments)
        for other in flat(given):
            if type(other) is Recorded:
                facts = facts.with_other(other._facts)
        return Recorded(self._by, facts)


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
