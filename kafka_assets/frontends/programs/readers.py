"""The stand-ins for `spark.read` and `spark.readStream`: which source or table is read, and how."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from kafka_assets.declarations import Place, Read
from kafka_assets.frontends.programs.asked import Asked
from kafka_assets.frontends.programs.execution import Execution
from kafka_assets.frontends.programs.facts import Facts, Source
from kafka_assets.frontends.programs.recording import Recorded
from kafka_assets.frontends.programs.sources import source_of

FORMATS = ("json", "csv", "parquet", "orc", "text", "xml", "jdbc")
"""Formats that are a word of a reader, `spark.read.json(path)`."""

_LIMITS = ("maxfilespertrigger", "maxbytespertrigger", "skipchangecommits", "ignorechanges")


class Reader:
    """`spark.read` or `spark.readStream`."""

    def __init__(self, by: Execution, streaming: bool) -> None:
        self._by, self._streaming = by, streaming
        self._format = "delta"
        self._schema: Any = None
        self._options: dict[str, Any] = {}

    def format(self, source: str) -> Reader:
        """Which source."""
        self._format = source
        return self

    def option(self, key: str, value: Any) -> Reader:
        """One option."""
        self._options[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **named: Any) -> Reader:
        """Several options."""
        for name, value in named.items():
            self.option(name, value)
        return self

    def schema(self, schema: Any) -> Reader:
        """The columns."""
        self._schema = schema
        return self

    def load(self, *arguments: Any, **named: Any) -> Any:
        """The frame of a source."""
        return self._loaded("load", arguments, named)

    def table(self, tableName: str) -> Any:  # noqa: N803
        """The frame of a table."""
        place = self._by.registry.place()
        view = self._view(tableName)
        return self._by.read(self._table(tableName, place)) if view is None else view

    def source(
        self, word: str, arguments: tuple[Any, ...], named: Mapping[str, Any], place: Place
    ) -> Source | None:
        """What a call that ends a reader reads; None when it was refused.

        Args:
            word: `load`, or one of `FORMATS`.
            arguments: What stands in the call.
            named: What stands in it by name.
            place: Where it stands.
        """
        asked = self._asked(word, arguments, named, place)
        if asked.format.lower() == "delta" and isinstance(asked.path, list | tuple):
            self._by.registry.problem(
                f"reads {len(asked.path)} Delta tables at once", "read each by itself", place
            )
            return None
        if asked.format.lower() == "delta":
            return self._table(str(asked.path or ""), place)
        return source_of(self._by.registry, asked)

    def _asked(
        self, word: str, arguments: tuple[Any, ...], named: Mapping[str, Any], place: Place
    ) -> Asked:
        from pyspark.sql import DataFrameReader
        from pyspark.sql.streaming import DataStreamReader

        given: dict[str, Any] = {}
        if word != "jdbc":
            reader = DataStreamReader if self._streaming else DataFrameReader
            bound = inspect.signature(getattr(reader, word)).bind(self, *arguments, **named)
            given = {name: value for name, value in bound.arguments.items() if value is not None}
            del given["self"]
        path, kind = given.pop("paths", given.pop("path", None)), given.pop("format", None)
        if isinstance(path, list | tuple) and len(path) == 1:
            (path,) = path
        self._schema = given.pop("schema", self._schema)
        self.options(**given.pop("options", {}), **given)
        options = {k: v for k, v in self._options.items() if k.lower() != "path"}
        said = next((v for k, v in self._options.items() if k.lower() == "path"), None)
        return Asked(
            format=str(kind or (self._format if word == "load" else word)),
            path=said if path is None else path,
            schema=self._schema,
            options=options,
            streaming=self._streaming,
            place=place,
        )

    def _loaded(self, word: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        registry = self._by.registry
        before = len(registry.problems)
        source = self.source(word, arguments, named, registry.place())
        if source is not None:
            return self._by.read(source)
        refused = () if self._by.traces else tuple(registry.problems[before:])
        if refused:
            del registry.problems[before:]
            registry.refused_at_top.extend(refused)
        return Recorded(self._by, Facts(streams=self._streaming, refused=refused))

    def _view(self, name: str) -> Any:
        """The temporary view of this name that the function has made; None when there is none."""
        views = self._by.traces[-1].views if self._by.traces else {}
        if name.lower() in views:
            return views[name.lower()]
        if self._by.running is not None and self._by.has_view(name):
            return self._by.running.session.table(name)
        return None

    def _table(self, name: str, place: Place) -> Source:
        how: Read = "stream" if self._streaming else "static"
        for option, value in self._options.items():
            low = option.lower()
            if low in ("readchangefeed", "readchangedata") and self._streaming:
                how = "changes" if value == "true" else how
            elif low in _LIMITS:
                self._by.registry.note(f"{option}={value!r} is not needed here", place)
            elif low != "path":
                self._by.registry.problem(
                    f"reads {name!r} with the option {option}={value!r}",
                    "remove the option: a table is read from its beginning, once",
                    place,
                )
        return Source(name, "table", how, place)

    def __getattr__(self, name: str) -> Any:
        if name not in FORMATS:
            raise AttributeError(name)

        def load(*arguments: Any, **named: Any) -> Any:
            return self._loaded(name, arguments, named)

        return load
