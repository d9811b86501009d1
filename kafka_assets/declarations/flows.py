"""The words for tables that flows feed, for changes, and for sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Unpack

from kafka_assets.declarations.common import Options, check_reads, new_table
from kafka_assets.declarations.expectations import pending_expectations, row_rules
from kafka_assets.declarations.model import (
    Author,
    Changes,
    Flow,
    Read,
    Rule,
    Sink,
    Table,
    fed_by_flows,
)
from kafka_assets.declarations.places import (
    caller,
    check_name,
    columns,
    declared,
    parameters,
    place_of,
)
from kafka_assets.errors import DeclarationError
from kafka_assets.options import JsonOptions
from kafka_assets.sql_rules import rule_problem


def create_streaming_table(
    name: str,
    *,
    layer: str,
    expect_all: Mapping[str, Rule] | None = None,
    expect_all_or_drop: Mapping[str, Rule] | None = None,
    expect_all_or_fail: Mapping[str, Rule] | None = None,
    **common: Unpack[Options],
) -> Table:
    """Declare a table that flows feed: `append_flow`, or one `create_auto_cdc_flow`.

    Args:
        name: snake_case name of the table.
        layer: `bronze`, `silver` or `gold`.
        expect_all: Rules that warn, name -> rule; they hold for every flow.
        expect_all_or_drop: Rules whose broken rows become dead letters.
        expect_all_or_fail: Rules that stop the batch.
        common: As in `common.Options`.

    Returns:
        The table.

    Raises:
        DeclarationError: Something of it is wrong; names the table, file, line and the fix.
    """
    place = caller()
    expectations = (
        *row_rules(expect_all or {}, "warn", place),
        *row_rules(expect_all_or_drop or {}, "drop", place),
        *row_rules(expect_all_or_fail or {}, "fail", place),
    )
    return new_table(
        name,
        fed_by_flows,
        "streaming_table",
        layer,
        place,
        common,
        upstreams=(),
        expectations=expectations,
    )


def append_flow(
    *,
    target: str | Table | Sink,
    name: str | None = None,
    once: bool = False,
    schema: str | None = None,
    json: JsonOptions | None = None,
    reads: Mapping[str, Read] | None = None,
) -> Callable[[Author], Flow]:
    """Declare one of the flows that feed a table of `create_streaming_table`, or a sink.

    Args:
        target: The table or sink, or its name.
        name: Name of the flow; by default the function's. Its checkpoint is named after it: a
            renamed flow begins anew.
        once: The flow brings what its upstreams hold when it first runs, and never runs again:
            for backfill.
        schema: As in `streaming_table`.
        json: As in `streaming_table`.
        reads: As in `streaming_table`.

    Returns:
        A decorator that turns a function into a `Flow`.

    Raises:
        DeclarationError: Something of it is wrong; names the flow, file, line and the fix.
    """

    def declare(function: Author) -> Flow:
        place = place_of(function)
        flow = name or function.__name__
        subject = f"flow {flow!r}"
        check_name(subject, place, flow, "the flow's name")
        for rule in pending_expectations(function):
            raise DeclarationError(
                subject,
                str(place),
                f"has the expectation {rule.name!r}, and no rows of its own to keep or drop",
                fix="give it to the table that the flow feeds: "
                "create_streaming_table(expect_all=...)",
            )
        upstreams = parameters(function, subject, place)
        check_reads(subject, place, upstreams, reads or {})
        if json is not None and schema is None:
            raise DeclarationError(
                subject, str(place), "json= without schema=", fix="name a schema file with schema="
            )
        return declared(
            Flow(
                name=flow,
                target=_name_of(target),
                function=function,
                upstreams=upstreams,
                place=place,
                schema=schema,
                json=json or JsonOptions(),
                reads=dict(reads or {}),
                once=once,
            )
        )

    return declare


def create_auto_cdc_flow(
    *,
    target: str | Table,
    source: str | Table,
    keys: str | Sequence[str],
    sequence_by: str,
    apply_as_deletes: str | None = None,
    apply_as_truncates: str | None = None,
    column_list: Sequence[str] | None = None,
    except_column_list: Sequence[str] | None = None,
    ignore_null_updates: bool = False,
    stored_as_scd_type: Literal[1, 2] = 1,
    track_history_column_list: Sequence[str] | None = None,
    track_history_except_column_list: Sequence[str] | None = None,
    name: str | None = None,
) -> Flow:
    """Declare that the rows of a source are changes to the rows of a target.

    Changes may come late and in any order: `sequence_by` says which is the later one, not the
    order of arrival. Each run looks up all changes of the keys that it touches and writes what
    follows from them, so one run and many runs give the same table.

    Args:
        target: A table of `create_streaming_table`, or its name.
        source: The streaming table that has the changes, or its name.
        keys: Columns of the source that say which row is meant.
        sequence_by: A SQL expression on the source's columns, such as `"updated_at"` or
            `"struct(updated_at, id)"`. Changes without it are passed over. Of two with the same
            value, the one that its record's offset puts later counts.
        apply_as_deletes: A SQL condition: the change removes its row.
        apply_as_truncates: A SQL condition: the change removes all earlier rows; only for type 1.
        column_list: Columns that the target gets; by default all but `except_column_list`.
        except_column_list: Columns that the target does not get.
        ignore_null_updates: A null in a change keeps the value that was there.
        stored_as_scd_type: 1 keeps each row's present state; 2 keeps each state, with the
            sequence values `__START_AT` and `__END_AT` between which it held.
        track_history_column_list: For type 2: only a change of these begins a new state.
        track_history_except_column_list: For type 2: a change of these begins no new state.
        name: Name of the flow; by default the target's.

    Returns:
        The flow.

    Raises:
        DeclarationError: Something of it is wrong; names the flow, file, line and the fix.
    """
    place = caller()
    flow, of = name or _name_of(target), _name_of(source)
    subject = f"flow {flow!r}"
    check_name(subject, place, flow, "the flow's name")
    for option, sql, condition in (
        ("apply_as_deletes", apply_as_deletes, apply_as_deletes),
        ("apply_as_truncates", apply_as_truncates, apply_as_truncates),
        # What may stand in a condition may stand here.
        ("sequence_by", sequence_by, sequence_by.strip() and f"({sequence_by}) IS NOT NULL"),
    ):
        problem = None if condition is None else rule_problem(condition)
        if problem is not None:
            raise DeclarationError(
                subject,
                str(place),
                f"{option}={sql!r} is not valid SQL: {problem}",
                fix="write one Spark SQL expression on the columns of the source",
            )
    _refuse_both(subject, str(place), "column_list", column_list, except_column_list)
    _refuse_both(
        subject,
        str(place),
        "track_history_column_list",
        track_history_column_list,
        track_history_except_column_list,
    )
    if stored_as_scd_type not in (1, 2):
        raise DeclarationError(
            subject,
            str(place),
            f"stored_as_scd_type={stored_as_scd_type!r} does not exist",
            fix="use 1 for the present state, 2 for every state",
        )
    history = track_history_column_list or track_history_except_column_list
    if history and stored_as_scd_type == 1:
        raise DeclarationError(
            subject,
            str(place),
            "track_history_* on a table that keeps no history",
            fix="use stored_as_scd_type=2, or remove it",
        )
    if apply_as_truncates is not None and stored_as_scd_type == 2:
        raise DeclarationError(
            subject,
            str(place),
            "apply_as_truncates on a table that keeps history",
            fix="use stored_as_scd_type=1, or apply_as_deletes",
        )
    changes = Changes(
        keys=columns(subject, place, "keys", keys),
        sequence_by=sequence_by,
        apply_as_deletes=apply_as_deletes,
        apply_as_truncates=apply_as_truncates,
        columns=None if column_list is None else tuple(column_list),
        except_columns=tuple(except_column_list or ()),
        ignore_null_updates=ignore_null_updates,
        scd_type=stored_as_scd_type,
        track_history=None
        if track_history_column_list is None
        else tuple(track_history_column_list),
        track_history_except=tuple(track_history_except_column_list or ()),
    )
    return declared(
        Flow(
            name=flow,
            target=_name_of(target),
            function=as_it_is,
            upstreams=(of,),
            place=place,
            changes=changes,
        )
    )


def as_it_is(frame: object) -> object:
    """The function of a flow that takes its source's rows as they are."""
    return frame


def create_sink(
    name: str,
    format: Literal["kafka", "delta"],
    options: Mapping[str, str],
    *,
    description: str | None = None,
) -> Sink:
    """Declare a place outside the lake that `append_flow` can write to.

    Args:
        name: snake_case name in the graph.
        format: `kafka` (each row has a column `value`, and may have `key` and `headers`; at least
            once: a run that dies between writing and its checkpoint writes its batch again) or
            `delta` (exactly once).
        options: Of `kafka`: `topic`, by default on the broker of the settings, and producer
            properties that begin with `kafka.`. Of `delta`: `path`, absolute.
        description: Shown in the Dagster UI.

    Returns:
        The sink.

    Raises:
        DeclarationError: The name, format or an option is wrong.
    """
    place = caller()
    subject = f"sink {name!r}"
    check_name(subject, place, name, "its name")
    needed = {"kafka": "topic", "delta": "path"}
    if format not in needed:
        raise DeclarationError(
            subject, str(place), f"format={format!r} does not exist", fix="use kafka or delta"
        )
    unknown = [
        option
        for option in options
        if option != needed[format] and not (format == "kafka" and option.startswith("kafka."))
    ]
    if needed[format] not in options or unknown:
        what = f"unknown options {', '.join(unknown)}" if unknown else f"no {needed[format]}"
        raise DeclarationError(
            subject,
            str(place),
            f"a {format} sink has {what}",
            fix=f'give options={{"{needed[format]}": ...}}'
            + (" and kafka.* properties" if format == "kafka" else ""),
        )
    if format == "delta" and "://" not in options["path"] and not options["path"].startswith("/"):
        raise DeclarationError(
            subject,
            str(place),
            f"path {options['path']!r} is not absolute",
            fix="give the whole path; tables inside the lake are create_streaming_table",
        )
    return declared(Sink(name, format, dict(options), description, place))


def _refuse_both(
    subject: str, place: str, option: str, some: object | None, others: object | None
) -> None:
    if some is not None and others is not None:
        raise DeclarationError(
            subject,
            place,
            f"{option} and its except_ form are both given",
            fix="give one of them",
        )


def _name_of(target: str | Table | Sink) -> str:
    return target if isinstance(target, str) else target.name
