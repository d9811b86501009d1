"""What each table and flow of a program reads, in names of the graph, topics and files among it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka_assets.declarations import FileSource, Place, Read, Topic, file_source
from kafka_assets.declarations.files import source_name
from kafka_assets.declarations.places import written_at
from kafka_assets.frontends import file_options
from kafka_assets.frontends.names import may_mean
from kafka_assets.frontends.programs.execution import Execution, is_certain
from kafka_assets.frontends.programs.facts import Aggregate, Key, Source
from kafka_assets.frontends.programs.options import checked
from kafka_assets.frontends.programs.registry import Dataset, FlowRecord, Function, parts, snake
from kafka_assets.frontends.programs.tracing import Traced, Tracer
from kafka_assets.frontends.programs.unknown import MARK


@dataclass(frozen=True)
class Inputs:
    """What a table or flow reads.

    Attributes:
        reads: Name in the graph -> how.
        sources: Name in the graph -> what it is known by outside, of topics and folders of files.
        most: Most records of a batch, where the program says so.
        aggregate: How its result is aggregated, when it is a stream that is.
    """

    reads: Mapping[str, Read] = field(default_factory=dict)
    sources: Mapping[str, Key] = field(default_factory=dict)
    most: int | None = None
    aggregate: Aggregate | None = None

    @property
    def streams(self) -> bool:
        """Whether it reads a stream."""
        return any(how != "static" for how in self.reads.values())

    @property
    def pairs(self) -> tuple[tuple[str, Key | None], ...]:
        """Names in the graph, of topics and folders with what they are known by outside."""
        return tuple((name, self.sources.get(name)) for name in self.reads)

    @property
    def reads_topics(self) -> bool:
        """Whether a topic is among it."""
        return any(kind == "topic" for kind, _ in self.sources.values())


@dataclass(frozen=True)
class Guess:
    """A table of a catalog that is taken for the program's own of the same name."""

    written: str
    name: str
    reader: str
    place: Place


class Reads:
    """Resolves what functions read.

    Args:
        by: The program's execution at load.
        given: Topics declared elsewhere, which the program reads too.
    """

    def __init__(self, by: Execution, given: Sequence[Topic]) -> None:
        self._by = by
        self._tracer = Tracer(by)
        self._given = {topic.topic: topic for topic in given}
        self.topics: dict[str, Topic] = {}
        self.files: dict[str, FileSource] = {}
        self._files_read: dict[str, Source] = {}
        self.guessed: list[Guess] = []
        self._of: dict[int, Inputs] = {}

    def of(self, function: Function | None, name: str) -> Inputs:
        """What a function reads; problems go to the registry."""
        if function is None:
            return Inputs()
        if id(function) not in self._of:
            traced = self._tracer.traced(function, name)
            self._of[id(function)] = self._resolved(traced, name)
        return self._of[id(function)]

    def of_dataset(self, dataset: Dataset) -> Inputs:
        """What a table or view reads."""
        return self.of(dataset.function, dataset.name)

    def of_flow(self, flow: FlowRecord) -> Inputs:
        """What a flow reads."""
        return self.of(flow.function, flow.target)

    def reading_sources(self, inputs: Inputs, views: Mapping[str, Dataset]) -> list[Inputs]:
        """Itself where its rows come from topics or files, and views through which they do.

        What a stream looks up brings it no rows, and a table that is computed from other tables
        too does not begin there.
        """
        streamed = [name for name, how in inputs.reads.items() if how != "static"]
        found: list[Inputs] = []
        for name in streamed or inputs.reads:
            if name in inputs.sources:
                begins = [inputs]
            elif name in views:
                others = {k: v for k, v in views.items() if k != name}
                begins = self.reading_sources(self.of_dataset(views[name]), others)
            else:
                begins = []
            if not begins and not streamed:
                return []
            found += [one for one in begins if one not in found]
        return found

    def name_of(self, written: str, reader: str, place: Place) -> str | None:
        """The name in the graph of a table that is read; an unknown one becomes a problem."""
        name = self._by.name_in_graph(written)
        dataset = self._by.registry.dataset(written)
        guessed = dataset is not None and name == dataset.name
        if (
            name is not None
            and dataset is not None
            and guessed
            and not is_certain(written, dataset)
        ):
            self.guessed.append(Guess(written, name, reader, place))
        several = may_mean(parts(written), self._by.registry.apart)
        if name is None and several:
            self._by.registry.problem(
                f"reads {written!r}, which may be {' or '.join(several)}",
                "write its schema too",
                place,
            )
        elif name is None:
            self._by.registry.problem(
                f"reads {written!r}, which the program does not declare",
                f'declare it in the pipeline with ka.external_table("{snake(written)}") and name '
                f'it: tables={{"{written}": "{snake(written)}"}}',
                place,
            )
        return name

    def _resolved(self, traced: Traced, reader: str) -> Inputs:
        reads: dict[str, Read] = {}
        sources: dict[str, Key] = {}
        most = None
        for source in traced.sources:
            if MARK in source.name:
                # It has been refused where it is read.
                continue
            name = self._name(source, reader)
            if name is None:
                continue
            most = source.most or most
            if source.kind != "table":
                sources[name] = source.key
            if reads.setdefault(name, source.how) != source.how:
                self._by.registry.problem(
                    f"{reader!r} reads {name!r} in two ways: {reads[name]} and {source.how}",
                    "read it in one way here, and in the other in a table of its own",
                    source.place,
                )
        return Inputs(reads, sources, most, traced.facts.aggregate)

    def _name(self, source: Source, reader: str) -> str | None:
        """The name in the graph; None when it was refused."""
        if source.kind == "topic":
            return self._topic(source).name
        if source.kind == "files":
            files = self._folder(source)
            return None if files is None else files.name
        return self.name_of(source.name, reader, source.place)

    def _taken(self) -> set[str]:
        """Names of the program's tables and sinks."""
        registry = self._by.registry
        return {one.name for one in registry.datasets} | {snake(s.name) for s in registry.sinks}

    def _topic(self, source: Source) -> Topic:
        if source.name in self._given:
            return self._given[source.name]
        if source.name not in self.topics:
            name = re.sub(r"[^a-z0-9]+", "_", source.name.lower()).strip("_")
            registry = self._by.registry
            files = {one.name for one in self.files.values()}
            if not name[:1].isalpha():
                name = f"topic_{name}"
            if name in self._taken() | files:
                what = "files are" if name in files else "a table is"
                registry.note(
                    f"the topic {source.name!r} is named '{name}_topic': {what} named {name!r}",
                    source.place,
                )
                name = f"{name}_topic"
            self.topics[source.name] = Topic(name, source.name, None, (), source.place)
        return self.topics[source.name]

    def _folder(self, source: Source) -> FileSource | None:
        """The file source of a path; every reader of it must read it in one way."""
        registry, read = self._by.registry, source.files
        first = self._files_read.setdefault(source.name, source)
        known = self.files.get(source.name)
        limited = None
        if known is not None and read is not None:
            limited = file_options.limited(known, dict(read.limits))
        if first.files != read or (known is not None and limited is None):
            registry.problem(
                f"reads the files at {source.name!r} in another way than at {first.place}",
                "give both readers one format, one schema and the same options, or read the files "
                "into a table and read that",
                source.place,
            )
        elif limited is not None:
            self.files[source.name] = limited
        elif read is not None:
            name = self._name_of_files(source)

            def make() -> FileSource:
                with written_at(source.place):
                    return file_source(
                        name,
                        _with_authority(source.name),
                        format=read.format,
                        schema=read.schema,
                        options=dict((*read.options, *read.limits)),
                    )

            made: FileSource | None = checked(registry, source.place, make, None)
            if made is None:
                return None
            if not re.match(r"/|[^/]*://", made.path):
                registry.note(
                    f"the files at {made.path!r} are looked for in the lake", source.place
                )
            self.files[source.name] = made
        return self.files.get(source.name)

    def _name_of_files(self, source: Source) -> str:
        """The last part of the path, with as many before it as keep it apart from other files."""
        tables = self._taken() | {*self._by.borrowed.values()}
        tables |= {one.name for one in (*self._given.values(), *self.topics.values())}
        files = {one.name for one in self.files.values()}
        parts = [part for part in source.name.split("://")[-1].split("/") if part]
        parts = [part for part in parts if not set(part) & set("*?[{")] or ["files"]
        plain = source_name(parts[-1], ())
        for count in range(1, len(parts) + 1):
            name = source_name("_".join(parts[-count:]), tables)
            if name not in files | tables:
                break
        else:
            name = f"{plain}_files_{len(files) + 1}"
        if name != plain:
            self._by.registry.note(
                f"the files at {source.name!r} are named {name!r}: another is named {plain!r}",
                source.place,
            )
        return name


def _with_authority(path: str) -> str:
    """`file:/x` as `file:///x`: paths with a scheme are known by `://`."""
    return re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*):/(?!/)", r"\1:///", path)
