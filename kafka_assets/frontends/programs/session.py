"""The stand-in for `spark` in a program: what it reads is recorded or given, the rest is Spark's.

While a program is loaded there is no session; what needs one is refused or gives a recording frame.
In a run everything that is not a read goes to the session of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_assets.frontends.programs.execution import Execution
from kafka_assets.frontends.programs.facts import Facts, Source, aggregated
from kafka_assets.frontends.programs.queries import parsed, with_views
from kafka_assets.frontends.programs.readers import Reader
from kafka_assets.frontends.programs.recording import Nothing, Recorded, Untraceable
from kafka_assets.frontends.programs.registry import DATABRICKS
from kafka_assets.frontends.programs.unknown import note_unknown, refuse_unknown


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

    def table(self, name: str) -> Any:
        """A table as a whole."""
        return Reader(self._by, False).table(name)

    def sql(self, text: str, args: Any = None, **named: Any) -> Any:
        """A query over tables of the program."""
        query = parsed(text)
        word, *rest = text.split(None, 2) or [""]
        if query is None and word.upper() == "USE":
            self._by.registry.note(
                f"{text.strip()!r} is not needed: tables are read by their names"
            )
            return Nothing()
        if query is None and word.upper() == "SET" and "=" in "".join(rest):
            name, _, value = text.strip().rstrip(";")[3:].partition("=")
            self.conf.set(name.strip(), value.strip())
            return Nothing()
        if query is None:
            self._by.registry.problem(
                f"spark.sql({text.strip().split(chr(10))[0][:60]!r}) is no query",
                "put SQL that declares tables into a .sql file of its own; remove other commands",
            )
            return Nothing()
        place = self._by.registry.place()
        refuse_unknown(self._by.registry, "a query", text)
        views = self._by.traces[-1].views if self._by.traces else {}
        frames = {
            name: self._by.read(Source(name, "table", "stream" if streams else "static", place))
            for name, streams in query.tables.items()
            if name.lower() not in views and not self._by.has_view(name)
        }
        if self._by.running is not None:
            session = self._by.running.session
            names = {name: name.rpartition(".")[2] for name in frames}
            for name, frame in frames.items():
                frame.createOrReplaceTempView(names[name])
            more = {} if args is None else {"args": args}
            return session.sql(with_views(text, names), **more, **named)
        facts = Facts()
        seen = [views[name.lower()] for name in query.tables if name.lower() in views]
        for frame in (*frames.values(), *seen, *named.values()):
            if type(frame) is Recorded:
                facts = facts.with_other(frame._facts)
        if query.aggregates:
            facts = aggregated(facts, query.groups, place, query.groups or ())
        return Recorded(self._by, facts)

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

    def get(self, name: str, *default: Any) -> Any:
        """A value of the pipeline's configuration, else the session's."""
        registry = self._by.registry
        for values in (registry.conf, registry.spark_conf):
            if name in values:
                return values[name]
        if self._by.running is not None and name.startswith("spark."):
            return self._by.running.session.conf.get(name, *default)
        if default:
            return default[0]
        return note_unknown(registry, f"spark.conf.get({name!r})", name)

    def set(self, name: str, value: Any) -> None:
        """A value for later; Spark's own become settings of the tables."""
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

    def unset(self, name: str) -> None:
        """Forget a value."""
        self._by.registry.spark_conf.pop(name, None)
        self._by.registry.conf.pop(name, None)

    def isModifiable(self, name: str) -> bool:  # noqa: N802
        """Everything is."""
        return bool(name)


class _Functions:
    def register(self, name: str, function: Any, returnType: Any = None) -> Any:  # noqa: N803
        """Registered in a run; here it is what it would be."""
        from pyspark.sql import functions

        del name
        if hasattr(function, "returnType"):
            return function
        return functions.udf(function, returnType or "string")

    def __getattr__(self, name: str) -> Any:
        raise Untraceable(f"spark.udf.{name} needs a session")
