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

from kafka_assets.frontends.sql.groups import aggregates, groups, only_databricks
from kafka_assets.frontends.sql.relations import own_name

_FROM = re.compile(r"\b(?:FROM|JOIN)\s+(STREAM\b\s*\(?\s*)?([\w.`]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Query:
    """A query of a program.

    Attributes:
        tables: Name as written -> whether it is read as a stream.
        groups: Names in its result of what it groups by; None when they are not known, or when a
            row that is corrected can vanish by what comes after.
        aggregates: Whether it aggregates, or something in it aggregates a stream.
        foreign: What in it Spark's SQL does not have, and what to write in its place.
    """

    tables: dict[str, bool]
    groups: tuple[str, ...] | None = ()
    aggregates: bool = False
    foreign: tuple[str, str] | None = None


def parsed(text: str) -> Query | None:
    """What a query reads; None when the text is no query."""
    try:
        statements = sqlglot.parse(text, dialect="databricks")
    except SqlglotError:
        return _by_words(text)
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        return None
    query = statements[0]
    tables: dict[str, bool] = {}
    for table in query.find_all(exp.Table):
        name = ".".join(part.name for part in table.parts)
        if name and own_name(table) is None and table.find_ancestor(exp.Hint) is None:
            tables[name] = tables.get(name, False) or _streams(table)
    foreign = only_databricks(query)
    if _aggregates_inside(query, any(tables.values())):
        return Query(tables, None, True, foreign)
    if not isinstance(query, exp.Select) or not aggregates(query):
        return Query(tables, foreign=foreign)
    return Query(tables, groups(query), True, foreign)


def _aggregates_inside(query: exp.Query, marked: bool) -> bool:
    """Whether a part of a query aggregates a stream.

    Args:
        query: The query.
        marked: Some table of it is marked as a stream. Where none is, only views can be streams,
            and whether they are is not to be seen here.
    """
    return any(
        aggregates(one) and (not marked or _reads_stream(one, []))
        for one in query.find_all(exp.Select)
        if one is not query
    )


def _reads_stream(query: exp.Expr, seen: list[exp.Expr]) -> bool:
    """Whether a part of a query reads a stream, also through a name that WITH gives."""
    if any(one is query for one in seen):
        return False
    for table in query.find_all(exp.Table):
        given = own_name(table)
        if _streams(table) if given is None else _reads_stream(given.this, [*seen, query]):
            return True
    return False


def _by_words(text: str) -> Query | None:
    """What a query reads that only Spark's own parser knows: the names after FROM and JOIN."""
    if not re.match(r"\s*(SELECT|WITH|FROM)\b", text, re.IGNORECASE):
        return None
    given = [
        (found[1].lower(), _closing(text, found.end()))
        for found in re.finditer(r"(\w+)\s+AS\s*\(", text, re.IGNORECASE)
    ]
    tables: dict[str, bool] = {}
    for found in _FROM.finditer(text):
        plain = found[2].replace("`", "")
        # A name that WITH gives counts from the end of what it means.
        if not any(plain.lower() == name and end <= found.start() for name, end in given):
            tables[plain] = tables.get(plain, False) or bool(found[1])
    grouped = re.search(r"\bGROUP\s+BY\b", text, re.IGNORECASE) is not None
    foreign = None
    if re.search(r"\bWATERMARK\b.*\bDELAY\s+OF\b", text, re.IGNORECASE | re.DOTALL):
        foreign = ("WATERMARK", "call .withWatermark(...) on the frame, and query that")
    return Query(tables, None, grouped, foreign)


def _closing(text: str, start: int) -> int:
    """Where the bracket closes behind which a place stands."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
    return len(text)


def _streams(table: exp.Table) -> bool:
    parent = table.parent
    while isinstance(parent, exp.Subquery | exp.Paren | exp.Alias):
        parent = parent.parent
    return type(parent).__name__ == "Stream"
