"""What all tables may say about themselves, and the one place where a `Table` is made."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict, get_args

from kafka_assets.declarations.computed import computing, conditions, generated_columns
from kafka_assets.declarations.expectations import take_pending, with_unique_names
from kafka_assets.declarations.model import (
    Author,
    Expectation,
    Kind,
    Place,
    Read,
    Table,
    TableOptions,
)
from kafka_assets.declarations.places import (
    check_layer,
    check_name,
    check_owners,
    columns,
    declared,
    parameters,
    place_of,
)
from kafka_assets.errors import DeclarationError
from kafka_assets.options import JsonOptions


class Options(TypedDict, total=False):
    """Options of every table.

    Attributes:
        freshness: The table counts as late (warn) when it was not updated for this long, and as
            failed after twice that. At least one minute.
        reset_allowed: False refuses every full refresh of this table.
        comment: Description in the UI and of the Delta table; by default the function's docstring.
        column_comments: Column name -> comment.
        generated: Further columns, computed from those that the function returns: name -> SQL
            expression. Rules and `partition_by` may name them.
        constraints: Conditions that Delta holds every row to, whoever writes it: name -> SQL
            condition. A batch with a row that breaks one is not written at all; rows that may come
            so are for `expect_or_drop`.
        owners: Emails, or `team:name`.
        tags: Tags of the asset.
        path: Where the table lies, relative to the lake; by default `<layer>/<name>`.
        properties: Properties of the Delta table. Readers such as deltalake refuse tables with
            some of them.
        partition_by: Columns that the files are parted by.
        cluster_by: Columns that Delta clusters the files by (liquid clustering).
        private: For this pipeline alone; shown so in the UI.
        spark_conf: Spark SQL settings of this table's queries, name -> value.
        max_rows_per_batch: A micro-batch takes at most about so many rows of its source.
        max_dead_share: A larger share of dead rows stops a batch before it commits, from 0 to 1;
            by default the setting `dead_letters.max_share`.
    """

    freshness: timedelta | None
    reset_allowed: bool
    comment: str | None
    column_comments: Mapping[str, str]
    generated: Mapping[str, str]
    constraints: Mapping[str, str]
    owners: Sequence[str]
    tags: Mapping[str, str] | None
    path: str | None
    properties: Mapping[str, str]
    partition_by: str | Sequence[str]
    cluster_by: str | Sequence[str]
    private: bool
    spark_conf: Mapping[str, str]
    max_rows_per_batch: int | None
    max_dead_share: float | None


class Common(Options, total=False):
    """Options of a table that has a function.

    Attributes:
        name: The table's name; by default the function's.
    """

    name: str


def table_of(function: Author, kind: Kind, layer: str, common: Common, **own: Any) -> Table:
    """Make a table of a function, with the expectations that stand on it.

    Args:
        function: The author's function.
        kind: What kind of table.
        layer: Its layer.
        common: What all tables may say.
        own: What only this kind says, as attributes of `Table`.

    Raises:
        DeclarationError: Something of it is wrong; names the table, file, line and the fix.
    """
    if isinstance(function, Table):
        raise DeclarationError(
            f"table {function.name!r}",
            str(function.place),
            "has two table decorators",
            fix="leave only one of them",
        )
    place = place_of(function)
    name = common.get("name", function.__name__)
    subject = f"table {name!r}"
    upstreams = parameters(function, subject, place)
    rows, whole = take_pending(function)
    about = common.get("comment") or inspect.getdoc(function)
    return new_table(
        name,
        function,
        kind,
        layer,
        place,
        {**common, "comment": about},
        upstreams=upstreams,
        expectations=rows,
        table_expectations=whole,
        **own,
    )


def new_table(
    name: str,
    function: Author,
    kind: Kind,
    layer: str,
    place: Place,
    common: Common | Options,
    *,
    upstreams: tuple[str, ...],
    expectations: tuple[Expectation, ...] = (),
    json: JsonOptions | None = None,
    **own: Any,
) -> Table:
    """Make a table, checked as far as it can be by itself; see `table_of`."""
    subject = f"table {name!r}"
    check_name(subject, place, name, "the table's name")
    check_layer(subject, place, layer)
    _refuse_unknown(subject, place, common)
    _check_figures(subject, place, common)
    check_owners(subject, place, common.get("owners", ()))
    if json is not None and own.get("schema") is None:
        raise DeclarationError(
            subject, str(place), "json= without schema=", fix="name a schema file with schema="
        )
    check_reads(subject, place, upstreams, own.get("reads") or {})
    own["reads"] = dict(own.get("reads") or {})
    options = _options(subject, place, common)
    table = Table(
        name=name,
        function=computing(function, options.generated),
        kind=kind,
        layer=layer,
        upstreams=upstreams,
        place=place,
        expectations=expectations,
        json=json or JsonOptions(),
        freshness=common.get("freshness"),
        reset_allowed=common.get("reset_allowed", True),
        comment=common.get("comment"),
        owners=tuple(common.get("owners", ())),
        tags=dict(common.get("tags") or {}),
        path=common.get("path"),
        max_dead_share=common.get("max_dead_share"),
        options=options,
        **own,
    )
    return declared(with_unique_names(table))


def check_reads(
    subject: str, place: Place, upstreams: tuple[str, ...], reads: Mapping[str, str]
) -> None:
    """Refuse a way of reading that does not exist, or is said of no upstream.

    Raises:
        DeclarationError: Names it.
    """
    for name, read in reads.items():
        if name not in upstreams or read not in get_args(Read):
            raise DeclarationError(
                subject,
                str(place),
                f"reads={{{name!r}: {read!r}}} does not fit its parameters {', '.join(upstreams)}",
                fix=f"say of a parameter one of {', '.join(get_args(Read))}",
            )


def _refuse_unknown(subject: str, place: Place, common: Mapping[str, Any]) -> None:
    known = (*Options.__annotations__, *Common.__annotations__)
    for option in common:
        if option not in known:
            close = difflib.get_close_matches(option, known, n=1)
            raise DeclarationError(
                subject,
                str(place),
                f"there is no option {option}=",
                fix=f"did you mean {close[0]}=?" if close else f"use one of {', '.join(known)}",
            )


def _check_figures(subject: str, place: Place, common: Options) -> None:
    freshness = common.get("freshness")
    if freshness is not None and freshness < timedelta(minutes=1):
        raise DeclarationError(
            subject,
            str(place),
            f"freshness={freshness} is shorter than a minute",
            fix="use at least timedelta(minutes=1)",
        )
    share = common.get("max_dead_share")
    if share is not None and not 0 <= share <= 1:
        raise DeclarationError(
            subject, str(place), f"max_dead_share={share} is no share", fix="use 0 to 1"
        )
    most = common.get("max_rows_per_batch")
    if most is not None and (not isinstance(most, int) or most < 1):
        raise DeclarationError(
            subject,
            str(place),
            f"max_rows_per_batch={most!r} is no number of rows",
            fix="use a whole number from 1, such as 1_000_000",
        )


def _options(subject: str, place: Place, common: Options) -> TableOptions:
    parts, clusters = common.get("partition_by", ()), common.get("cluster_by", ())
    if parts and clusters:
        raise DeclarationError(
            subject,
            str(place),
            "partition_by= and cluster_by= exclude each other",
            fix="leave one of them out; cluster_by= for columns with many values",
        )
    return TableOptions(
        partition_by=columns(subject, place, "partition_by", parts) if parts else (),
        cluster_by=columns(subject, place, "cluster_by", clusters) if clusters else (),
        properties=_texts(subject, place, "properties", common.get("properties", {})),
        column_comments=_texts(
            subject, place, "column_comments", common.get("column_comments", {})
        ),
        generated=generated_columns(subject, place, common.get("generated", {})),
        constraints=conditions(subject, place, common.get("constraints", {})),
        spark_conf=_texts(subject, place, "spark_conf", common.get("spark_conf", {})),
        max_rows_per_batch=common.get("max_rows_per_batch"),
        private=common.get("private", False),
    )


def _texts(subject: str, place: Place, option: str, given: Mapping[str, Any]) -> dict[str, str]:
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
            raise DeclarationError(
                subject,
                str(place),
                f"{option}={{{name!r}: {value!r}}} is no name and text",
                fix=f'write {option}={{"name": "value"}}',
            )
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
    }
