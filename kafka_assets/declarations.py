"""The words an author writes: topics, tables and expectations, as frozen declarations.

A decorator checks what it can see by itself (a name, a layer, a rule's SQL) and returns a
declaration. How declarations fit together is decided in `graph`; how they run, in `streaming`;
how Dagster sees them, in `orchestration`. Nothing here imports Spark or Dagster, so that importing
a pipeline starts no JVM and touches no network.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar

from kafka_assets.errors import DeclarationError
from kafka_assets.options import JsonOptions
from kafka_assets.sql_rules import rule_problem

LAYERS = ("bronze", "silver", "gold")
NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
WINDOW = re.compile(r"[1-9][0-9]* (second|minute|hour|day|week)s?")

Action = Literal["warn", "drop", "fail"]
Kind = Literal["streaming_table", "windowed_table", "materialized_view"]
Rule = str | Callable[[], Any]
Author = Callable[..., Any]

_PENDING = "__kafka_assets_expectations__"


@dataclass(frozen=True)
class Place:
    """Where a declaration stands: file and line, for messages."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Topic:
    """A Kafka topic that tables read.

    Attributes:
        name: The topic's snake_case name in the graph.
        topic: Its name at the broker.
        description: Shown in the Dagster UI.
        owners: Emails, or `team:name`.
        place: Where it is declared.
    """

    name: str
    topic: str
    description: str | None
    owners: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class Expectation:
    """A rule that every row of a table should keep.

    Attributes:
        name: snake_case name; also the asset check's name.
        rule: A SQL condition, or a function without arguments that returns a Column (it is
            called inside a run, because Columns need a session). NULL counts as broken.
        action: `warn` keeps the row, `drop` moves it to the dead letters, `fail` stops the batch
            before anything of it commits.
        place: Where it is declared.
    """

    name: str
    rule: Rule
    action: Action
    place: Place

    @property
    def text(self) -> str:
        """The rule as a person reads it."""
        return self.rule if isinstance(self.rule, str) else f"{self.rule.__name__}()"


@dataclass(frozen=True)
class Table:
    """A declared table. Called with DataFrames, it is the author's function.

    The parameters of `streaming_table`, `windowed_table` and `materialized_view` give the
    attributes' meaning.
    """

    name: str
    function: Author = field(repr=False)
    kind: Kind
    layer: str
    upstreams: tuple[str, ...]
    place: Place
    expectations: tuple[Expectation, ...] = ()
    schema: str | None = None
    json: JsonOptions = field(default_factory=JsonOptions)
    freshness: timedelta | None = None
    reset_allowed: bool = True
    comment: str | None = None
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    event_time: str | None = None
    window: str | None = None
    window_column: str | None = None
    max_dead_share: float | None = None

    def __call__(self, *frames: Any, **named: Any) -> Any:
        """Run the author's function on plain DataFrames: no broker, no Delta, no Dagster."""
        return self.function(*frames, **named)

    def expectations_that(self, action: Action) -> tuple[Expectation, ...]:
        """The expectations with this action, in declared order."""
        return tuple(e for e in self.expectations if e.action == action)

    @property
    def may_have_dead_letters(self) -> bool:
        """True when rows of this table can die: it decodes, or it has a drop rule."""
        return self.schema is not None or bool(self.expectations_that("drop"))


F = TypeVar("F", Author, Table)


def kafka_topic(
    topic: str,
    *,
    name: str | None = None,
    description: str | None = None,
    owners: Sequence[str] = (),
) -> Topic:
    """Declare a Kafka topic.

    Args:
        topic: The topic's name at the broker.
        name: Its name in the graph; by default the topic's name in snake_case.
        description: Shown in the Dagster UI.
        owners: Emails, or `team:name`.

    Returns:
        A declaration. A table reads the topic by having a parameter of its graph name, and gets a
        frame of key, value, headers, topic, partition, offset, timestamp, timestamp_type and
        ingested_at.

    Raises:
        DeclarationError: The name cannot be used.
    """
    place = _caller()
    snake = name if name is not None else re.sub(r"[^a-z0-9]+", "_", topic.lower()).strip("_")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) or topic in (".", ".."):
        raise DeclarationError(
            f"topic {topic!r}",
            str(place),
            "is no legal Kafka topic name",
            fix="use at most 249 letters, digits, dots, underscores and hyphens",
        )
    _check_name(f"topic {topic!r}", place, snake, "name=")
    _check_owners(f"topic {topic!r}", place, owners)
    return Topic(snake, topic, description, tuple(owners), place)


def streaming_table(
    *,
    layer: str,
    schema: str | None = None,
    json: JsonOptions | None = None,
    freshness: timedelta | None = None,
    reset_allowed: bool = True,
    comment: str | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    path: str | None = None,
    max_dead_share: float | None = None,
) -> Callable[[Author], Table]:
    """Declare a table that a stream appends to, row by row.

    Args:
        layer: `bronze`, `silver` or `gold`.
        schema: A schema file of the schemas folder. The function then receives its upstream
            decoded: the payload's fields, then `_source`, `_key`, `_headers`; rows that do not
            decode become dead letters.
        json: How strictly the payload is decoded; only with `schema`.
        freshness: The table counts as late (warn) when it was not updated for this long, and as
            failed after twice that. At least one minute.
        reset_allowed: False refuses every full refresh of this table.
        comment: Description in the UI and of the Delta table; by default the function's docstring.
        owners: Emails, or `team:name`.
        tags: Tags of the asset.
        path: Where the table lies, relative to the lake; by default `<layer>/<name>`.
        max_dead_share: A larger share of dead rows stops a batch before it commits, from 0 to 1;
            by default the setting `dead_letters.max_share`.

    Returns:
        A decorator that turns a pure function, DataFrame in and DataFrame out, into a `Table`. The
        function's parameter names are its upstream topics or tables.

    Raises:
        DeclarationError: Something of it is wrong; names the table, file, line and the fix.
    """

    def declare(function: Author) -> Table:
        return _table(
            function,
            kind="streaming_table",
            layer=layer,
            schema=schema,
            json=json,
            freshness=freshness,
            reset_allowed=reset_allowed,
            comment=comment,
            owners=owners,
            tags=tags,
            path=path,
            max_dead_share=max_dead_share,
        )

    return declare


def windowed_table(
    *,
    layer: str,
    event_time: str,
    window: str,
    window_column: str | None = None,
    freshness: timedelta | None = None,
    reset_allowed: bool = True,
    comment: str | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    path: str | None = None,
    max_dead_share: float | None = None,
) -> Callable[[Author], Table]:
    """Declare an aggregate over windows of event time that late rows correct.

    Each run collects the windows that new upstream rows fall into, hands the function all upstream
    rows of just these windows, and replaces these windows in the table. There is no state to lose,
    and a late row, however late, corrects its window.

    Args:
        layer: `bronze`, `silver` or `gold`.
        event_time: The upstream's timestamp column.
        window: Length of a window, such as `"1 hour"`; windows are aligned to the epoch in UTC.
            Rows of one result row must lie in one window.
        window_column: The result's timestamp column that lies inside the window; by default the
            only timestamp column of the result.
        freshness: As in `streaming_table`.
        reset_allowed: As in `streaming_table`.
        comment: As in `streaming_table`.
        owners: As in `streaming_table`.
        tags: As in `streaming_table`.
        path: As in `streaming_table`.
        max_dead_share: As in `streaming_table`.

    Returns:
        A decorator that turns a function into a `Table`.

    Raises:
        DeclarationError: Something of it is wrong; names the table, file, line and the fix.
    """

    def declare(function: Author) -> Table:
        place = _place_of(function)
        if not WINDOW.fullmatch(window):
            raise DeclarationError(
                f"table {function.__name__!r}",
                str(place),
                f"window={window!r} is no length of time",
                fix='write a number and a unit, such as window="1 hour" or "15 minutes"',
            )
        return _table(
            function,
            kind="windowed_table",
            layer=layer,
            event_time=event_time,
            window=window,
            window_column=window_column,
            freshness=freshness,
            reset_allowed=reset_allowed,
            comment=comment,
            owners=owners,
            tags=tags,
            path=path,
            max_dead_share=max_dead_share,
        )

    return declare


def materialized_view(
    *,
    layer: str,
    freshness: timedelta | None = None,
    reset_allowed: bool = True,
    comment: str | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    path: str | None = None,
) -> Callable[[Author], Table]:
    """Declare a table that is computed whole from its upstream tables when one of them changed.

    It reads every upstream at a pinned version and is replaced atomically; when no upstream
    changed, nothing is computed.

    Args:
        layer: `bronze`, `silver` or `gold`.
        freshness: As in `streaming_table`.
        reset_allowed: As in `streaming_table`.
        comment: As in `streaming_table`.
        owners: As in `streaming_table`.
        tags: As in `streaming_table`.
        path: As in `streaming_table`.

    Returns:
        A decorator that turns a function of one or more tables into a `Table`.

    Raises:
        DeclarationError: Something of it is wrong; names the table, file, line and the fix.
    """

    def declare(function: Author) -> Table:
        return _table(
            function,
            kind="materialized_view",
            layer=layer,
            freshness=freshness,
            reset_allowed=reset_allowed,
            comment=comment,
            owners=owners,
            tags=tags,
            path=path,
        )

    return declare


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
    return _expectations({name: rule}, "warn")


def expect_or_drop(name: str, rule: Rule) -> Callable[[F], F]:
    """Move rows that break `rule` to the dead letters; see `expect` for the arguments."""
    return _expectations({name: rule}, "drop")


def expect_or_fail(name: str, rule: Rule) -> Callable[[F], F]:
    """Stop the batch before anything commits when a row breaks `rule`; see `expect`."""
    return _expectations({name: rule}, "fail")


def expect_all(rules: Mapping[str, Rule]) -> Callable[[F], F]:
    """`expect` for several rules, given as name -> rule."""
    return _expectations(rules, "warn")


def expect_all_or_drop(rules: Mapping[str, Rule]) -> Callable[[F], F]:
    """`expect_or_drop` for several rules, given as name -> rule."""
    return _expectations(rules, "drop")


def expect_all_or_fail(rules: Mapping[str, Rule]) -> Callable[[F], F]:
    """`expect_or_fail` for several rules, given as name -> rule."""
    return _expectations(rules, "fail")


def pending_expectations(value: object) -> tuple[Expectation, ...]:
    """Expectations on a function that no table decorator has taken up."""
    return tuple(getattr(value, _PENDING, ()))


def _expectations(rules: Mapping[str, Rule], action: Action) -> Callable[[F], F]:
    place = _caller()
    new = tuple(Expectation(name, rule, action, place) for name, rule in rules.items())
    for expectation in new:
        subject = f"expectation {expectation.name!r}"
        _check_name(subject, place, expectation.name, "the expectation's name")
        problem = rule_problem(expectation.rule) if isinstance(expectation.rule, str) else None
        if problem is not None:
            raise DeclarationError(
                subject,
                str(place),
                f"is not a valid SQL condition: {expectation.rule!r}: {problem}",
                fix="write one Spark SQL condition on the columns that the function returns",
            )

    def attach(target: Any) -> Any:
        if isinstance(target, Table):
            return _with_unique(replace(target, expectations=(*new, *target.expectations)))
        setattr(target, _PENDING, (*new, *getattr(target, _PENDING, ())))
        return target

    return attach


def _table(
    function: Author,
    *,
    kind: Kind,
    layer: str,
    comment: str | None,
    owners: Sequence[str],
    tags: Mapping[str, str] | None,
    json: JsonOptions | None = None,
    **options: Any,
) -> Table:
    if isinstance(function, Table):
        raise DeclarationError(
            f"table {function.name!r}",
            str(function.place),
            "has two table decorators",
            fix="leave only one of them",
        )
    place = _place_of(function)
    name = function.__name__
    subject = f"table {name!r}"
    _check_name(subject, place, name, "the function's name")
    if layer not in LAYERS:
        raise DeclarationError(
            subject,
            str(place),
            f"layer={layer!r} does not exist",
            fix=f"use one of {', '.join(LAYERS)}",
        )
    freshness = options.get("freshness")
    if freshness is not None and freshness < timedelta(minutes=1):
        raise DeclarationError(
            subject,
            str(place),
            f"freshness={freshness} is shorter than a minute",
            fix="use at least timedelta(minutes=1)",
        )
    share = options.get("max_dead_share")
    if share is not None and not 0 <= share <= 1:
        raise DeclarationError(
            subject, str(place), f"max_dead_share={share} is no share", fix="use 0 to 1"
        )
    if json is not None and options.get("schema") is None:
        raise DeclarationError(
            subject, str(place), "json= without schema=", fix="name a schema file with schema="
        )
    _check_owners(subject, place, owners)
    upstreams = _parameters(function, subject, place)
    expectations = pending_expectations(function)
    if expectations:
        # The table has them now; the function may be sent to where this package is not.
        delattr(function, _PENDING)
    table = Table(
        name=name,
        function=function,
        kind=kind,
        layer=layer,
        upstreams=upstreams,
        place=place,
        expectations=expectations,
        json=json or JsonOptions(),
        comment=comment or inspect.getdoc(function),
        owners=tuple(owners),
        tags=dict(tags or {}),
        **options,
    )
    return _with_unique(table)


def _with_unique(table: Table) -> Table:
    seen: set[str] = set()
    for expectation in table.expectations:
        if expectation.name in seen:
            raise DeclarationError(
                f"table {table.name!r}",
                str(expectation.place),
                f"has two expectations named {expectation.name!r}",
                fix="give each expectation of a table its own name",
            )
        seen.add(expectation.name)
    return table


def _parameters(function: Author, subject: str, place: Place) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters.values()
    bad = [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if bad or not parameters:
        found = f"takes *{bad[0]}" if bad else "has no parameter"
        raise DeclarationError(
            subject,
            str(place),
            f"its function {found}; parameters name the upstream topics and tables",
            fix="name each upstream topic or table as a parameter",
        )
    return tuple(p.name for p in parameters)


def _check_name(subject: str, place: Place, name: str, what: str) -> None:
    if not NAME.fullmatch(name) or "__" in name:
        raise DeclarationError(
            subject,
            str(place),
            f"{what} {name!r} is not snake_case",
            fix="use lower-case letters, digits, single underscores; a letter first; at most 100",
        )


def _check_owners(subject: str, place: Place, owners: Sequence[str]) -> None:
    for owner in owners:
        if not re.fullmatch(r"team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+\.[^@\s]+", owner):
            raise DeclarationError(
                subject,
                str(place),
                f"owner {owner!r} is neither an email nor a team",
                fix='write "name@example.org" or "team:name"',
            )


def _place_of(function: Author) -> Place:
    code = inspect.unwrap(function).__code__
    return Place(_short(code.co_filename), code.co_firstlineno)


def _caller() -> Place:
    depth = 1
    frame = sys._getframe(depth)
    while frame.f_code.co_filename == __file__:
        depth += 1
        frame = sys._getframe(depth)
    return Place(_short(frame.f_code.co_filename), frame.f_lineno)


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
