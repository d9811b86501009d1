"""The list behind a table's name: columns, expectations, constraints and keys."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from kafka_assets.declarations.model import Action
from kafka_assets.frontends.sql.statements import Column, Constraint, Key
from kafka_assets.frontends.sql.text import DIALECT, Cursor

_KEY_OPTIONS = (
    ("NOT", "ENFORCED"),
    ("DEFERRABLE",),
    ("NOT", "DEFERRABLE"),
    ("INITIALLY", "DEFERRED"),
    ("NORELY",),
    ("RELY",),
    ("MATCH", "FULL"),
    ("ON", "UPDATE", "NO", "ACTION"),
    ("ON", "DELETE", "NO", "ACTION"),
)
"""What may stand behind a key, which promises something to nobody here."""


def columns(cursor: Cursor) -> dict[str, Any]:
    """Read the list.

    Returns:
        The attributes of `TableStatement` that it says.

    Raises:
        DeclarationError: Something in it is none of these, or cannot be kept.
    """
    found: list[Column] = []
    constraints: list[Constraint] = []
    keys: list[Key] = []
    cursor.needs("(")
    while True:
        if cursor.sees("PRIMARY", "KEY") or cursor.sees("FOREIGN", "KEY"):
            keys.append(_key(cursor))
        elif cursor.sees("CONSTRAINT"):
            _constraint(cursor, constraints, keys)
        elif cursor.sees("CHECK", "(") or cursor.sees("EXPECT", "("):
            raise cursor.refused(
                f"{cursor.word().upper()} without a name", "write CONSTRAINT name in front of it"
            )
        else:
            found.append(_column(cursor, keys))
        if not cursor.takes(","):
            break
    cursor.needs(")")
    names = [column.name.lower() for column in found]
    for column in found:
        if names.count(column.name.lower()) > 1:
            raise cursor.refused(
                f"the column {column.name!r} is listed twice", "list it once", column.offset
            )
    return {"columns": tuple(found), "constraints": tuple(constraints), "keys": tuple(keys)}


def _constraint(cursor: Cursor, constraints: list[Constraint], keys: list[Key]) -> None:
    offset = cursor.offset
    cursor.needs("CONSTRAINT")
    written = cursor.identifier("the constraint's name")
    if cursor.sees("PRIMARY", "KEY") or cursor.sees("FOREIGN", "KEY"):
        keys.append(_key(cursor))
        return
    if not (cursor.sees("EXPECT") or cursor.sees("CHECK")):
        raise cursor.refused(
            f"CONSTRAINT {written} {cursor.word().upper()} cannot be kept",
            "write CONSTRAINT name EXPECT (condition), or CHECK (condition)",
        )
    action: Action | None = None if cursor.takes("CHECK") else "warn"
    if action:
        cursor.needs("EXPECT")
    condition = cursor.source.between(cursor.inside())
    if action is None:
        cursor.takes("ENFORCED")
    elif cursor.takes("ON", "VIOLATION"):
        if cursor.takes("DROP", "ROW"):
            action = "drop"
        elif cursor.takes("FAIL", "UPDATE"):
            action = "fail"
        else:
            raise cursor.unexpected("DROP ROW or FAIL UPDATE")
    name = written.lower()
    if action is not None:
        # Named as a check of Dagster is; Databricks takes any text.
        name = re.sub(r"[^a-z0-9_]+", "_", name).strip("_") or name
    constraints.append(Constraint(name, written, condition, action, offset))


def _key(cursor: Cursor) -> Key:
    offset, start = cursor.offset, cursor.at
    if cursor.takes("PRIMARY", "KEY"):
        cursor.inside()
    else:
        cursor.needs("FOREIGN", "KEY")
        cursor.inside()
        _references(cursor)
    text = cursor.source.between(cursor.tokens[start : cursor.at])
    _pass_key_options(cursor)
    return Key(text, offset)


def _references(cursor: Cursor) -> None:
    cursor.needs("REFERENCES")
    cursor.name("the table that the key names")
    if cursor.sees("("):
        cursor.inside()


def _pass_key_options(cursor: Cursor) -> None:
    while any(cursor.takes(*words) for words in _KEY_OPTIONS):
        pass


def _column(cursor: Cursor, keys: list[Key]) -> Column:
    offset = cursor.offset
    name = cursor.identifier("a column's name")
    if cursor.sees("."):
        raise cursor.refused("a column's name has no dots", "write the column's name", offset)
    kind = _type(cursor)
    said: dict[str, Any] = {}
    while not (cursor.sees(",") or cursor.sees(")")):
        _say(cursor, name, said, keys)
    generated = said.get("generated")
    if generated is not None and kind is not None:
        said["generated"] = f"CAST({generated} AS {kind})"
    return Column(name, kind, said.pop("comment", None), offset, **said)


def _say(cursor: Cursor, name: str, said: dict[str, Any], keys: list[Key]) -> None:
    """Read one of the words behind a column's type."""
    offset = cursor.offset
    if "comment" not in said and cursor.takes("COMMENT"):
        said["comment"] = cursor.string("a comment")
    elif "required" not in said and cursor.takes("NOT", "NULL"):
        said["required"] = True
    elif "generated" not in said and cursor.takes("GENERATED", "ALWAYS", "AS"):
        if not cursor.sees("("):
            raise cursor.refused(
                f"GENERATED ALWAYS AS {cursor.word().upper()} on the column {name!r} cannot be "
                "kept: a run that is repeated must give the same rows",
                "write GENERATED ALWAYS AS (expression)",
                offset,
            )
        said["generated"] = cursor.source.between(cursor.inside())
    elif (key := _takes_key(cursor)) is not None:
        keys.append(Key(f"{key} on {name}", offset))
        _pass_key_options(cursor)
    else:
        raise cursor.refused(
            f"{cursor.word().upper()} on the column {name!r} cannot be kept",
            "compute the value in the SELECT; for a condition, write CONSTRAINT name "
            "EXPECT (condition) or CHECK (condition) behind the columns",
        )


def _takes_key(cursor: Cursor) -> str | None:
    """Go past a column's own key, and give it as it is written, without its name."""
    before = cursor.at
    if cursor.takes("CONSTRAINT"):
        cursor.name("the constraint's name")
    start = cursor.at
    if not cursor.takes("PRIMARY", "KEY"):
        if not (cursor.takes("FOREIGN", "KEY") or cursor.sees("REFERENCES")):
            cursor.at = before
            return None
        _references(cursor)
    return cursor.source.between(cursor.tokens[start : cursor.at])


_BEHIND_A_TYPE = (
    "COMMENT",
    "NOT",
    "GENERATED",
    "DEFAULT",
    "MASK",
    "PRIMARY KEY",
    "FOREIGN KEY",
    "REFERENCES",
    "COLLATE",
    "CONSTRAINT",
    "CHECK",
    "EXPECT",
    "UNIQUE",
)


def _type(cursor: Cursor) -> str | None:
    start, depth = cursor.at, 0
    while (token := cursor.token) is not None:
        if depth == 0 and any(cursor.sees(*end.split()) for end in (",", ")", *_BEHIND_A_TYPE)):
            break
        depth += token.text in ("(", "<")
        depth -= token.text in (")", ">")
        cursor.at += 1
    kind = cursor.source.between(cursor.tokens[start : cursor.at]) or None
    if kind is not None and not _is_type(kind):
        at = cursor.tokens[start].start
        raise cursor.refused(f"{kind!r} is no type", "write a type of Spark SQL", at)
    return kind


def _is_type(text: str) -> bool:
    try:
        parsed = exp.DataType.build(text, dialect=DIALECT)
    except (SqlglotError, ValueError):
        return False
    # The parser passes over words behind a type.
    words = [word for token in DIALECT.tokenize(text) for word in token.text.upper().split()]
    return parsed is not None and not (
        len(words) > 1 and words[1].isidentifier() and words[0] not in ("INTERVAL", "TIMESTAMP")
    )
