"""What a program declares and reads -> declarations of tables and views.

Flows, changes and sinks are mapped in `feeding`; options and expectations in `options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_assets.declarations import Kind, Read, Table
from kafka_assets.declarations.common import new_table
from kafka_assets.declarations.model import fed_by_flows
from kafka_assets.frontends.names import shared
from kafka_assets.frontends.programs.inputs import Inputs, Reads
from kafka_assets.frontends.programs.options import (
    Mapped,
    checked,
    expectations_of,
    mapped_options,
)
from kafka_assets.frontends.programs.program import Program
from kafka_assets.frontends.programs.registry import Dataset, Registry, parts
from kafka_assets.frontends.programs.running import function_of


class Tables:
    """Maps the tables and views of a program.

    Args:
        program: The program.
        registry: What it declared.
        reads: What its functions read.
        layers: Table name -> layer, where the derived one is not meant.
    """

    def __init__(
        self, program: Program, registry: Registry, reads: Reads, layers: Mapping[str, str]
    ) -> None:
        self._program, self._registry, self._reads = program, registry, reads
        self._layers = layers
        self._kept = self._kept_views()
        self._views = {
            one.name: one
            for one in registry.datasets
            if one.word == "view" and one.name not in self._kept
        }

    def all(self) -> list[Table]:
        """All tables and views, in the order in which they are declared."""
        self._refuse_twice()
        self._refuse_unknown_layers()
        return [
            table
            for dataset in self._registry.datasets
            if (table := self._table(dataset)) is not None
        ]

    def _kept_views(self) -> dict[str, str]:
        """Views that become tables, because rows of theirs are kept or dropped: why."""
        changed = {self._registry.name_in_graph(one.source) for one in self._registry.changes}
        kept: dict[str, str] = {}
        for one in self._registry.datasets:
            if one.word != "view" or one.function is None:
                continue
            if self._registry.rules_of(one.function):
                kept[one.name] = "it has expectations"
            elif one.name in changed:
                kept[one.name] = "changes are applied from it"
        return kept

    def _table(self, dataset: Dataset) -> Table | None:
        registry = self._registry
        if dataset.name != dataset.written:
            registry.note(f"{dataset.written!r} is named {dataset.name!r}", dataset.place)
        mapped = mapped_options(registry, dataset)
        expectations = expectations_of(registry, dataset)
        inputs = self._reads.of_dataset(dataset)
        kind = self._kind(dataset, inputs)
        layer = self._layer(dataset, kind, inputs, mapped)
        if dataset.name in self._kept:
            mapped.common["private"] = True
            registry.note(
                f"the view {dataset.written!r} becomes a private table, because "
                f"{self._kept[dataset.name]}",
                dataset.place,
            )
        limits = [
            one.most for one in self._reading_sources(dataset, inputs) if one.most is not None
        ]
        if limits and kind == "streaming_table":
            mapped.common["max_rows_per_batch"] = max(limits)
        keys = self._keys(dataset, inputs) if kind == "streaming_table" else ()
        common = mapped.common
        if kind == "temporary_view":
            common = {k: v for k, v in common.items() if k in ("comment", "column_comments")}
        function = fed_by_flows
        if dataset.function is not None:
            function = function_of(
                self._program,
                "dataset",
                dataset.name,
                dataset.function,
                inputs.pairs,
                mapped.schema,
            )
        made: Table | None = checked(
            registry,
            dataset.place,
            lambda: new_table(
                dataset.name,
                function,
                kind,
                layer,
                dataset.place,
                common,  # type: ignore[arg-type]
                upstreams=tuple(inputs.reads),
                expectations=expectations,
                reads=_reads(kind, inputs),
                keys=keys,
                shares=shared(parts(dataset.written), registry.apart),
            ),
            None,
        )
        return made

    def _kind(self, dataset: Dataset, inputs: Inputs) -> Kind:
        if dataset.word == "target":
            return "streaming_table"
        if dataset.word == "view" and dataset.name not in self._kept:
            return "temporary_view"
        if dataset.word == "materialized_view" and inputs.streams:
            streamed = next(name for name, how in inputs.reads.items() if how != "static")
            self._registry.problem(
                f"the materialized view {dataset.written!r} reads {streamed!r} as a stream",
                "declare it with @table, or read it as a whole",
                dataset.place,
            )
        if self._computed_whole(dataset, inputs):
            return "materialized_view"
        return "streaming_table" if inputs.streams else "materialized_view"

    def _layer(self, dataset: Dataset, kind: Kind, inputs: Inputs, mapped: Mapped) -> str:
        if dataset.name in self._layers:
            return self._layers[dataset.name]
        layer = self._derived(dataset, kind, inputs)
        if mapped.quality not in (None, layer):
            self._registry.note(
                f"{dataset.name!r} is in the layer {layer}, its property quality says "
                f'{mapped.quality!r}: layers={{"{dataset.name}": ...}} decides',
                dataset.place,
            )
        return layer

    def _derived(self, dataset: Dataset, kind: Kind, inputs: Inputs) -> str:
        if kind == "temporary_view" or dataset.name in self._kept:
            return "silver"
        if self._reading_sources(dataset, inputs):
            return "bronze"
        aggregates = any(part.aggregate is not None for part in self._parts(dataset, inputs))
        return "gold" if kind == "materialized_view" or aggregates else "silver"

    def _parts(self, dataset: Dataset, inputs: Inputs) -> list[Inputs]:
        """What its flows read, or its own function."""
        if dataset.word != "target":
            return [inputs]
        flows = [flow for flow in self._registry.flows if flow.target == dataset.name]
        return [self._reads.of_flow(flow) for flow in flows]

    def _reading_sources(self, dataset: Dataset, inputs: Inputs) -> list[Inputs]:
        """What of it, and of its views, reads topics or files."""
        return [
            one
            for part in self._parts(dataset, inputs)
            for one in self._reads.reading_sources(part, self._views)
        ]

    def _keys(self, dataset: Dataset, inputs: Inputs) -> tuple[str, ...]:
        """The columns by which an aggregate without an end is updated."""
        aggregate = inputs.aggregate
        if aggregate is None or aggregate.bounded:
            return ()
        keys = aggregate.keys or ()
        if keys:
            self._registry.note(
                f"{dataset.name!r} aggregates without a watermark: its rows are updated by "
                f"{', '.join(keys)}",
                aggregate.place,
            )
        return keys

    def _computed_whole(self, dataset: Dataset, inputs: Inputs) -> bool:
        """Whether a stream is aggregated without an end, by nothing that rows can be known by."""
        aggregate = inputs.aggregate
        if dataset.word == "target" or aggregate is None or aggregate.bounded:
            return False
        drops = dataset.function is not None and any(
            rule.action == "drop" for rule in self._registry.rules_of(dataset.function)
        )
        if aggregate.keys and not aggregate.session and not drops:
            return False
        reading = self._reading_sources(dataset, inputs)
        if reading:
            topics = any(one.reads_topics for one in reading)
            keys = "its keys are no plain columns of its result"
            if aggregate.session:
                keys = "its keys are session windows"
            elif aggregate.after:
                keys = f"its rows can vanish or double by {aggregate.after} after it"
            self._registry.problem(
                f"{dataset.written!r} aggregates {'a topic' if topics else 'files'} without a "
                f"watermark, and {keys}",
                f"keep the {'topic' if topics else 'files'} in a table, and aggregate that; or "
                "call withWatermark and group by a window of that column",
                aggregate.place,
            )
        self._registry.note(
            f"{dataset.name!r} aggregates all rows without a watermark: it is computed whole when "
            "there are new ones",
            aggregate.place,
        )
        return True

    def _refuse_twice(self) -> None:
        seen: dict[str, Dataset] = {}
        for one in self._registry.datasets:
            other = seen.setdefault(one.name, one)
            if other is not one:
                self._registry.problem(
                    f"{one.written!r} is declared a second time; the first is at {other.place}",
                    "give one of them another name",
                    one.place,
                )

    def _refuse_unknown_layers(self) -> None:
        known = {one.name for one in self._registry.datasets}
        for name, layer in self._layers.items():
            if name not in known:
                self._registry.problem(
                    f"layers={{{name!r}: {layer!r}}}: the program has no such table",
                    f"use one of {', '.join(sorted(known)) or '(none)'}",
                )


def _reads(kind: Kind, inputs: Inputs) -> dict[str, Read]:
    if kind == "materialized_view":
        return {}
    return {name: how for name, how in inputs.reads.items() if how != "stream"}


def once(inputs: Inputs) -> Inputs:
    """What a flow reads that runs once: what it reads first as a whole, it reads as a stream."""
    if inputs.streams or not inputs.reads:
        return inputs
    first, *_ = inputs.reads
    return replace(inputs, reads={**inputs.reads, first: "stream"})
