"""The tables that a SQL text of a program names, and the text with which Spark can be asked.

`LIVE.x`, `STREAM(LIVE.x)` and `STREAM x` are not Spark's: tables of the program are handed over as
temporary views of the same name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_FROM = re.compile(r"\b(?:FROM|JOIN)\s+(STREAM\b\s*\(?\s*)?([\w.`]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Query:
    """A query of a program.

    Attributes:
        tables: Name as written -> whether it is read as a stream.
        groups: Names in its result of what it groups by; None when they are not known.
        aggregates: Whether its outermost part aggregates.
    """

    tables: dict[str, bool]
    groups: tuple[str, ...] | None = ()
    aggregates: bool = False


def parsed(text: str) -> Query | None:
    """What a query reads; None when the text is no query."""
    try:
        statements = sqlglot.parse(text, dialect="databricks")
    except SqlglotError:
        return _by_words(text)
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        return None
    query = statements[0]
    inner = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    tables: dict[str, bool] = {}
    for table in query.find_all(exp.Table):
        name = ".".join(part.name for part in table.parts)
        if name.lower() not in inner and name:
            tables[name] = tables.get(name, False) or _streams(table)
    group = query.args.get("group")
    own = query.expressions if isinstance(query, exp.Select) else []
    aggregates = group is not None or any(
        one.find(exp.AggFunc) is not None and one.find(exp.Window) is None for one in own
    )
    groups = () if group is None else _groups(own, group.expressions)
    return Query(tables, groups, aggregates)


def _groups(selected: list[exp.Expression], groups: list[exp.Expression]) -> tuple[str, ...] | None:
    """The names in the result of what is grouped by; None when one is not selected."""
    names: list[str] = []
    for one in groups:
        by_number = isinstance(one, exp.Literal) and one.is_int and int(one.name) <= len(selected)
        group = selected[int(one.name) - 1].unalias() if by_number else one
        plain = group.name if isinstance(group, exp.Column) else None
        found = [
            s.alias_or_name for s in selected if s.unalias() == group or s.alias_or_name == plain
        ]
        names.extend(found[:1] or [""])
    return tuple(names) if names and all(names) else None


def _by_words(text: str) -> Query | None:
    """What a query reads that only Spark's own parser knows: the names after FROM and JOIN."""
    if not re.match(r"\s*(SELECT|WITH|FROM)\b", text, re.IGNORECASE):
        return None
    inner = {name.lower() for name in re.findall(r"(\w+)\s+AS\s*\(", text, re.IGNORECASE)}
    tables: dict[str, bool] = {}
    for stream, name in _FROM.findall(text):
        plain = name.replace("`", "")
        if plain.lower() not in inner:
            tables[plain] = tables.get(plain, False) or bool(stream)
    aggregates = re.search(r"\bGROUP\s+BY\b", text, re.IGNORECASE) is not None
    return Query(tables, None, aggregates)


def _streams(table: exp.Table) -> bool:
    parent = table.parent
    while isinstance(parent, exp.Subquery | exp.Paren | exp.Alias):
        parent = parent.parent
    return type(parent).__name__ == "Stream"


def with_views(text: str, names: dict[str, str]) -> str:
    """The query with views in place of tables.

    Args:
        text: The query.
        names: Table as written -> name of the view.
    """
    tokens = sqlglot.tokenize(text, dialect="databricks")
    words = [t.text.lower() for t in tokens]
    cuts: list[tuple[int, int, str]] = []
    for written, view in names.items():
        parts = ".".join(written.lower().split(".")).replace(".", " . ").split()
        for at in range(len(words) - len(parts) + 1):
            before = words[at - 1] if at else ""
            if words[at : at + len(parts)] != parts or before == ".":
                continue
            first, last = at, at + len(parts) - 1
            streams = before == "stream" or (before == "(" and words[at - 2] == "stream")
            if len(parts) == 1 and not streams and before not in ("from", "join", ","):
                continue
            if before == "stream":
                first -= 1
            elif streams:
                first -= 2
                # An alias may stand inside the parentheses, which then go on both sides of it.
                close = words.index(")", last)
                cuts.append((tokens[close].start, tokens[close].end + 1, ""))
            cuts.append((tokens[first].start, tokens[last].end + 1, f"`{view}`"))
    for start, end, new in sorted(set(cuts), reverse=True):
        text = text[:start] + new + text[end:]
    return text
