"""The stand-in for `spark` in a program: what it reads is recorded or given, the rest is Spark's.

While a program is loaded there is no session; what needs one is refused or gives a recording frame.
In a run everything that is not a read goes to the session of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_assets.frontends.programs.execution import Execution
from kafka_assets.frontends.programs.facts import Facts, Source, aggregated
from kafka_assets.frontends.programs.placing import GIVEN, filled, result_of, with_frames
from kafka_assets.frontends.programs.queries import parsed
from kafka_assets.frontends.programs.readers import Reader
from kafka_assets.frontends.programs.recording import Nothing, Recorded, Untraceable
from kafka_assets.frontends.programs.registry import DATABRICKS
from kafka_assets.frontends.programs.unknown import note_unknown, refuse_unknown

_NONE_GIVEN = object()


class Spark:
    """The stand-in for a session.

    Args:
        by: The execution that it belongs to.
    """

    def __init__(self, by: Execution) -> None:
        self._by = by

    @property
    def read(self) -> Reader:
        """Reads as a whole."""
        return Reader(self._by, False)

    @property
    def readStream(self) -> Reader:  # noqa: N802
        """Reads as a stream."""
        return Reader(self._by, True)

    @property
    def conf(self) -> Conf:
        """The pipeline's configuration."""
        return Conf(self._by)

    def table(self, tableName: str) -> Any:  # noqa: N803
        """A table as a whole."""
        return Reader(self._by, False).table(tableName)

    def sql(self, sqlQuery: str, args: Any = None, **named: Any) -> Any:  # noqa: N803
        """A query over tables of the program, and over frames and values that are given to it."""
        text = sqlQuery
        query = parsed(filled(text, named))
        if query is None:
            return self._command(text)
        place = self._by.registry.place()
        refuse_unknown(self._by.registry, "a query", [text, args, named])
        if query.foreign is not None:
            what, fix = query.foreign
            self._by.registry.problem(f"{what}: Spark's SQL has no such thing", fix, place)
            return Nothing()
        views = self._by.traces[-1].views if self._by.traces else {}
        frames = {
            name: self._by.read(Source(name, "table", "stream" if streams else "static", place))
            for name, streams in query.tables.items()
            if name.lower() not in views
            and not name.startswith(GIVEN)
            and not self._by.has_view(name)
        }
        placed = with_frames(text, list(frames), escaped=not named) if frames else text
        lasts = {name.lower().rpartition(".")[2] for name in frames}
        if placed is None and len(lasts) < len(frames):
            self._by.registry.problem(
                f"a query that only Spark can read names {', '.join(frames)}, which are one in it",
                "hand frames over: spark.sql(text, a=frame), with {a} in place of a table's name",
                place,
            )
            return Nothing()
        real = not any(type(one) is Recorded for one in (*frames.values(), *named.values()))
        if self._by.running is not None and real:
            more = named if args is None else {**named, "args": args}
            return result_of(self._by.running.session, text, placed, frames, more)
        facts = Facts()
        seen = [views[name.lower()] for name in query.tables if name.lower() in views]
        for frame in (*frames.values(), *seen, *named.values()):
            if type(frame) is Recorded:
                facts = facts.with_other(frame._facts)
        if query.aggregates:
            facts = aggregated(facts, query.groups, place, query.groups or ())
        return Recorded(self._by, facts)

    def _command(self, text: str) -> Any:
        """A text that is no query: what chooses a place is not needed, what sets is kept."""
        word, *rest = text.split(None, 2) or [""]
        if word.upper() == "USE":
            self._by.registry.note(
                f"{text.strip()!r} is not needed: tables are read by their names"
            )
        elif word.upper() == "SET" and "=" in "".join(rest):
            name, _, value = text.strip().rstrip(";")[3:].partition("=")
            self.conf.set(name.strip(), value.strip())
        else:
            self._by.registry.problem(
                f"spark.sql({text.strip().split(chr(10))[0][:60]!r}) is no query",
                "put SQL that declares tables into a .sql file of its own; remove other commands",
            )
        return Nothing()

    def createDataFrame(self, *arguments: Any, **named: Any) -> Any:  # noqa: N802
        """Rows that stand in the program."""
        return self._made("createDataFrame", arguments, named)

    def range(self, *arguments: Any, **named: Any) -> Any:
        """Numbers."""
        return self._made("range", arguments, named)

    def _made(self, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if self._by.running is not None:
            return getattr(self._by.running.session, name)(*arguments, **named)
        if not self._by.traces:
            self._by.reads_at_top = True
        return Recorded(self._by, Facts())

    @property
    def udf(self) -> Any:
        """Registers functions for SQL."""
        if self._by.running is not None:
            return self._by.running.session.udf
        return _Functions()

    @property
    def version(self) -> str:
        """Spark's version."""
        import pyspark

        return str(pyspark.__version__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._by.running is not None:
            return getattr(self._by.running.session, name)
        if self._by.traces:
            raise Untraceable(f"spark.{name} needs a session")
        self._by.registry.problem(
            f"spark.{name} needs a session while the program is loaded",
            "use it inside a table's function, or remove it",
        )
        return Nothing()


class Conf:
    """`spark.conf`."""

    def __init__(self, by: Execution) -> None:
        self._by = by

    def get(self, key: str, default: Any = _NONE_GIVEN) -> Any:
        """A value of the pipeline's configuration, else the session's."""
        registry = self._by.registry
        for values in (registry.conf, registry.spark_conf):
            if key in values:
                return values[key]
        given = () if default is _NONE_GIVEN else (default,)
        if self._by.running is not None and key.startswith("spark."):
            return self._by.running.session.conf.get(key, *given)
        if given:
            return default
        return note_unknown(registry, f"spark.conf.get({key!r})", key)

    def set(self, key: str, value: Any) -> None:
        """A value for later; Spark's own become settings of the tables."""
        name = key
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if name.startswith("spark.") and not self._by.traces:
            self._by.registry.spark_conf[name] = text
            if name.startswith(DATABRICKS):
                self._by.registry.note(
                    f"spark.conf.set({name!r}, {text!r}) is not used: it is about Databricks; what "
                    "Delta Lake knows of it can be said by spark_conf= of a table"
                )
        else:
            self._by.registry.conf[name] = text
            if name.startswith("spark."):
                self._by.registry.note(
                    f"spark.conf.set({name!r}) inside a function is not used: set it at the top, "
                    "or with spark_conf="
                )

    def unset(self, key: str) -> None:
        """Forget a value."""
        self._by.registry.spark_conf.pop(key, None)
        self._by.registry.conf.pop(key, None)

    def isModifiable(self, key: str) -> bool:  # noqa: N802
        """Everything is."""
        return bool(key)


class _Functions:
    def register(self, name: str, f: Any, returnType: Any = None) -> Any:  # noqa: N803
        """Registered in a run; here it is what it would be."""
        from pyspark.sql import functions

        del name
        if hasattr(f, "returnType"):
            return f
        return functions.udf(f, returnType or "string")

    def __getattr__(self, name: str) -> Any:
        raise Untraceable(f"spark.udf.{name} needs a session")
