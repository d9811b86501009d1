"""Columns that a table computes from others, and conditions that all of its rows hold to.

What the options `generated=` and `constraints=` of a table mean, and what is refused of them. How a
constraint gets into the Delta table is `streaming.creating`'s.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kafka_assets.declarations.model import Author, Place, fed_by_flows
from kafka_assets.declarations.places import check_name
from kafka_assets.errors import DeclarationError
from kafka_assets.sql_rules import rule_problem

QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`")
"""Strings and quoted names in SQL."""

_UNKNOWN_TO_DELTA = re.compile(r"::|->|=>|<<|>>")
"""Operators that Delta's own parser does not know: it keeps their characters apart."""


def conditions(subject: str, place: Place, given: Mapping[str, str]) -> dict[str, str]:
    """Constraints, name -> SQL condition.

    Raises:
        DeclarationError: A name or a condition is wrong.
    """
    for name in given:
        check_name(subject, place, name, "the constraint's name")
    found = _sql(subject, place, "constraints", given)
    for name, text in found.items():
        unknown = _UNKNOWN_TO_DELTA.search(QUOTED.sub("", text))
        if unknown is not None:
            raise DeclarationError(
                subject,
                str(place),
                f"constraints={{{name!r}: {text!r}}}: Delta's ALTER TABLE takes {unknown[0]} apart",
                fix="write the constraint without it, such as CAST(a AS INT) for a::int, or use "
                "expect_or_fail",
            )
    return found


def never_null(columns: Iterable[str]) -> dict[str, str]:
    """The constraints that NOT NULL on columns means: `id` -> `id_not_null`."""
    found: dict[str, str] = {}
    for column in columns:
        word = re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")
        word = "_".join(part for part in ("" if word[:1].isalpha() else "column", word) if part)
        name, number = f"{word}_not_null", 2
        while name in found:
            name, number = f"{word}_not_null_{number}", number + 1
        found[name] = f"`{column.replace('`', '``')}` IS NOT NULL"
    return found


def generated_columns(subject: str, place: Place, given: Mapping[str, str]) -> dict[str, str]:
    """Generated columns, name -> SQL expression of the function's columns.

    Raises:
        DeclarationError: An expression is wrong.
    """
    return _sql(subject, place, "generated", given)


def _sql(subject: str, place: Place, option: str, given: Mapping[str, str]) -> dict[str, str]:
    for name, text in given.items():
        problem = rule_problem(text) if isinstance(text, str) else "it is no text"
        if problem is not None:
            raise DeclarationError(
                subject,
                str(place),
                f"{option}={{{name!r}: {text!r}}} is not valid SQL: {problem}",
                fix="write one Spark SQL expression on the table's columns",
            )
    return dict(given)


def computing(function: Author, generated: Mapping[str, str]) -> Author:
    """A function that returns the generated columns too; flows have such functions of their own."""
    if not generated or function is fed_by_flows:
        return function

    @functools.wraps(function)
    def with_computed(*frames: Any, **named: Any) -> Any:
        rows = function(*frames, **named)
        if not hasattr(rows, "selectExpr"):
            return rows
        has = {column.lower() for column in rows.columns}
        twice = [name for name in generated if name.lower() in has]
        if twice:
            raise ValueError(f"it returns {', '.join(twice)}, which generated= computes")
        computed = [f"{text} AS `{name.replace('`', '``')}`" for name, text in generated.items()]
        return rows.selectExpr("*", *computed)

    return with_computed
