"""What can be known of a rule from its SQL text alone.

The parser is sqlglot's for Spark. What only Spark can know, such as whether a column exists, is
found by the plan, not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_REACHES_OUT = ("java_method", "reflect", "try_reflect")
"""Functions of Spark that call any static method of Java."""


def rule_problem(rule: str) -> str | None:
    """Say what is wrong with a rule's SQL.

    Args:
        rule: The text of a rule.

    Returns:
        The problem in a few words, or None when the text is one condition on columns.
    """
    if not rule.strip():
        return "it is empty"
    try:
        statements = sqlglot.parse(f"SELECT 1 WHERE ({rule}\n)", dialect="spark")
    except SqlglotError as error:
        details = getattr(error, "errors", None)
        return str(details[0]["description"]) if details else str(error).splitlines()[0]
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        return "more than one statement"
    condition = statements[0].args["where"].this
    if not isinstance(condition, exp.Paren) or statements[0].sql() != (
        exp.select("1").where(condition).sql()
    ):
        return "more than one condition"
    if condition.find(exp.Subquery, exp.Select, exp.Table):
        return "a condition may not read other tables"
    if condition.find(exp.AggFunc, exp.Window) is not None:
        return "a condition is about one row: no aggregates and no windows"
    for call in condition.find_all(exp.Anonymous):
        # By its name alone: quoted, or behind a catalog, it is the same function.
        if call.name.lower() in _REACHES_OUT:
            return f"{call.name}() runs code that is not SQL"
    if isinstance(condition.this, exp.Alias | exp.Literal):
        return "not a condition"
    return None


Operand = Literal["number", "string", "other"]
"""What a column can be compared with: numbers with numbers, strings with strings."""

_COMPARES = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In)
_HARMLESS = (
    *_COMPARES,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Paren,
    exp.Neg,
    exp.Is,
    exp.Null,
    exp.Boolean,
    exp.Literal,
    exp.Column,
    exp.Identifier,
)


def cannot_raise(rule: str, columns: Mapping[str, Operand]) -> bool:
    """Whether a rule can be tried on any row with these columns without stopping the query.

    Under ANSI a cast or a division raises on some rows. A rule that only compares columns with
    values of their own kind, or with null, never does. True means certain; False, that it is not.

    Args:
        rule: A text without `rule_problem`.
        columns: Column name in lower case -> what it can be compared with.
    """
    condition = sqlglot.parse_one(rule, dialect="spark")
    for part in condition.walk():
        if not isinstance(part, _HARMLESS):
            return False
        if isinstance(part, exp.Column) and (part.table or part.name.lower() not in columns):
            return False
        if isinstance(part, _COMPARES) and len(_operands(part, columns)) != 1:
            return False
    return True


def _operands(comparison: exp.Expression, columns: Mapping[str, Operand]) -> set[str]:
    kinds: set[str] = set()
    for child in comparison.iter_expressions():
        value = child.unnest()
        if isinstance(value, exp.Neg):
            value = value.this.unnest()
        if isinstance(value, exp.Literal):
            kinds.add("string" if value.is_string else "number")
        elif isinstance(value, exp.Column) and columns.get(value.name.lower()) != "other":
            kinds.add(str(columns.get(value.name.lower())))
        else:
            # Two of these never make one kind.
            kinds.update(("other", "unknown"))
    return kinds
