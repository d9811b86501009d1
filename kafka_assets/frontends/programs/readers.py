"""The stand-ins for `spark.read` and `spark.readStream`: which source or table is read, and how."""

from __future__ import annotations

from typing import Any

from kafka_assets.declarations import Place, Read
from kafka_assets.frontends.programs.execution import Execution
from kafka_assets.frontends.programs.facts import Facts, Source
from kafka_assets.frontends.programs.recording import Recorded
from kafka_assets.frontends.programs.sources import source_of

_FILES = ("json", "csv", "parquet", "orc", "text", "xml", "jdbc")
_LIMITS = ("maxfilespertrigger", "maxbytespertrigger", "skipchangecommits", "ignorechanges")


class Reader:
    """`spark.read` or `spark.readStream`."""

    def __init__(self, by: Execution, streaming: bool) -> None:
        self._by, self._streaming = by, streaming
        self._format = "delta"
        self._options: dict[str, Any] = {}

    def format(self, name: str) -> Reader:
        """Which source."""
        self._format = name
        return self

    def option(self, name: str, value: Any) -> Reader:
        """One option."""
        self._options[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **named: Any) -> Reader:
        """Several options."""
        for name, value in named.items():
            self.option(name, value)
        return self

    def schema(self, schema: Any) -> Reader:
        """The columns; only sources that are refused have them."""
        del schema
        return self

    def load(self, path: Any = None, format: str | None = None, **options: Any) -> Any:
        """The frame of a source."""
        self.options(**options)
        place = self._by.registry.place()
        kind = format or self._format
        if kind.lower() == "delta":
            return self._table(str(path or self._options.get("path", "")), place)
        registry = self._by.registry
        before = len(registry.problems)
        source = source_of(registry, kind, self._options, self._streaming, place)
        if source is not None:
            return self._by.read(source)
        refused = () if self._by.traces else tuple(registry.problems[before:])
        if refused:
            del registry.problems[before:]
            registry.refused_at_top.extend(refused)
        return Recorded(self._by, Facts(streams=self._streaming, refused=refused))

    def table(self, name: str) -> Any:
        """The frame of a table."""
        return self._table(name, self._by.registry.place())

    def _table(self, name: str, place: Place) -> Any:
        views = self._by.traces[-1].views if self._by.traces else {}
        if name.lower() in views:
            return views[name.lower()]
        if self._by.running is not None and self._by.has_view(name):
            return self._by.running.session.table(name)
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
        return self._by.read(Source(name, False, how, place))

    def __getattr__(self, name: str) -> Any:
        if name not in _FILES:
            raise AttributeError(name)

        def load(*arguments: Any, **named: Any) -> Any:
            del arguments, named
            return self.format(name).load()

        return load
