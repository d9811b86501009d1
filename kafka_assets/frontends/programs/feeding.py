"""What feeds the tables of a program without a function, and its sinks -> flows and sinks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kafka_assets.declarations import (
    Flow,
    Place,
    Sink,
    create_auto_cdc_flow,
    create_sink,
)
from kafka_assets.declarations.common import check_reads
from kafka_assets.declarations.places import check_name, declared
from kafka_assets.frontends.programs.columns import is_column, name_of, sql_of
from kafka_assets.frontends.programs.inputs import Reads
from kafka_assets.frontends.programs.mapping import once
from kafka_assets.frontends.programs.options import checked, mapped_options
from kafka_assets.frontends.programs.program import Program
from kafka_assets.frontends.programs.registry import (
    ChangesRecord,
    FlowRecord,
    Registry,
    SinkRecord,
    snake,
)
from kafka_assets.frontends.programs.running import function_of
from kafka_assets.frontends.programs.unknown import MARK, refuse_unknown

_LISTS = (
    *("keys", "column_list", "except_column_list"),
    *("track_history_column_list", "track_history_except_column_list"),
)
_TEXTS = ("sequence_by", "apply_as_deletes", "apply_as_truncates")
_OTHERS = ("ignore_null_updates", "stored_as_scd_type", "name", "flow_name", "once")


def flow_of(program: Program, registry: Registry, reads: Reads, record: FlowRecord) -> Flow | None:
    """Map an append flow."""
    inputs = reads.of_flow(record)
    if record.once:
        inputs = once(inputs)
    if inputs.aggregate is not None and not inputs.aggregate.bounded:
        registry.problem(
            f"the flow {record.name!r} aggregates a stream without a watermark",
            "call withWatermark and group by a window of that column, or declare a table",
            inputs.aggregate.place,
        )
    target = registry.dataset(record.target)
    schema = None if target is None else mapped_options(registry, target).schema
    static = {name: how for name, how in inputs.reads.items() if how != "stream"}

    def make() -> Flow:
        check_name(f"flow {record.name!r}", record.place, record.name, "the flow's name")
        check_reads(f"flow {record.name!r}", record.place, tuple(inputs.reads), static)
        return declared(
            Flow(
                name=record.name,
                target=record.target,
                function=function_of(
                    program,
                    "flow",
                    f"{record.target}/{record.name}",
                    record.function,
                    inputs.pairs,
                    schema,
                ),
                upstreams=tuple(inputs.reads),
                place=record.place,
                reads=static,
                once=record.once,
            )
        )

    made: Flow | None = checked(registry, record.place, make, None)
    return made


def changes_of(registry: Registry, reads: Reads, record: ChangesRecord) -> Flow | None:
    """Map changes that a table gets."""
    source = reads.name_of(record.source, record.target, record.place)
    given = dict(record.options)
    for option in given.keys() - {*_LISTS, *_TEXTS, *_OTHERS}:
        registry.problem(f"{option}= of changes has no counterpart here", "remove it", record.place)
    if given.get("once"):
        registry.problem("once= of changes has no counterpart here", "remove it", record.place)
    if source is None or given.get("sequence_by") is None:
        if source is not None:
            registry.problem("changes without sequence_by=", "say the order", record.place)
        return None
    texts = {option: _sql(registry, record.place, option, given.get(option)) for option in _TEXTS}
    lists = {
        option: _names(registry, record.place, option, given[option])
        for option in _LISTS
        if given.get(option) is not None
    }
    scd = str(given.get("stored_as_scd_type") or 1)
    options: dict[str, Any] = {
        **lists,
        **texts,
        "sequence_by": texts["sequence_by"] or "",
        "ignore_null_updates": bool(given.get("ignore_null_updates")),
        "stored_as_scd_type": int(scd) if scd.isdecimal() else scd,
    }
    name = given.get("name") or given.get("flow_name")

    def make() -> Flow:
        flow = create_auto_cdc_flow(
            target=record.target,
            source=source,
            name=None if name is None else snake(str(name)),
            **options,
        )
        return declared(replace(flow, place=record.place), instead_of=flow)

    made: Flow | None = checked(registry, record.place, make, None)
    return made


def sink_of(registry: Registry, record: SinkRecord, brokers: set[str]) -> Sink | None:
    """Map a sink.

    Args:
        registry: Takes up problems and notes.
        record: The sink.
        brokers: The addresses from which the program reads: there, the settings decide.
    """
    options = dict(record.options)
    broker = options.get("kafka.bootstrap.servers")
    if record.format == "kafka" and broker is not None:
        if not brokers or broker in brokers:
            del options["kafka.bootstrap.servers"]
            registry.note(
                f"the sink {record.name!r} writes to the broker of the settings, not to {broker!r}",
                record.place,
            )
        else:
            registry.note(
                f"the sink {record.name!r} writes to {broker!r}, from where the program does not "
                "read",
                record.place,
            )
    for option in [name for name, value in options.items() if MARK in value]:
        value = options.pop(option)
        if "kafka.bootstrap.servers" in options or not option.startswith("kafka."):
            refuse_unknown(registry, f"{option} of {record.name!r}", value, record.place)
        else:
            registry.note(
                f"{option} of the sink {record.name!r}: the setting kafka.secrets decides",
                record.place,
            )
    name = snake(record.name)
    if name != record.name:
        registry.note(f"{record.name!r} is named {name!r}", record.place)

    def make() -> Sink:
        sink = create_sink(name, record.format, options)  # type: ignore[arg-type]
        return declared(replace(sink, place=record.place), instead_of=sink)

    made: Sink | None = checked(registry, record.place, make, None)
    return made


def _sql(registry: Registry, place: Place, option: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    text = sql_of(value) if is_column(value) else None
    if text is None:
        registry.problem(
            f"{option}= is a Column that has no simple SQL text", "write it as SQL text", place
        )
    return text


def _names(registry: Registry, place: Place, option: str, value: Any) -> list[str]:
    given = [value] if isinstance(value, str) or is_column(value) else list(value)
    names = [one if isinstance(one, str) else name_of(one) for one in given]
    known = [name for name in names if name is not None]
    if len(known) < len(names):
        registry.problem(f"{option}= is no list of columns", "name the columns", place)
    return known
