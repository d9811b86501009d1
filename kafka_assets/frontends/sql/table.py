"""CREATE TABLE and VIEW -> `Table`: the kind, layer and options, and what does not fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_assets.declarations.common import Options, new_table
from kafka_assets.declarations.computed import never_null
from kafka_assets.declarations.expectations import row_rules
from kafka_assets.declarations.model import (
    Author,
    Expectation,
    Kind,
    Place,
    Read,
    Table,
    fed_by_flows,
)
from kafka_assets.declarations.places import written_at
from kafka_assets.declarations.tables import WINDOW
from kafka_assets.frontends.sql.parse_table import AUTO
from kafka_assets.frontends.sql.properties import Said, said_by
from kafka_assets.frontends.sql.statements import Constraint, TableStatement
from kafka_assets.frontends.sql.text import Source
from kafka_assets.frontends.sql.using import Use

_WINDOW = ("event_time", "window", "window_column")


def declare_table(
    one: TableStatement,
    subject: str,
    place: Place,
    use: Use | None,
    feeds: list[Use],
    shares: str | None = None,
) -> Table:
    """Make the table of a statement.

    Args:
        one: The statement.
        subject: The table, in messages.
        place: Where it stands.
        use: Its SELECT; None for a table that flows feed.
        feeds: The SELECTs of flows that feed it.
        shares: As in `Table`.

    Raises:
        DeclarationError: Something of it is wrong, or fits no table of this kind.
    """
    said = said_by(one, subject)
    kind = _kind(one, subject, said)
    if use is None:
        _refuse_for_flows(one, subject, said)
    elif kind == "streaming_table" and use.aggregates and "keys" not in said.own:
        _add_keys(one, subject, said, use)
    common: Options = {**said.common}
    if use is not None and use.most is not None:
        if kind == "temporary_view" or "max_rows_per_batch" in common:
            refuse_batch_size(one.source, subject, use)
        common["max_rows_per_batch"] = use.most
    _add_columns(one, subject, common)
    if one.comment is not None:
        common["comment"] = one.comment
    if one.partitioned_by:
        common["partition_by"] = one.partitioned_by
    if one.clustered_by and one.clustered_by != AUTO:
        common["cluster_by"] = one.clustered_by
    if one.private:
        common["private"] = True
    function: Author = fed_by_flows if use is None else use.function
    with written_at(place):
        return new_table(
            one.name[-1],
            function,
            kind,
            said.layer or _layer(kind, use, feeds),
            place,
            common,
            upstreams=() if use is None else use.function.upstreams,
            expectations=_expectations(one),
            reads=_reads(one, subject, said, use),
            shares=shares,
            **said.own,
        )


def refuse_batch_size(source: Source, subject: str, use: Use) -> None:
    """Refuse maxOffsetsPerTrigger where something else says how large batches are.

    Raises:
        DeclarationError: `read_kafka` has it.
    """
    if use.most is not None:
        raise source.refused(
            subject,
            use.offset,
            "maxOffsetsPerTrigger here: the table that is written says how large batches are",
            "set TBLPROPERTIES ('kafka_assets.max_rows_per_batch' = ...) on that table",
        )


def refuse_view_options(one: TableStatement) -> None:
    """Refuse what a temporary view, which has no files and no rows of its own, cannot have.

    Raises:
        DeclarationError: Names it, and where it belongs.
    """
    if one.kind != "temporary_view":
        return
    subject = f"view {one.name[-1]!r}"
    for column in one.columns:
        raise one.source.refused(
            subject,
            column.offset,
            "a list of columns on a view",
            "name the columns in its SELECT: expression AS name",
        )
    for what, given in (
        ("PARTITIONED BY", one.partitioned_by),
        ("CLUSTER BY", one.clustered_by),
        ("TBLPROPERTIES", one.properties),
    ):
        if given:
            raise one.source.refused(
                subject,
                one.offset,
                f"{what} on a view, which has no files",
                "put it on the tables that read the view",
            )


def _kind(one: TableStatement, subject: str, said: Said) -> Kind:
    """A streaming table with `event_time` and `window` is a windowed one."""
    given = [word for word in _WINDOW if word in said.own]
    if not given:
        _refuse_own(one, subject, said)
        return one.kind
    offset = one.properties[f"kafka_assets.{given[0]}"].offset
    for word in ("event_time", "window"):
        if word not in given:
            raise one.source.refused(
                subject,
                offset,
                f"'kafka_assets.{given[0]}' without 'kafka_assets.{word}'",
                f"add 'kafka_assets.{word}'",
            )
    if one.kind != "streaming_table" or "keys" in said.own or one.select is None:
        raise one.source.refused(
            subject,
            offset,
            f"'kafka_assets.{given[0]}' fits a STREAMING TABLE with AS SELECT, without keys",
            "remove it",
        )
    if not WINDOW.fullmatch(said.own["window"]):
        raise one.source.refused(
            subject,
            one.properties["kafka_assets.window"].offset,
            f"window={said.own['window']!r} is no length of time",
            "write a number and a unit, such as '1 hour'",
        )
    return "windowed_table"


def _reads(one: TableStatement, subject: str, said: Said, use: Use | None) -> Mapping[str, Read]:
    """How upstreams are read: of a stream, a property may ask for its change feed."""
    reads = {} if use is None else dict(use.reads)
    for name, asked in said.changes.items():
        streamed = use is not None and name in use.function.upstreams and name not in reads
        if asked.value != "changes" or not streamed or one.kind == "materialized_view":
            raise one.source.refused(
                subject,
                asked.offset,
                f"'kafka_assets.reads.{name}' = {asked.value!r} does not fit what the SELECT reads",
                f"write 'changes', of what it reads by STREAM({name})",
            )
        reads[name] = "changes"
    return reads


def _refuse_own(one: TableStatement, subject: str, said: Said) -> None:
    if one.kind == "materialized_view" and "keys" in said.own:
        raise one.source.refused(
            subject,
            one.properties["kafka_assets.keys"].offset,
            "keys on a materialized view, which is computed whole",
            "use a STREAMING TABLE, or remove it",
        )


def _add_keys(one: TableStatement, subject: str, said: Said, use: Use) -> None:
    """The columns by which an aggregate of a stream without an end is updated."""
    drops = any(rule.action == "drop" for rule in one.constraints)
    # With a watermark, which only a view in Python can have, windows of time come to an end.
    may_end = not use.endless and "window(" in use.function.code.lower().replace(" (", "(")
    if use.keys and not drops and not may_end:
        said.own["keys"] = use.keys
    elif use.endless:
        why = (
            "has no GROUP BY" if use.keys == () else "its rows cannot be known by what it groups by"
        )
        if use.keys and drops:
            why = "a rule that drops rows would leave old ones of their group"
        raise one.source.refused(
            subject,
            use.offset,
            f"aggregates a stream that never ends, and {why}",
            "make it a MATERIALIZED VIEW that reads without STREAM; or group by plain columns, and "
            "select them",
        )


def _refuse_for_flows(one: TableStatement, subject: str, said: Said) -> None:
    for word in said.own:
        key = next(k for k in one.properties if k.startswith(f"kafka_assets.{word}"))
        raise one.source.refused(
            subject,
            one.properties[key].offset,
            f"{key!r} on a table that flows feed",
            "decode and aggregate in a table of its own, and let the flow read that",
        )


def _layer(kind: Kind, use: Use | None, feeds: list[Use]) -> str:
    uses = feeds if use is None else [use]
    if kind == "temporary_view":
        return "silver"
    if any(one.source for one in uses):
        return "bronze"
    if kind != "streaming_table" or any(one.aggregates for one in uses):
        return "gold"
    return "silver"


def _add_columns(one: TableStatement, subject: str, common: Options) -> None:
    comments = {column.name: column.comment for column in one.columns if column.comment}
    generated = {c.name: c.generated for c in one.columns if c.generated is not None}
    constraints = _constraints(one, subject)
    if comments:
        common["column_comments"] = comments
    if generated:
        common["generated"] = generated
    if constraints:
        common["constraints"] = constraints


def _word(rule: Constraint) -> str:
    return "constraint" if rule.action is None else "expectation"


def _constraints(one: TableStatement, subject: str) -> dict[str, str]:
    """What no row may break: CHECK, and NOT NULL, which Databricks enforces too."""
    found = never_null(column.name for column in one.columns if column.required)
    for rule in one.constraints:
        if rule.action is not None:
            continue
        if rule.name in found:
            raise one.source.refused(
                subject, rule.offset, f"has two constraints named {rule.name!r}", "rename one"
            )
        found[rule.name] = rule.condition
    return found


def _expectations(one: TableStatement) -> tuple[Expectation, ...]:
    found: list[Any] = []
    for rule in one.constraints:
        if rule.action is None:
            continue
        found += row_rules({rule.name: rule.condition}, rule.action, one.source.place(rule.offset))
    return tuple(found)
