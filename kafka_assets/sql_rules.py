"""Whether a text is one SQL condition and nothing more.

The parser is sqlglot's for Spark. What only Spark can know, such as whether a column exists, is
found by the plan, not here.
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError


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
    if isinstance(condition.this, exp.Alias | exp.Literal):
        return "not a condition"
    return None
