"""What a SELECT groups its rows by, and what in it only Databricks' own engine can read.

Asked by SQL files and by the queries of programs alike.
"""

from __future__ import annotations

import re

from sqlglot import exp

GENERATES = re.compile(
    r"\b(?:(?:pos|variant_)?explode|inline|stack|json_tuple)(?:_outer)?\b",
    re.IGNORECASE,
)
"""Functions that make several rows of one."""

_AFTER = ("having", "qualify", "order", "sort", "limit", "offset", "distinct")
"""Clauses by which a row can leave a result when it is corrected."""


def aggregates(select: exp.Select) -> bool:
    """Whether a SELECT brings rows together; what stands in brackets is another one."""
    if select.args.get("group") is not None or select.args.get("having") is not None:
        return True
    calls = (call for one in select.expressions for call in one.find_all(exp.AggFunc))
    return any(call.parent_select is select and not _over_window(call) for call in calls)


def _over_window(call: exp.Expr) -> bool:
    inner: exp.Expr = call
    while isinstance(inner.parent, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        inner = inner.parent
    return isinstance(inner.parent, exp.Window) and inner.parent.this is inner


def groups(select: exp.Select) -> tuple[str, ...] | None:
    """The names in the result of what is grouped by.

    Returns:
        Nothing for an aggregate of all rows; None when something is not selected, or when a row
        that is corrected can vanish by what comes after.
    """
    group, selected = select.args.get("group"), select.expressions
    if any(select.args.get(word) for word in _AFTER) or any(map(_generates, selected)):
        return None
    if group is None:
        return ()
    if any(value for word, value in group.args.items() if word != "expressions"):
        # ROLLUP, CUBE and the like make several rows of one key.
        return None
    return _names(selected, group.expressions)


def only_databricks(query: exp.Expr) -> tuple[str, str] | None:
    """What in a query Spark's own SQL does not have, and what to write in its place."""
    if query.find(exp.Qualify) is not None:
        return "QUALIFY", "select the window function in a subquery, and filter outside of it"
    if any(one.args.get("variant_extract") for one in query.find_all(exp.JSONExtract)):
        return "column:path", "write get_json_object(column, '$.path')"
    return None


def _generates(selected: exp.Expr) -> bool:
    return GENERATES.search(selected.sql(dialect="databricks")) is not None


def _names(selected: list[exp.Expr], grouped: list[exp.Expr]) -> tuple[str, ...] | None:
    names: list[str] = []
    for one in grouped:
        by_number = isinstance(one, exp.Literal) and one.is_int and int(one.name) <= len(selected)
        group = selected[int(one.name) - 1].unalias() if by_number else one
        plain = group.name if isinstance(group, exp.Column) else None
        found = [
            s.alias_or_name for s in selected if s.unalias() == group or s.alias_or_name == plain
        ]
        names.extend(found[:1] or [""])
    return tuple(names) if names and all(names) else None
