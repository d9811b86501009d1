"""Columns that a program makes, read as text and as names, without an engine.

While a program is loaded, its Columns are those of Spark Connect: trees that nobody has sent. Here
they become SQL, and the columns that a grouping gives get their names.
"""

from __future__ import annotations

from typing import Any

_INFIX = {
    "==": "=",
    "and": "AND",
    "or": "OR",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "+": "+",
    "-": "-",
    "*": "*",
    "/": "/",
    "%": "%",
    "<=>": "<=>",
    "like": "LIKE",
    "ilike": "ILIKE",
    "rlike": "RLIKE",
}


def is_column(value: object) -> bool:
    """Whether a value is a Column."""
    from pyspark.sql import Column

    return isinstance(value, Column)


def sql_of(column: Any) -> str | None:
    """The SQL text of a Column, or None when it has parts that have no simple text."""
    try:
        text = _sql(column._expr)
        node = column._expr
        whole = type(node).__name__ == "UnresolvedFunction" and text.startswith("(")
        return text[1:-1] if whole else text
    except (AttributeError, LookupError, TypeError, ValueError):
        return None


def name_of(column: Any) -> str | None:
    """The name that a column of a select list or a grouping has in the result."""
    if isinstance(column, str):
        return column.rpartition(".")[2]
    node: Any = getattr(column, "_expr", None)
    kind = type(node).__name__
    if kind == "ColumnAlias" and len(node._alias) == 1:
        return str(node._alias[0])
    if kind == "ColumnReference":
        return str(node._unparsed_identifier).rpartition(".")[2].replace("`", "")
    if kind == "UnresolvedFunction" and node._name in ("window", "session_window"):
        return str(node._name)
    return None


def reference_of(column: Any) -> str | None:
    """The column that an expression only renames, such as `a` of `col("a").alias("b")`."""
    if isinstance(column, str):
        return column
    node: Any = getattr(column, "_expr", None)
    if type(node).__name__ == "ColumnAlias":
        node = node._child
    if type(node).__name__ == "ColumnReference":
        return str(node._unparsed_identifier).replace("`", "")
    return None


def is_session_window(column: Any) -> bool:
    """Whether a grouping column is a session window."""
    return "session_window(" in repr(column)


def _sql(node: Any) -> str:
    kind = type(node).__name__
    if kind == "SQLExpression":
        return str(node._expr)
    if kind == "ColumnReference":
        return str(node._unparsed_identifier)
    if kind == "LiteralExpression":
        return _literal(node._value)
    if kind == "CastExpression":
        to = node._data_type if isinstance(node._data_type, str) else node._data_type.simpleString()
        return f"CAST({_sql(node._expr)} AS {to})"
    if kind == "ColumnAlias":
        return _sql(node._child)
    if kind == "CaseWhen":
        branches = [f"WHEN {_sql(when)} THEN {_sql(then)}" for when, then in node._branches]
        other = [f"ELSE {_sql(node._else_value)}"] if node._else_value is not None else []
        return f"CASE {' '.join((*branches, *other))} END"
    if kind == "UnresolvedFunction" and not node._is_distinct:
        return _call(node._name, [_sql(one) for one in node._args])
    raise ValueError(kind)


def _call(name: str, arguments: list[str]) -> str:
    if name in _INFIX and len(arguments) == 2:
        return f"({arguments[0]} {_INFIX[name]} {arguments[1]})"
    if name == "not":
        return f"(NOT {arguments[0]})"
    if name == "in":
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    if name in ("isNull", "isNotNull"):
        return f"({arguments[0]} IS {'NOT ' * (name == 'isNotNull')}NULL)"
    if not name.isidentifier():
        raise ValueError(name)
    return f"{name}({', '.join(arguments)})"


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    raise ValueError(type(value).__name__)
