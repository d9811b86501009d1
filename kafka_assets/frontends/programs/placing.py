"""The text of a query of `spark.sql` with frames in the place of the tables that it names.

Only names are put in; what a query reads is `queries`' to find, and the rest of the text is the
author's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from kafka_assets.frontends.programs.columns import is_column, sql_of
from kafka_assets.frontends.sql.relations import own_name

GIVEN = "kafka_assets_given_"
"""What the name of a frame begins with that an author gives to a query."""
_FRAME = "kafka_assets_frame_"
_PLACES = re.compile(rf"`{_FRAME}(\d+)`")


def filled(text: str, named: Mapping[str, Any]) -> str:
    """A query with what is given to it by name: frames as names that no table has."""
    if not named:
        return text
    filled = ""
    for before, name, _, _ in Formatter().parse(text):
        value = named.get(name or "")
        filled += before
        if isinstance(value, str):
            filled += "'" + value.replace("'", "\\'") + "'"
        elif is_column(value):
            filled += sql_of(value) or f"{{{name}}}"
        elif isinstance(value, int | float):
            filled += str(value)
        elif name is not None:
            filled += f"{GIVEN}{name}"
    return filled


def with_frames(text: str, tables: Sequence[str], *, escaped: bool) -> str | None:
    """The query as Spark is asked, with `{kafka_assets_frame_0}` and so on in place of tables.

    A table without an alias gets its last part as one, as columns are written by it; where two
    tables have the same, its whole name.

    Args:
        text: The query.
        tables: What it reads, as it is written.
        escaped: Whether braces mean themselves.

    Returns:
        None when it cannot be seen where the tables stand.
    """
    views = with_views(text, {name: f"{_FRAME}{n}" for n, name in enumerate(tables)})
    try:
        query = sqlglot.parse_one(views, dialect="databricks")
    except SqlglotError:
        return None
    read = {
        one.this.meta.get("start"): bool(one.alias or one.args.get("sample"))
        for one in query.find_all(exp.Table)
        if one.name.startswith(_FRAME) and one.find_ancestor(exp.Hint) is None
    }
    places = list(_PLACES.finditer(views))
    if {int(one[1]) for one in places if one.start() in read} != set(range(len(tables))):
        return None
    names = [name.replace("`", "") for name in tables]
    bare = {names[int(one[1])] for one in places if read.get(one.start()) is False}
    lasts = [name.lower().rpartition(".")[2] for name in bare]
    done, end = "", 0
    for one in places:
        name = names[int(one[1])]
        last = name.rpartition(".")[2]
        alias = f"`{name.replace('.', '_') if lasts.count(last.lower()) > 1 else last}`"
        done += _doubled(views[end : one.start()], escaped)
        if one.start() not in read:
            # A column, written by its table's name.
            done += alias
        else:
            done += f"{{{_FRAME}{one[1]}}}" + ("" if read[one.start()] else f" AS {alias}")
        end = one.end()
    return done + _doubled(views[end:], escaped)


def result_of(
    session: Any, text: str, placed: str | None, frames: Mapping[str, Any], more: Mapping[str, Any]
) -> Any:
    """A query's frame in a run; what is put in its text by name leaves no view behind."""
    if placed is None:
        lasts = {name: name.rpartition(".")[2] for name in frames}
        for name, frame in frames.items():
            frame.createOrReplaceTempView(lasts[name])
        return session.sql(with_views(text, lasts), **more)
    # A cached frame whose own view is dropped leaves the cache; a filter makes another plan, and
    # Spark takes it away again.
    given = {f"{_FRAME}{n}": one.filter("true") for n, one in enumerate(frames.values())}
    return session.sql(placed, **more, **given)


def _doubled(text: str, escaped: bool) -> str:
    return text.replace("{", "{{").replace("}", "}}") if escaped else text


def with_views(text: str, names: dict[str, str]) -> str:
    """The query with views in place of tables; a name that its WITH gives stays.

    Args:
        text: The query.
        names: Table as written -> name of the view.
    """
    tokens = sqlglot.tokenize(text, dialect="databricks")
    words = [t.text.lower() for t in tokens]
    given = _given(text)
    cuts: list[tuple[int, int, str]] = []
    for written, view in names.items():
        parts = ".".join(written.lower().split(".")).replace(".", " . ").split()
        for at in range(len(words) - len(parts) + 1):
            before = words[at - 1] if at else ""
            if words[at : at + len(parts)] != parts or before == "." or tokens[at].start in given:
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


def _given(text: str) -> set[int]:
    """Where names stand that mean what a WITH gives."""
    try:
        query = sqlglot.parse_one(text, dialect="databricks")
    except SqlglotError:
        # Views then have the tables' own names, and WITH goes before them.
        return set()
    return {
        table.this.meta["start"]
        for table in query.find_all(exp.Table)
        if own_name(table) is not None and "start" in table.this.meta
    }
