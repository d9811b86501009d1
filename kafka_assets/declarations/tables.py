"""The words for topics and for tables that have a function of their own.

A decorator checks what it can see by itself (a name, a layer, a window) and returns a declaration.
How declarations fit together is decided in `graph`; how they run, in `streaming`; how Dagster sees
them, in `orchestration`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

from kafka_assets.declarations.common import Common, table_of
from kafka_assets.declarations.model import (
    Author,
    Expectation,
    ExternalTable,
    Read,
    Table,
    TableExpectation,
    Topic,
)
from kafka_assets.declarations.places import (
    caller,
    check_layer,
    check_name,
    check_owners,
    columns,
    declared,
    place_of,
)
from kafka_assets.errors import DeclarationError
from kafka_assets.options import JsonOptions

WINDOW = re.compile(r"[1-9][0-9]* (second|minute|hour|day|week)s?")


def kafka_topic(
    topic: str,
    *,
    name: str | None = None,
    description: str | None = None,
    owners: Sequence[str] = (),
) -> Topic:
    """Declare a Kafka topic.

    Args:
        topic: The topic's name at the broker.
        name: Its name in the graph; by default the topic's name in snake_case.
        description: Shown in the Dagster UI.
        owners: Emails, or `team:name`.

    Returns:
        A declaration. A table reads the topic by having a parameter of its graph name, and gets a
        frame of key, value, headers, topic, partition, offset, timestamp, timestamp_type and
        ingested_at.

    Raises:
        DeclarationError: The name cannot be used.
    """
    place = caller()
    snake = name if name is not None else re.sub(r"[^a-z0-9]+", "_", topic.lower()).strip("_")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) or topic in (".", ".."):
        raise DeclarationError(
            f"topic {topic!r}",
            str(place),
            "is no legal Kafka topic name",
            fix="use at most 249 letters, digits, dots, underscores and hyphens",
        )
    check_name(f"topic {topic!r}", place, snake, "name=")
    check_owners(f"topic {topic!r}", place, owners)
    return declared(Topic(snake, topic, description, tuple(owners), place))


def external_table(
    name: str,
    *,
    layer: str = "silver",
    key: Sequence[str] | None = None,
    path: str | None = None,
    description: str | None = None,
) -> ExternalTable:
    """Declare a Delta table that another code location, or another program, writes.

    Args:
        name: Its name in this graph, by which functions here have it as a parameter.
        layer: Its layer there.
        key: Its asset key there; by default `(layer, name)`, which is what a table of
            kafka_assets has. With the same key, Dagster shows lineage across code locations.
        path: Where it lies: absolute, or relative to the lake; by default `<layer>/<name>`.
        description: Shown in the Dagster UI.

    Returns:
        A declaration. A table reads it by having a parameter of its name.

    Raises:
        DeclarationError: The name or layer cannot be used.
    """
    place = caller()
    check_name(f"external table {name!r}", place, name, "its name")
    check_layer(f"external table {name!r}", place, layer)
    return declared(
        ExternalTable(
            name, tuple(key or (layer, name)), path or f"{layer}/{name}", description, place
        )
    )


def streaming_table(
    *,
    layer: str,
    schema: str | None = None,
    json: JsonOptions | None = None,
    reads: Mapping[str, Read] | None = None,
    keys: str | Sequence[str] = (),
    **common: Unpack[Common],
) -> Callable[[Author], Table]:
    """Declare a table that a stream appends to, row by row, or updates by key.

    Args:
        layer: `bronze`, `silver` or `gold`.
        schema: A schema file of the schemas folder. The function then receives its upstream
            decoded: the payload's fields, then `_source`, `_key`, `_headers`; rows that do not
            decode become dead letters.
        json: How strictly the payload is decoded; only with `schema`.
        reads: Parameter name -> how it is read. `stream` (what is not said): its new rows.
            `static`: the whole table as it is when a batch runs, to look things up in. `changes`:
            the change feed of a table whose rows are replaced or removed, with `_change_type`,
            `_commit_version` and `_commit_timestamp`.
        keys: Columns of an aggregate that is updated: each batch replaces the rows with its keys
            (MERGE). Without it, rows are only appended; an aggregate then needs a watermark, and
            gives a row when its window is over.
        common: As in `Common`.

    Returns:
        A decorator that turns a pure function, DataFrame in and DataFrame out, into a `Table`. The
        function's parameter names are its upstream topics or tables.

    Raises:
        DeclarationError: Something of it is wrong; names the table, file, line and the fix.
    """

    def declare(function: Author) -> Table:
        place = place_of(function)
        names = columns(f"table {function.__name__!r}", place, "keys", keys) if keys else ()
        return table_of(
            function,
            "streaming_table",
            layer,
            common,
            schema=schema,
            json=json,
            reads=reads,
            keys=names,
        )

    return declare


def windowed_table(
    *,
    layer: str,
    event_time: str,
    window: str,
    window_column: str | None = None,
    **common: Unpack[Common],
) -> Callable[[Author], Table]:
    """Declare an aggregate over windows of event time that late rows correct.

    Each run collects the windows that new upstream rows fall into, hands the function all upstream
    rows of just these windows, and replaces these windows in the table. There is no state to lose,
    and a late row, however late, corrects its window.

    Args:
        layer: `bronze`, `silver` or `gold`.
        event_time: The upstream's timestamp column.
        window: Length of a window, such as `"1 hour"`; windows are aligned to the epoch in UTC.
            Rows of one result row must lie in one window.
        window_column: The result's timestamp column that lies inside the window; by default the
            only timestamp column of the result.
        common: As in `Common`.

    Returns:
        A decorator that turns a function into a `Table`.

    Raises:
        DeclarationError: Something of it is wrong; names the table, file, line and the fix.
    """

    def declare(function: Author) -> Table:
        if not WINDOW.fullmatch(window):
            raise DeclarationError(
                f"table {function.__name__!r}",
                str(place_of(function)),
                f"window={window!r} is no length of time",
                fix='write a number and a unit, such as window="1 hour" or "15 minutes"',
            )
        return table_of(
            function,
            "windowed_table",
            layer,
            common,
            event_time=event_time,
            window=window,
            window_column=window_column,
        )

    return declare


def materialized_view(*, layer: str, **common: Unpack[Common]) -> Callable[[Author], Table]:
    """Declare a table that is computed whole from its upstream tables when one of them changed.

    It reads every upstream at a pinned version and is replaced atomically; when no upstream
    changed, nothing is computed.

    Args:
        layer: `bronze`, `silver` or `gold`.
        common: As in `Common`.

    Returns:
        A decorator that turns a function of one or more tables into a `Table`.

    Raises:
        DeclarationError: Something of it is wrong; names the table, file, line and the fix.
    """

    def declare(function: Author) -> Table:
        return table_of(function, "materialized_view", layer, common)

    return declare


def temporary_view(
    *, name: str | None = None, comment: str | None = None, reads: Mapping[str, Read] | None = None
) -> Callable[[Author], Table]:
    """Declare a step that tables of this pipeline share: it has no files and is never run alone.

    Args:
        name: Its name; by default the function's.
        comment: Description in the UI; by default the function's docstring.
        reads: As in `streaming_table`.

    Returns:
        A decorator that turns a function into a `Table` without a place in the lake. A table that
        has it as a parameter gets the function's result, as a stream where it reads streams.

    Raises:
        DeclarationError: Something of it is wrong; names the view, file, line and the fix.
    """

    def declare(function: Author) -> Table:
        common: Common = {"comment": comment}
        if name is not None:
            common["name"] = name
        view = table_of(function, "temporary_view", "silver", common, reads=reads)
        rules: list[Expectation | TableExpectation] = [
            *view.expectations,
            *view.table_expectations,
        ]
        if rules:
            raise DeclarationError(
                f"view {view.name!r}",
                str(rules[0].place),
                f"has the expectation {rules[0].name!r}, and no rows of its own to keep or drop",
                fix="put the expectation on the tables that read the view",
            )
        return view

    return declare
