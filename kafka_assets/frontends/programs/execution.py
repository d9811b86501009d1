"""One execution of a program: what its stand-ins give when it reads, recorded or real.

While the program is loaded, reads give recording frames; while one of its functions runs, the
frames that the run has. The stand-ins themselves are `words`, `session` and `databricks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka_assets.errors import KafkaAssetsError
from kafka_assets.frontends.programs.facts import Facts, Key, Source
from kafka_assets.frontends.programs.recording import Recorded
from kafka_assets.frontends.programs.registry import Dataset, Registry
from kafka_assets.frontends.programs.unknown import refuse_unknown


@dataclass
class Trace:
    """What a function read while it was called with recording frames.

    Attributes:
        sources: What it read, in order.
        views: Temporary views that it made, by name.
    """

    sources: list[Source] = field(default_factory=list)
    views: dict[str, Recorded] = field(default_factory=dict)


@dataclass(frozen=True)
class Running:
    """What a function is given in a run.

    Attributes:
        session: The session of the frames.
        tables: Name in the graph -> frame.
        sources: What a topic or folder is known by -> frame, a topic's in the product's columns.
        whole: The whole program is being executed, not one function: what is missing is not used.
    """

    session: Any
    tables: Mapping[str, Any]
    sources: Mapping[Key, Any]
    whole: bool = False


class Execution:
    """One execution of a program.

    Args:
        registry: Takes up what the program declares.
        borrowed: Tables that it reads and others declare: name as written -> name in the graph.
    """

    def __init__(self, registry: Registry, borrowed: Mapping[str, str]) -> None:
        self.registry = registry
        self.borrowed = borrowed
        self.spark: Any = None
        self.reads_at_top = False
        self.running: Running | None = None
        self.traces: list[Trace] = []
        self.facts: dict[str, Facts] = {}
        self.trace_of: Any = None

    @contextmanager
    def run_with(self, running: Running) -> Iterator[None]:
        """Give real frames for a while."""
        before, self.running = self.running, running
        try:
            yield
        finally:
            self.running = before

    def name_in_graph(self, written: str) -> str | None:
        """The name of a table that the program reads; None when nobody declares it."""
        for key in (written, written.removeprefix("LIVE."), written.removeprefix("live.")):
            if key in self.borrowed:
                return self.borrowed[key]
        dataset = self.registry.dataset(written)
        if dataset is None:
            name = self.registry.name_in_graph(written)
            return name if name in self.registry.names_beside else None
        return dataset.name if _fits(written, dataset) else None

    def read(self, source: Source) -> Any:
        """The frame of a topic, table or folder."""
        if self.running is not None:
            # Frames at the program's top belong to the call that they were given to.
            self.reads_at_top = self.reads_at_top or self.running.whole
            frame = self._given(self.running, source)
            if frame is not None:
                return frame
        refuse_unknown(self.registry, "the name of what is read", source.name, source.place)
        if source.kind == "table":
            self._note_sql(source)
        trace = self.traces[-1] if self.traces else None
        if trace is None:
            self.reads_at_top = True
        else:
            trace.sources.append(source)
        return Recorded(self, self._seen(source))

    def keep_view(self, name: str, frame: Recorded) -> None:
        """Remember a temporary view that a function makes for its SQL."""
        if self.traces:
            self.traces[-1].views[name.lower()] = frame

    def has_view(self, name: str) -> bool:
        """Whether, in a run, a function has made a temporary view of this name."""
        if self.running is None or "." in name or self.registry.dataset(name) is not None:
            return False
        return bool(self.running.session.catalog.tableExists(name))

    def _given(self, running: Running, source: Source) -> Any:
        if source.kind != "table":
            frame = running.sources.get(source.key)
            if frame is not None:
                topic = source.kind == "topic"
                return _as_spark_has_it(frame, source.headers) if topic else frame
        else:
            name = self.name_in_graph(source.name) or self.registry.name_in_graph(source.name)
            if name in running.tables:
                return running.tables[name]
        if running.whole:
            return None
        raise KafkaAssetsError(
            f"{source.place}: the program reads {source.name!r}, which it did not read when it was "
            "loaded",
            fix="let its functions read the same tables each time",
        )

    def _note_sql(self, source: Source) -> None:
        """Say which table of a catalog is taken for one that SQL declares: that has no catalog."""
        plain = source.name.replace("`", "").lower()
        name = self.name_in_graph(source.name)
        if "." not in plain or plain.startswith("live.") or name not in self.registry.names_beside:
            return
        if source.name not in self.borrowed and self.registry.dataset(source.name) is None:
            self.registry.note(
                f"{source.name!r} is taken for {name!r}, which the program's SQL declares; if it "
                f'is another table, declare that and name it: tables={{"{source.name}": ...}}',
                source.place,
            )

    def _seen(self, source: Source) -> Facts:
        facts = Facts((source,), streams=source.how != "static")
        dataset = self.registry.dataset(source.name) if source.kind == "table" else None
        if dataset is None or dataset.word != "view" or self.trace_of is None:
            return facts
        of_view: Facts = self.trace_of(dataset.name)
        if source.how == "static":
            return facts
        return Facts((source,), True, of_view.watermark, of_view.aggregate)


def is_certain(written: str, dataset: Dataset) -> bool:
    """Whether a name can mean nothing but this table of the program."""
    plain = written.replace("`", "").lower()
    if plain.startswith("live.") or "." not in plain:
        return True
    return plain == dataset.written.replace("`", "").lower()


def _fits(written: str, dataset: Dataset) -> bool:
    """Whether a qualified name can mean a table of the program."""
    plain = written.replace("`", "").lower()
    declared = dataset.written.replace("`", "").lower()
    if plain.startswith("live.") or "." not in plain or "." not in declared:
        return True
    return declared.endswith(f".{plain}") or plain.endswith(f".{declared}") or plain == declared


def _as_spark_has_it(frame: Any, headers: bool) -> Any:
    """A topic's frame with the columns that Spark's reader gives."""
    return frame.selectExpr(
        *("key", "value", "topic", "partition", "offset", "timestamp"),
        "timestamp_type AS timestampType",
        *(("headers",) if headers else ()),
    )
