"""The clauses between a table's name and AS, in any order; its columns are `parse_columns`'s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot.tokenizer_core import TokenType

from kafka_assets.frontends.sql.statements import Property
from kafka_assets.frontends.sql.text import Cursor

AUTO = ("AUTO",)
"""Databricks chooses the columns by how a table is read."""


def clause(cursor: Cursor, said: dict[str, Any]) -> None:
    """Read one clause into the attributes of `TableStatement` that it says.

    Raises:
        DeclarationError: There is no such clause here, or it is said twice.
    """
    offset = cursor.offset
    for words, (attribute, read) in _CLAUSES.items():
        if cursor.takes(*words.split()):
            if attribute in said:
                raise cursor.refused(f"{words} is said twice", "say it once", offset)
            said[attribute] = read(cursor)
            return
    word = cursor.word().upper()
    raise cursor.refused(f"the clause {word} does not exist here", _instead(word), offset)


def _instead(word: str) -> str:
    return {
        "LOCATION": "use TBLPROPERTIES ('kafka_assets.path' = 'silver/name'), inside the lake",
        "SCHEDULE": "use TBLPROPERTIES ('kafka_assets.freshness' = '10 minutes')",
        "TRIGGER": "remove it: a table runs when its upstreams have something new",
    }.get(word, "use COMMENT, TBLPROPERTIES, PARTITIONED BY, CLUSTER BY, AS SELECT, or remove it")


def _using(cursor: Cursor) -> str:
    if not cursor.takes("DELTA"):
        raise cursor.refused(f"USING {cursor.word()}: every table is Delta", "write USING DELTA")
    return "delta"


def _names(cursor: Cursor) -> tuple[str, ...]:
    if not cursor.sees("("):
        raise cursor.refused(
            f"{cursor.word().upper()} is no list of columns", "name the columns: (a, b)"
        )
    return cursor.listed("a column's name")


def _clustered(cursor: Cursor) -> tuple[str, ...]:
    return AUTO if cursor.takes("AUTO") else _names(cursor)


def _properties(cursor: Cursor) -> dict[str, Property]:
    found: dict[str, Property] = {}
    cursor.needs("(")
    while True:
        offset = cursor.offset
        key = _key(cursor)
        cursor.takes("=")
        if key in found:
            raise cursor.refused(f"the property {key!r} is given twice", "give it once", offset)
        found[key] = Property(_value(cursor, key), offset)
        if not cursor.takes(","):
            break
    cursor.needs(")")
    return found


def _key(cursor: Cursor) -> str:
    token = cursor.token
    if token is not None and token.token_type == TokenType.STRING:
        return cursor.string("a property")
    start = cursor.at
    cursor.name("a property's name")
    return cursor.source.between(cursor.tokens[start : cursor.at])


def _value(cursor: Cursor, key: str) -> str:
    token = cursor.token
    if token is not None and token.token_type == TokenType.STRING:
        return cursor.string("a value")
    if token is not None and token.text.upper() in ("TRUE", "FALSE"):
        cursor.at += 1
        return token.text.lower()
    sign = "-" if cursor.takes("-") else ""
    token = cursor.token
    if token is None or token.token_type != TokenType.NUMBER:
        raise cursor.unexpected(f"the value of {key!r}")
    cursor.at += 1
    return sign + token.text


def _comment(cursor: Cursor) -> str:
    return cursor.string("a comment")


_CLAUSES: dict[str, tuple[str, Callable[[Cursor], Any]]] = {
    "COMMENT": ("comment", _comment),
    "TBLPROPERTIES": ("properties", _properties),
    "PARTITIONED BY": ("partitioned_by", _names),
    "CLUSTER BY": ("clustered_by", _clustered),
    "USING": ("using", _using),
}
