"""What each table and flow of a program reads, in names of the graph, and the topics among it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_assets.declarations import Place, Read, Topic
from kafka_assets.frontends.programs.execution import Execution, is_certain
from kafka_assets.frontends.programs.facts import Aggregate, Source
from kafka_assets.frontends.programs.registry import Dataset, FlowRecord, Function, snake
from kafka_assets.frontends.programs.tracing import Traced, Tracer
from kafka_assets.frontends.programs.unknown import MARK


@dataclass(frozen=True)
class Inputs:
    """What a table or flow reads.

    Attributes:
        reads: Name in the graph -> how.
        topics: Name in the graph -> name at the broker, of those that are topics.
        most: Most records of a batch, where the program says so.
        aggregate: How its result is aggregated, when it is a stream that is.
    """

    reads: Mapping[str, Read] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    most: int | None = None
    aggregate: Aggregate | None = None

    @property
    def streams(self) -> bool:
        """Whether it reads a stream."""
        return any(how != "static" for how in self.reads.values())

    @property
    def pairs(self) -> tuple[tuple[str, str | None], ...]:
        """Names in the graph, of topics with their name at the broker."""
        return tuple((name, self.topics.get(name)) for name in self.reads)


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

    def reading_topics(self, inputs: Inputs, views: Mapping[str, Dataset]) -> Iterator[Inputs]:
        """Itself where a topic is read directly, and views through which one is."""
        if inputs.topics:
            yield inputs
        for name in inputs.reads:
            if name in views:
                others = {k: v for k, v in views.items() if k != name}
                yield from self.reading_topics(self.of_dataset(views[name]), others)

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
        if name is None:
            self._by.registry.problem(
                f"reads {written!r}, which the program does not declare",
                f'declare it in the pipeline with ka.external_table("{snake(written)}") and name '
                f'it: tables={{"{written}": "{snake(written)}"}}',
                place,
            )
        return name

    def _resolved(self, traced: Traced, reader: str) -> Inputs:
        reads: dict[str, Read] = {}
        topics: dict[str, str] = {}
        most = None
        for source in traced.sources:
            if MARK in source.name:
                # It has been refused where it is read.
                continue
            if source.is_topic:
                topic = self._topic(source)
                name: str | None = topic.name
                topics[topic.name] = topic.topic
                most = source.most or most
            else:
                name = self.name_of(source.name, reader, source.place)
            if name is None:
                continue
            if reads.setdefault(name, source.how) != source.how:
                self._by.registry.problem(
                    f"{reader!r} reads {name!r} in two ways: {reads[name]} and {source.how}",
                    "read it in one way here, and in the other in a table of its own",
                    source.place,
                )
        return Inputs(reads, topics, most, traced.facts.aggregate)

    def _topic(self, source: Source) -> Topic:
        if source.name in self._given:
            return self._given[source.name]
        if source.name not in self.topics:
            name = re.sub(r"[^a-z0-9]+", "_", source.name.lower()).strip("_")
            registry = self._by.registry
            taken = {one.name for one in registry.datasets}
            taken |= {snake(one.name) for one in registry.sinks}
            if not name[:1].isalpha():
                name = f"topic_{name}"
            if name in taken:
                registry.note(
                    f"the topic {source.name!r} is named '{name}_topic': a table is named {name!r}",
                    source.place,
                )
                name = f"{name}_topic"
            self.topics[source.name] = Topic(name, source.name, None, (), source.place)
        return self.topics[source.name]
