"""Tokens -> statements. What is no statement of a pipeline is refused by its own name.

What stands between a table's name and AS is `parse_columns`' and `parse_table`'s, the clauses of
changes are `parse_changes`'; what a SELECT reads is `query`'s to find.
"""

from __future__ import annotations

from typing import Any

from kafka_assets.frontends.sql.open_values import refuse_open_values
from kafka_assets.frontends.sql.parse_changes import changes, sees_changes
from kafka_assets.frontends.sql.parse_columns import columns
from kafka_assets.frontends.sql.parse_table import clause
from kafka_assets.frontends.sql.statements import (
    FlowStatement,
    Select,
    Statement,
    TableKind,
    TableStatement,
)
from kafka_assets.frontends.sql.text import Cursor, Source

_FORMS = (
    "CREATE OR REFRESH STREAMING TABLE, CREATE OR REFRESH MATERIALIZED VIEW, CREATE TEMPORARY "
    "VIEW, CREATE FLOW or AUTO CDC INTO"
)


def parse(source: Source) -> list[Statement]:
    """All statements of a file.

    Raises:
        DeclarationError: Something is no statement of a pipeline; names file, line and column.
    """
    found: list[Statement] = []
    for tokens in source.statements():
        refuse_open_values(source, tokens)
        cursor = Cursor(source, tokens)
        found += _statement(cursor)
        if cursor.token is not None:
            raise cursor.unexpected("the statement's end (;)")
    return found


def _statement(cursor: Cursor) -> list[Statement]:
    if sees_changes(cursor):
        return [changes(cursor, None)]
    if cursor.takes("SET"):
        # What it says has been put into its places: see `values`.
        cursor.rest()
        return []
    if not cursor.sees("CREATE"):
        raise cursor.refused(
            f"{cursor.word().upper()} is no statement that declares something", f"use {_FORMS}"
        )
    offset = cursor.offset
    cursor.needs("CREATE")
    if cursor.takes("FLOW"):
        return [_flow(cursor, offset)]
    return _table(cursor, offset)


def _flow(cursor: Cursor, offset: int) -> Statement:
    name, _ = cursor.name("the flow's name")
    cursor.subject = f"flow {name[-1]!r}"
    comment = cursor.string("a comment") if cursor.takes("COMMENT") else None
    cursor.needs("AS")
    if sees_changes(cursor):
        if comment is not None:
            raise cursor.refused(
                "COMMENT on a flow of changes has no place", "put it on the target table", offset
            )
        return changes(cursor, name)
    cursor.needs("INSERT", "INTO")
    once = cursor.takes("ONCE")
    target, _ = cursor.name("the target's name")
    cursor.needs("BY", "NAME")
    return FlowStatement(cursor.source, name, offset, target, _select(cursor), once, comment)


def _table(cursor: Cursor, offset: int) -> list[Statement]:
    kind, private = _head(cursor, offset)
    # Tables and views are made only when they are not there.
    cursor.takes("IF", "NOT", "EXISTS")
    name, _ = cursor.name("a name")
    cursor.subject = f"{'view' if kind == 'temporary_view' else 'table'} {name[-1]!r}"
    said: dict[str, Any] = {}
    if cursor.sees("("):
        said |= columns(cursor)
    while cursor.token is not None and not (cursor.sees("AS") or cursor.sees("FLOW")):
        clause(cursor, said)
    found: list[Statement] = []
    if cursor.takes("FLOW"):
        if not sees_changes(cursor):
            raise cursor.unexpected("AUTO CDC")
        found.append(changes(cursor, None, target=name))
    elif cursor.takes("AS"):
        said["select"] = _select(cursor)
    if said.pop("using", None) and kind == "temporary_view":
        raise cursor.refused("USING on a view, which has no files", "remove it", offset)
    table = TableStatement(cursor.source, kind, name, offset, private, **said)
    if table.select is None and (kind != "streaming_table"):
        raise cursor.refused("has no AS SELECT", "write AS and a SELECT", offset)
    if found and kind != "streaming_table":
        raise cursor.refused("FLOW on what is no streaming table", "use STREAMING TABLE", offset)
    return [table, *found]


def _head(cursor: Cursor, offset: int) -> tuple[TableKind, bool]:
    """The words between CREATE and the name: what it is, and whether it is private."""
    # Every table here is brought up to date, never made anew.
    replace, _ = cursor.takes("OR", "REPLACE"), cursor.takes("OR", "REFRESH")
    temporary = cursor.takes("TEMPORARY") or cursor.takes("TEMP")
    private = cursor.takes("PRIVATE")
    if cursor.takes("MATERIALIZED", "VIEW"):
        kind: TableKind = "materialized_view"
    else:
        streaming, live = cursor.takes("STREAMING"), cursor.takes("LIVE")
        if cursor.takes("TABLE") and (streaming or live):
            # A temporary live table was the word for a private one.
            private, temporary = private or (temporary and live), temporary and not live
            kind = "streaming_table" if streaming else "materialized_view"
        elif cursor.takes("VIEW") and (temporary or live):
            kind, temporary, replace = "temporary_view", False, False
        else:
            words = cursor.source.between(cursor.tokens[: max(cursor.at, 2)])
            raise cursor.refused(
                f"{' '.join(words.upper().split())} declares nothing of a pipeline",
                f"use {_FORMS}",
                offset,
            )
    if temporary or replace or (private and kind == "temporary_view"):
        word = "TEMPORARY" if temporary else "OR REPLACE" if replace else "PRIVATE"
        raise cursor.refused(f"{word} does not fit here", f"use {_FORMS}", offset)
    return kind, private


def _select(cursor: Cursor) -> Select:
    if not any(cursor.sees(word) for word in ("SELECT", "WITH", "FROM", "(", "TABLE", "VALUES")):
        raise cursor.unexpected("a SELECT")
    offset = cursor.offset
    return Select(tuple(cursor.rest()), offset)
