"""What stands between a table's name and AS: columns, expectations, and clauses in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from kafka_assets.declarations.model import Action
from kafka_assets.frontends.sql.statements import Column, Constraint, Property
from kafka_assets.frontends.sql.text import DIALECT, Cursor


def columns(cursor: Cursor) -> tuple[tuple[Column, ...], tuple[Constraint, ...]]:
    """Read the list of columns and expectations.

    Raises:
        DeclarationError: Something in it is neither, or cannot be kept.
    """
    found: list[Column] = []
    constraints: list[Constraint] = []
    cursor.needs("(")
    while True:
        if cursor.sees("CONSTRAINT"):
            constraints.append(_constraint(cursor))
        else:
            found.append(_column(cursor))
        if not cursor.takes(","):
            break
    cursor.needs(")")
    names = [column.name.lower() for column in found]
    for column in found:
        if names.count(column.name.lower()) > 1:
            raise cursor.refused(
                f"the column {column.name!r} is listed twice", "list it once", column.offset
            )
    return tuple(found), tuple(constraints)


def _constraint(cursor: Cursor) -> Constraint:
    offset = cursor.offset
    cursor.needs("CONSTRAINT")
    (*_, name), _ = cursor.name("the expectation's name")
    if not cursor.sees("EXPECT"):
        raise cursor.refused(
            f"CONSTRAINT {name} {cursor.word().upper()} cannot be kept by a table of a stream",
            "write CONSTRAINT name EXPECT (condition)",
        )
    cursor.needs("EXPECT")
    condition = cursor.source.between(cursor.inside())
    action: Action = "warn"
    if cursor.takes("ON", "VIOLATION"):
        if cursor.takes("DROP", "ROW"):
            action = "drop"
        elif cursor.takes("FAIL", "UPDATE"):
            action = "fail"
        else:
            raise cursor.unexpected("DROP ROW or FAIL UPDATE")
    return Constraint(name, condition, action, offset)


def _column(cursor: Cursor) -> Column:
    offset = cursor.offset
    name = cursor.identifier("a column's name")
    if cursor.sees("."):
        raise cursor.refused("a column's name has no dots", "write the column's name", offset)
    start, depth = cursor.at, 0
    while (token := cursor.token) is not None:
        if depth == 0 and any(cursor.sees(end) for end in (",", ")", "COMMENT", "NOT", *_REFUSED)):
            break
        depth += token.text in ("(", "<")
        depth -= token.text in (")", ">")
        cursor.at += 1
    kind = cursor.source.between(cursor.tokens[start : cursor.at]) or None
    if kind is not None and not _is_type(kind):
        at = cursor.tokens[start].start
        raise cursor.refused(f"{kind!r} is no type", "write a type of Spark SQL", at)
    comment = cursor.string("a comment") if cursor.takes("COMMENT") else None
    if not (cursor.sees(",") or cursor.sees(")")):
        raise cursor.refused(
            f"{cursor.word().upper()} on the column {name!r} cannot be kept",
            "compute the value in the SELECT; check it with CONSTRAINT name EXPECT (condition)",
        )
    return Column(name, kind, comment, offset)


_REFUSED = ("GENERATED", "DEFAULT", "MASK", "PRIMARY", "REFERENCES", "COLLATE", "CONSTRAINT")
"""What Databricks allows behind a column's type, and no table here can do."""


def _is_type(text: str) -> bool:
    try:
        parsed = exp.DataType.build(text, dialect=DIALECT)
    except (SqlglotError, ValueError):
        return False
    # The parser passes over words behind a type.
    words = [token.text.upper() for token in DIALECT.tokenize(text)]
    return parsed is not None and not (
        len(words) > 1 and words[1].isidentifier() and words[0] not in ("INTERVAL", "TIMESTAMP")
    )


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
    "CLUSTER BY": ("clustered_by", _names),
    "USING": ("using", _using),
}
