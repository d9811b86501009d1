"""Columns that a program makes, read as text and as names, without an engine.

While a program is loaded, its Columns are those of Spark Connect: trees that nobody has sent. Here
they become SQL, and the columns that a grouping gives get their names.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from kafka_assets.frontends.sql.groups import GENERATES

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
_PART = re.compile(r"`((?:[^`]|``)+)`(?:\.|$)|([^`.]+)(?:\.|$)")
_SIGNS = ("all", "and", "between", "else", "end", "exists", "in", "interval", "is", "like", "or")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
        return parts_of(column)[-1]
    node: Any = getattr(column, "_expr", None)
    kind = type(node).__name__
    if kind == "ColumnAlias" and len(node._alias) == 1:
        return str(node._alias[0])
    if kind == "ColumnReference":
        return parts_of(str(node._unparsed_identifier))[-1]
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


def parts_of(name: str) -> list[str]:
    """The parts of a column's name, which stand between dots and may have backticks around them."""
    found: list[str] = []
    at = 0
    while at < len(name):
        part = _PART.match(name, at)
        if part is None:
            # Spark refuses it too, when it is used.
            return [name]
        found.append(part[2] if part[1] is None else part[1].replace("``", "`"))
        at = part.end()
    return found or [name]


def selected(text: str) -> tuple[str | None, str | None]:
    """What a text of `selectExpr` only renames, and its name in the result, where it has any."""
    try:
        one = sqlglot.parse_one(text, dialect="databricks")
    except SqlglotError:
        return None, None
    if isinstance(one, exp.Star):
        return "*", "*"
    column = one.unalias()
    reference = None
    if isinstance(column, exp.Column) and not isinstance(column.this, exp.Star):
        reference = ".".join(part.name for part in column.parts)
    return reference, one.alias_or_name or None


def generates(column: Any) -> bool:
    """Whether a column, or a text of one, can make several rows of one."""
    return GENERATES.search(column if isinstance(column, str) else repr(column)) is not None


def is_session_window(column: Any) -> bool:
    """Whether a grouping column is a session window."""
    return "session_window(" in repr(column)


def _sql(node: Any) -> str:
    kind = type(node).__name__
    if kind == "SQLExpression":
        return str(node._expr)
    if kind == "ColumnReference":
        return _reference(str(node._unparsed_identifier))
    if kind == "LiteralExpression":
        return _literal(node._value, type(node._dataType).__name__)
    if kind == "CastExpression" and node._eval_mode in (None, "try"):
        to = node._data_type if isinstance(node._data_type, str) else node._data_type.simpleString()
        word = "CAST" if node._eval_mode is None else "TRY_CAST"
        return f"{word}({_sql(node._expr)} AS {to})"
    if kind == "ColumnAlias":
        return _sql(node._child)
    if kind == "CaseWhen":
        branches = [f"WHEN {_sql(when)} THEN {_sql(then)}" for when, then in node._branches]
        other = [f"ELSE {_sql(node._else_value)}"] if node._else_value is not None else []
        return f"CASE {' '.join((*branches, *other))} END"
    if kind == "UnresolvedFunction" and not node._is_distinct:
        return _call(node._name, node._args)
    raise ValueError(kind)


def _operand(node: Any) -> str:
    """The text of what stands beside an operator: a text of the program's own gets brackets."""
    text = _sql(node)
    while type(node).__name__ == "ColumnAlias":
        node = node._child
    own = type(node).__name__ == "SQLExpression" and not re.fullmatch(r"\w+", text)
    return f"({text})" if own else text


def _call(name: str, arguments: list[Any]) -> str:
    if name in _INFIX and len(arguments) == 2:
        left, right = map(_operand, arguments)
        return f"({left} {_INFIX[name]} {right})"
    if name == "not":
        return f"(NOT {_operand(arguments[0])})"
    if name == "in":
        first, *others = map(_operand, arguments)
        if not others:
            raise ValueError("IN ()")
        return f"({first} IN ({', '.join(others)}))"
    if name in ("isNull", "isNotNull"):
        return f"({_operand(arguments[0])} IS {'NOT ' * (name == 'isNotNull')}NULL)"
    if not name.isidentifier():
        raise ValueError(name)
    return f"{name}({', '.join(map(_sql, arguments))})"


def _reference(name: str) -> str:
    """A column's name as SQL; a part that SQL would take for something else gets backticks."""
    first, *others = parts_of(name)
    written = [first if first == "*" or _is_name(first) else _quoted(first)]
    written += [part if part == "*" or _is_word(part) else _quoted(part) for part in others]
    return ".".join(written)


def _quoted(part: str) -> str:
    escaped = part.replace("`", "``")
    return f"`{escaped}`"


def _is_word(part: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w*", part, re.ASCII) is not None


def _is_name(word: str) -> bool:
    """Whether a word that stands alone is a column, and no value or sign of SQL."""
    if not _is_word(word) or word.lower() in _SIGNS:
        return False
    try:
        return isinstance(sqlglot.parse_one(word, dialect="databricks"), exp.Column)
    except SqlglotError:
        return False


def _literal(value: Any, kind: str) -> str:
    if value is None:
        return "NULL"
    if kind == "DateType":
        return f"DATE '{(_EPOCH + timedelta(days=value)).date().isoformat()}'"
    if kind in ("TimestampType", "TimestampNTZType"):
        at = _EPOCH + timedelta(microseconds=value)
        if kind == "TimestampType":
            return f"TIMESTAMP '{at.isoformat(' ')}'"
        return f"TIMESTAMP_NTZ '{at.replace(tzinfo=None).isoformat(' ')}'"
    if kind == "DayTimeIntervalType":
        return _interval(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, float) and math.isfinite(value):
        # Without the letter, SQL takes it for a decimal.
        return f"{value!r}D"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    raise ValueError(kind)


def _interval(microseconds: int) -> str:
    days, rest = divmod(abs(microseconds), 86_400_000_000)
    hours, rest = divmod(rest, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds, rest = divmod(rest, 1_000_000)
    sign = "-" if microseconds < 0 else ""
    text = f"{sign}{days} {hours:02}:{minutes:02}:{seconds:02}.{rest:06}"
    return f"INTERVAL '{text}' DAY TO SECOND"
