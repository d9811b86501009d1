"""The words for expectations: rules that rows, or a table as a whole, should keep."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from kafka_assets.declarations.model import (
    Action,
    Author,
    Expectation,
    Flow,
    Place,
    Rule,
    Sink,
    Table,
    TableExpectation,
)
from kafka_assets.declarations.places import caller, check_name, columns, declared
from kafka_assets.errors import DeclarationError
from kafka_assets.sql_rules import rule_problem

_PENDING = "__kafka_assets_expectations__"

F = TypeVar("F", Author, Table)
AnyExpectation = Expectation | TableExpectation


def expect(name: str, rule: Rule) -> Callable[[F], F]:
    """Warn about rows that break `rule`; the rows are kept.

    Args:
        name: snake_case name of the expectation; it becomes an asset check.
        rule: A SQL condition on the function's result, or a function that returns a Column. A
            row for which it is NULL has broken it.

    Returns:
        A decorator for below (or above) the table's own.

    Raises:
        DeclarationError: The name or the SQL is wrong.
    """
    return _row_rules({name: rule}, "warn")


def expect_or_drop(name: str, rule: Rule) -> Callable[[F], F]:
    """Move rows that break `rule` to the dead letters; see `expect` for the arguments."""
    return _row_rules({name: rule}, "drop")


def expect_or_fail(name: str, rule: Rule, *, above: float = 0) -> Callable[[F], F]:
    """Stop the batch before anything commits when a row breaks `rule`; see `expect`.

    Args:
        name: As in `expect`.
        rule: As in `expect`.
        above: How much is put up with: the batch stops when more than this share of its rows (a
            number below 1), or more than this count (a whole number), breaks the rule. Rows that
            are put up with are kept.

    Returns:
        A decorator.

    Raises:
        DeclarationError: The name, the SQL or the threshold is wrong.
    """
    return _row_rules({name: rule}, "fail", above)


def expect_all(rules: Mapping[str, Rule]) -> Callable[[F], F]:
    """`expect` for several rules, given as name -> rule."""
    return _row_rules(rules, "warn")


def expect_all_or_drop(rules: Mapping[str, Rule]) -> Callable[[F], F]:
    """`expect_or_drop` for several rules, given as name -> rule."""
    return _row_rules(rules, "drop")


def expect_all_or_fail(rules: Mapping[str, Rule], *, above: float = 0) -> Callable[[F], F]:
    """`expect_or_fail` for several rules, given as name -> rule."""
    return _row_rules(rules, "fail", above)


def rules_from(source: str | Path, *, tag: str | None = None) -> dict[str, Rule]:
    """Rules that several tables share, from a file or a Delta table, for `expect_all*`.

    Args:
        source: A JSON file with a list of `{"name": ..., "constraint": ..., "tag": ...}`, or the
            folder of a Delta table with these columns. A relative path is relative to the file
            that calls.
        tag: Only rules with this tag; None for all.

    Returns:
        Name -> SQL condition.

    Raises:
        DeclarationError: The source cannot be read, or has no rule with this tag.
    """
    place = caller()
    path = Path(source)
    if not path.is_absolute():
        path = Path(place.file).resolve().parent / path
    subject = f"rules from {source}"
    try:
        found = _rules_of(path)
        chosen = {
            str(rule["name"]): str(rule["constraint"])
            for rule in found
            if tag is None or rule.get("tag") == tag
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DeclarationError(
            subject,
            str(place),
            f"cannot be read: {type(error).__name__}: {error}",
            fix='write a JSON list of {"name": ..., "constraint": ..., "tag": ...}',
        ) from None
    if not chosen:
        known = sorted({str(rule.get("tag")) for rule in found})
        raise DeclarationError(
            subject,
            str(place),
            f"no rule has the tag {tag!r}" if tag is not None else "there is no rule",
            fix=f"use one of the tags {', '.join(known) or '(none)'}",
        )
    return dict(chosen)


def _rules_of(path: Path) -> list[dict[str, Any]]:
    if path.is_dir():
        from deltalake import DeltaTable

        rows: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
        return rows
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, list):
        raise TypeError("it is no list")
    return found


def expect_unique(
    name: str, columns_: str | Sequence[str], *, blocking: bool = False
) -> Callable[[F], F]:
    """After each run, no two rows of the table have the same values of these columns.

    Args:
        name: snake_case name; it becomes an asset check.
        columns_: One column, or several.
        blocking: A broken rule fails its check and holds back the tables downstream; else it
            warns.

    Returns:
        A decorator.

    Raises:
        DeclarationError: Something of it is wrong.
    """
    place = caller()
    names = columns(f"expectation {name!r}", place, "columns", columns_)
    return _table_rule(TableExpectation(name, "unique", place, columns=names, blocking=blocking))


def expect_row_count(
    name: str, *, at_least: int | None = None, at_most: int | None = None, blocking: bool = False
) -> Callable[[F], F]:
    """After each run, the table has so many rows; `at_least=1` says that it is not empty."""
    place = caller()
    _check_bounds(name, place, at_least, at_most)
    return _table_rule(
        TableExpectation(name, "row_count", place, least=at_least, most=at_most, blocking=blocking)
    )


def expect_new_rows(
    name: str, *, at_least: int | None = None, at_most: int | None = None, blocking: bool = False
) -> Callable[[F], F]:
    """Each run that finds something new adds so many rows: the volume is as usual."""
    place = caller()
    _check_bounds(name, place, at_least, at_most)
    return _table_rule(
        TableExpectation(name, "new_rows", place, least=at_least, most=at_most, blocking=blocking)
    )


def expect_values_in(
    name: str, column: str, table: str, other: str | None = None, *, blocking: bool = False
) -> Callable[[F], F]:
    """After each run, each value of a column stands in a column of another table.

    Args:
        name: snake_case name; it becomes an asset check.
        column: Column of this table; its nulls are passed over.
        table: Name of the other table.
        other: Column of the other table; by default of the same name.
        blocking: As in `expect_unique`.

    Returns:
        A decorator.
    """
    place = caller()
    rule = TableExpectation(
        name,
        "values_in",
        place,
        columns=(column,),
        other=(table, other or column),
        blocking=blocking,
    )
    return _table_rule(rule)


def expect_fresh(
    name: str, column: str, *, within: timedelta, blocking: bool = False
) -> Callable[[F], F]:
    """After each run, the newest value of a timestamp column is at most so old.

    Freshness of events, not of runs: for that see `freshness=` of a table.
    """
    place = caller()
    rule = TableExpectation(
        name, "fresh", place, columns=(column,), within=within, blocking=blocking
    )
    return _table_rule(rule)


def pending_expectations(value: object) -> tuple[AnyExpectation, ...]:
    """Expectations on a function that no table decorator has taken up."""
    return tuple(getattr(value, _PENDING, ()))


def take_pending(
    function: Author,
) -> tuple[tuple[Expectation, ...], tuple[TableExpectation, ...]]:
    """Take the expectations off a function: those on rows, and those on the table."""
    found = pending_expectations(function)
    if found:
        # The table has them now; the function may be sent to where this package is not.
        delattr(function, _PENDING)
    rows = tuple(e for e in found if isinstance(e, Expectation))
    return rows, tuple(e for e in found if isinstance(e, TableExpectation))


def row_rules(
    rules: Mapping[str, Rule], action: Action, place: Place, above: float = 0
) -> tuple[Expectation, ...]:
    """Expectations on rows from name -> rule.

    Raises:
        DeclarationError: A name, a text or the threshold is wrong.
    """
    new = tuple(Expectation(name, rule, action, place, above) for name, rule in rules.items())
    for expectation in new:
        subject = f"expectation {expectation.name!r}"
        check_name(subject, place, expectation.name, "the expectation's name")
        problem = rule_problem(expectation.rule) if isinstance(expectation.rule, str) else None
        if problem is not None:
            raise DeclarationError(
                subject,
                str(place),
                f"is not a valid SQL condition: {expectation.rule!r}: {problem}",
                fix="write one Spark SQL condition on the columns that the function returns",
            )
        if above < 0 or (above > 1 and above != int(above)):
            raise DeclarationError(
                subject,
                str(place),
                f"above={above} is neither a share below 1 nor a count",
                fix="write above=0.01 for one row in a hundred, or above=10 for ten rows",
            )
    return new


def with_unique_names(table: Table) -> Table:
    """The table, whose expectations all have different names.

    Raises:
        DeclarationError: Two have the same name.
    """
    seen: set[str] = set()
    every: tuple[AnyExpectation, ...] = (*table.expectations, *table.table_expectations)
    for expectation in every:
        if expectation.name in seen:
            raise DeclarationError(
                f"table {table.name!r}",
                str(expectation.place),
                f"has two expectations named {expectation.name!r}",
                fix="give each expectation of a table its own name",
            )
        seen.add(expectation.name)
    return table


def _row_rules(rules: Mapping[str, Rule], action: Action, above: float = 0) -> Callable[[F], F]:
    new = row_rules(rules, action, caller(), above)

    def attach(target: Any) -> Any:
        _refuse_without_rows(target, new[0] if new else None)
        if isinstance(target, Table):
            more = replace(target, expectations=(*new, *target.expectations))
            return declared(with_unique_names(more), instead_of=target)
        setattr(target, _PENDING, (*new, *getattr(target, _PENDING, ())))
        return target

    return attach


def _table_rule(rule: TableExpectation) -> Callable[[F], F]:
    check_name(f"expectation {rule.name!r}", rule.place, rule.name, "the expectation's name")

    def attach(target: Any) -> Any:
        _refuse_without_rows(target, rule)
        if isinstance(target, Table):
            more = replace(target, table_expectations=(rule, *target.table_expectations))
            return declared(with_unique_names(more), instead_of=target)
        setattr(target, _PENDING, (rule, *getattr(target, _PENDING, ())))
        return target

    return attach


def _refuse_without_rows(target: Any, rule: AnyExpectation | None) -> None:
    """Refuse an expectation above a view, a flow or a sink, none of which would ever try it."""
    if rule is None:
        return
    if isinstance(target, Table) and target.kind == "temporary_view":
        what, fix = f"the view {target.name!r}", "put it on the tables that read the view"
    elif isinstance(target, Flow | Sink):
        what = f"the {type(target).__name__.lower()} {target.name!r}"
        fix = "give it to the table that the flow feeds: create_streaming_table(expect_all=...)"
    else:
        return
    raise DeclarationError(
        f"expectation {rule.name!r}",
        str(rule.place),
        f"stands above {what}, which has no rows of its own to keep or drop",
        fix=fix,
    )


def _check_bounds(name: str, place: Place, least: int | None, most: int | None) -> None:
    if (least is None and most is None) or (
        least is not None and most is not None and least > most
    ):
        raise DeclarationError(
            f"expectation {name!r}",
            str(place),
            f"at_least={least} and at_most={most} are no bounds",
            fix="give at_least=, at_most= or both",
        )
