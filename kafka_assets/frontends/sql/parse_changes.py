"""The clauses of AUTO CDC INTO and APPLY CHANGES INTO, in any order."""

from __future__ import annotations

from typing import Any, Literal

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from kafka_assets.frontends.sql.statements import ChangesStatement, Name
from kafka_assets.frontends.sql.text import DIALECT, Cursor

_STARTS = (
    ("KEYS", "("),
    ("WHERE",),
    ("IGNORE", "NULL", "UPDATES"),
    ("APPLY", "AS", "DELETE", "WHEN"),
    ("APPLY", "AS", "TRUNCATE", "WHEN"),
    ("SEQUENCE", "BY"),
    ("COLUMNS",),
    ("STORED", "AS"),
    ("TRACK", "HISTORY", "ON"),
)
"""Words that begin a clause, and so end an expression before them."""


def sees_changes(cursor: Cursor) -> bool:
    """Whether changes come next."""
    return cursor.sees("AUTO", "CDC") or cursor.sees("APPLY", "CHANGES")


def changes(cursor: Cursor, name: Name | None, target: Name | None = None) -> ChangesStatement:
    """Read changes to the end of their statement.

    Args:
        cursor: Stands at AUTO or APPLY.
        name: Name of the flow, when one is said.
        target: The table whose own statement this is a part of; then INTO is left out.

    Raises:
        DeclarationError: A clause is missing, twice, or none of them.
    """
    offset = cursor.offset
    cursor.at += 2
    if cursor.sees("FROM", "SNAPSHOT") or cursor.sees("ONCE"):
        raise cursor.refused(
            f"changes {cursor.word().upper()} cannot be applied here",
            "bring them into a streaming table, and read that with FROM STREAM(name)",
        )
    if target is None:
        cursor.needs("INTO")
        target, _ = cursor.name("the target's name")
    if name is None:
        cursor.subject = f"changes to table {target[-1]!r}"
    cursor.needs("FROM")
    upstream = _upstream(cursor)
    said: dict[str, Any] = {}
    while cursor.token is not None:
        _clause(cursor, said)
    for option, words in (("keys", "KEYS (...)"), ("sequence_by", "SEQUENCE BY ...")):
        if option not in said:
            raise cursor.refused(f"has no {words}", f"add {words}", offset)
    columns, except_columns = said.get("columns", (None, None))
    track, track_except = said.get("track", (None, None))
    return ChangesStatement(
        source=cursor.source,
        name=name,
        offset=offset,
        target=target,
        upstream=upstream,
        keys=said["keys"],
        sequence_by=said["sequence_by"],
        deletes=said.get("deletes"),
        truncates=said.get("truncates"),
        columns=columns,
        except_columns=except_columns,
        ignore_nulls=said.get("ignore_nulls", False),
        scd_type=said.get("scd_type", 1),
        track=track,
        track_except=track_except,
    )


def _upstream(cursor: Cursor) -> Name:
    if not cursor.takes("STREAM"):
        raise cursor.refused(
            f"changes are read from a stream, not from {cursor.word()}", "write FROM STREAM(name)"
        )
    bracket = cursor.takes("(")
    upstream, offset = cursor.name("the source's name")
    if bracket and not cursor.sees(")"):
        raise cursor.refused(
            f"changes come from one table, not from {upstream[-1]} {cursor.word()}",
            "put it into a STREAMING TABLE, and name that here",
            offset,
        )
    if bracket:
        cursor.needs(")")
    return upstream


def _clause(cursor: Cursor, said: dict[str, Any]) -> None:
    offset = cursor.offset
    words, option, value = _read(cursor)
    if option in said:
        raise cursor.refused(f"{words} is said twice", "say it once", offset)
    said[option] = value


def _read(cursor: Cursor) -> tuple[str, str, Any]:
    """One clause: its words, the option that it sets, and the value."""
    if cursor.sees("KEYS", "("):
        cursor.needs("KEYS")
        return "KEYS", "keys", cursor.listed("a key column")
    if cursor.takes("IGNORE", "NULL", "UPDATES"):
        return "IGNORE NULL UPDATES", "ignore_nulls", True
    if cursor.takes("APPLY", "AS", "DELETE", "WHEN"):
        return "APPLY AS DELETE WHEN", "deletes", _expression(cursor)
    if cursor.takes("APPLY", "AS", "TRUNCATE", "WHEN"):
        return "APPLY AS TRUNCATE WHEN", "truncates", _expression(cursor)
    if cursor.takes("SEQUENCE", "BY"):
        return "SEQUENCE BY", "sequence_by", _expression(cursor)
    if cursor.takes("COLUMNS"):
        return "COLUMNS", "columns", _chosen(cursor)
    if cursor.takes("STORED", "AS"):
        return "STORED AS", "scd_type", _scd_type(cursor)
    if cursor.takes("TRACK", "HISTORY", "ON"):
        return "TRACK HISTORY ON", "track", _chosen(cursor)
    raise cursor.refused(
        f"the clause {cursor.word().upper()} does not exist in changes",
        "use KEYS, IGNORE NULL UPDATES, APPLY AS DELETE WHEN, APPLY AS TRUNCATE WHEN, SEQUENCE "
        "BY, COLUMNS, STORED AS or TRACK HISTORY ON; filter rows in the table that is read",
    )


def _expression(cursor: Cursor) -> str:
    """The text up to the next clause."""
    start, depth = cursor.at, 0
    while (token := cursor.token) is not None:
        if depth == 0 and any(cursor.sees(*words) for words in _STARTS):
            break
        depth += _depth(token)
        cursor.at += 1
    text = cursor.source.between(cursor.tokens[start : cursor.at])
    if not text:
        raise cursor.unexpected("an expression")
    try:
        DIALECT.parse(f"SELECT {text}")
    except SqlglotError as error:
        what = (getattr(error, "errors", None) or [{}])[0].get("description", error)
        at = cursor.tokens[start].start
        raise cursor.refused(f"{text!r} is no expression: {what}", "correct it", at) from None
    return text


def _depth(token: Token) -> int:
    return (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)


def _chosen(cursor: Cursor) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Columns that are named, or those that are excepted."""
    if cursor.takes("*"):
        cursor.needs("EXCEPT")
        return None, cursor.listed("a column's name")
    if cursor.sees("("):
        return cursor.listed("a column's name"), None
    names = [cursor.identifier("a column's name")]
    while cursor.takes(","):
        names.append(cursor.identifier("a column's name"))
    return tuple(names), None


def _scd_type(cursor: Cursor) -> Literal[1, 2]:
    cursor.needs("SCD", "TYPE")
    token = cursor.token
    if token is None or token.text not in ("1", "2"):
        raise cursor.refused(f"SCD TYPE {cursor.word()} does not exist", "write 1 or 2")
    cursor.at += 1
    return 1 if token.text == "1" else 2
