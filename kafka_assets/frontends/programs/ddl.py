"""Columns as DDL in a program: what `schema=` of a table says, and what that of files may say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_assets.declarations.computed import never_null
from kafka_assets.errors import DeclarationError
from kafka_assets.frontends.programs.registry import snake
from kafka_assets.frontends.sql.parse_columns import columns
from kafka_assets.frontends.sql.statements import Column
from kafka_assets.frontends.sql.text import Cursor, Source


@dataclass(frozen=True)
class Said:
    """What columns as DDL say.

    Attributes:
        columns: Those that the function returns, as DDL without comments and NOT NULL.
        generated: Those that are computed from them.
        comments: Comments of all columns.
        constraints: Conditions on all rows; NOT NULL is one.
        keys: Keys, which Databricks only notes as well.
    """

    columns: str
    generated: dict[str, str]
    comments: dict[str, str]
    constraints: dict[str, str]
    keys: tuple[str, ...]


def said_by(ddl: str) -> Said:
    """Take columns as DDL apart; expressions stay as their author wrote them.

    Raises:
        ValueError: It says something that has no counterpart; or is no DDL.
    """
    listed = _listed(ddl)
    given: tuple[Column, ...] = listed["columns"]
    untyped = [column.name for column in given if column.type is None]
    if untyped:
        raise ValueError(f"the column {untyped[0]!r} has no type")
    constraints = never_null(column.name for column in given if column.required)
    for rule in listed["constraints"]:
        name = snake(rule.written)
        if rule.action is not None:
            raise ValueError(f"CONSTRAINT {rule.written} EXPECT has no counterpart in schema=")
        if name in constraints:
            raise ValueError(f"two constraints are named {name!r}")
        constraints[name] = rule.condition
    returned = [column for column in given if column.generated is None]
    return Said(
        ", ".join(f"`{column.name.replace('`', '``')}` {column.type}" for column in returned),
        {column.name: column.generated for column in given if column.generated is not None},
        {column.name: column.comment for column in given if column.comment},
        constraints,
        tuple(key.text for key in listed["keys"]),
    )


def refuse_constraints(ddl: str) -> None:
    """Refuse what columns as DDL say beside types, NOT NULL and comments.

    Raises:
        ValueError: Names it; or the text is no DDL.
    """
    listed = _listed(ddl)
    more = [f"GENERATED on {one.name}" for one in listed["columns"] if one.generated is not None]
    more += [f"CONSTRAINT {one.written}" for one in listed["constraints"]]
    more += [key.text for key in listed["keys"]]
    if more:
        raise ValueError(f"{more[0]} has no counterpart here")


def _listed(ddl: str) -> dict[str, Any]:
    source = Source("schema=", f"({ddl}\n)")
    try:
        statements = source.statements()
        cursor = Cursor(source, statements[0])
        listed = columns(cursor)
        if cursor.token is not None or len(statements) > 1:
            raise cursor.unexpected("the end")
    except DeclarationError as error:
        # The place is one in the text, which stands in a program.
        told = error.what.removeprefix(f"{error.subject} ({error.where}): ")
        raise ValueError(told.splitlines()[0]) from None
    return listed
