"""What a program declares while it is executed, as it says it, before it is mapped.

A registry belongs to one execution of a program. Problems are collected, not raised, so that a
program's author sees all of them at once.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from kafka_assets.declarations import Action, Place
from kafka_assets.errors import Problem
from kafka_assets.frontends.names import Parts, may_mean, meant, told_apart
from kafka_assets.frontends.notes import Note

Word = Literal["table", "materialized_view", "view", "target"]
Function = Callable[..., Any]

DATABRICKS = "spark.databricks."
"""Settings of this name are about Databricks' own engine."""


@dataclass(frozen=True)
class Dataset:
    """A table or view as the program declares it; a `target` has no function but flows."""

    name: str
    written: str
    word: Word
    function: Function | None
    place: Place
    options: Mapping[str, Any]


@dataclass(frozen=True)
class FlowRecord:
    """An `append_flow` as the program declares it; when all is declared, its target is settled."""

    name: str
    target: str
    function: Function
    place: Place
    once: bool


@dataclass(frozen=True)
class ChangesRecord:
    """An `apply_changes` or `create_auto_cdc_flow` as the program declares it."""

    target: str
    source: str
    options: Mapping[str, Any]
    place: Place


@dataclass(frozen=True)
class SinkRecord:
    """A `create_sink` as the program declares it."""

    name: str
    format: str
    options: Mapping[str, str]
    place: Place


@dataclass(frozen=True)
class Rule:
    """An expectation as the program declares it: SQL text, or a Column."""

    written: str
    rule: Any
    action: Action
    place: Place


@dataclass
class Registry:
    """What one execution of a program declared.

    Attributes:
        folder: Where the program lies; code from there is the program's.
        files: Names under which the program's code was compiled.
        conf: Answers of `spark.conf.get` and of widgets.
        schemas: Columns of files that the program reads without saying them, by path.
        brokers: Addresses from which the program reads.
        without_schema: Paths of files that the program reads without saying their columns.
        refused_at_top: Why frames at its top cannot be read, whether or not a table uses them.
        names: What tables that share the last part of their names are called by the author.
        beside: Names of tables that SQL in the program's folder declares.
        apart: Tables that share the last part of their names -> their names in the graph; known
            when all is declared, and to later executions from the start.
    """

    folder: Path
    files: set[str]
    conf: dict[str, str]
    schemas: Mapping[str, str] = field(default_factory=dict)
    datasets: list[Dataset] = field(default_factory=list)
    flows: list[FlowRecord] = field(default_factory=list)
    changes: list[ChangesRecord] = field(default_factory=list)
    sinks: list[SinkRecord] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    spark_conf: dict[str, str] = field(default_factory=dict)
    rules: list[tuple[Function, Rule]] = field(default_factory=list)
    brokers: set[str] = field(default_factory=set)
    without_schema: set[str] = field(default_factory=set)
    refused_at_top: list[Problem] = field(default_factory=list)
    names: Mapping[str, str] = field(default_factory=dict)
    beside: frozenset[Parts] = frozenset()
    apart: dict[Parts, str] = field(default_factory=dict)

    def problem(self, what: str, fix: str, place: Place | None = None) -> None:
        """Keep something that cannot be mapped."""
        one = Problem(str(place or self.place()), what, fix)
        if one not in self.problems:
            self.problems.append(one)

    def used(self, problem: Problem) -> None:
        """A frame at the top that cannot be read is used by a table."""
        if problem not in self.problems:
            self.problems.append(problem)

    def note(self, text: str, place: Place | None = None) -> None:
        """Keep something that works otherwise here."""
        one = Note(place or self.place(), text)
        if one not in self.notes:
            self.notes.append(one)

    def place(self) -> Place:
        """The line of the program that is running."""
        frame = sys._getframe(1)
        while frame.f_back is not None and not self.owns(frame.f_code.co_filename):
            frame = frame.f_back
        if self.owns(frame.f_code.co_filename):
            return Place(short(frame.f_code.co_filename), frame.f_lineno)
        return Place(short(str(self.folder)), 1)

    def owns(self, file: str) -> bool:
        """Whether a file is the program's, or a module beside it."""
        return file in self.files or Path(file).is_relative_to(self.folder)

    def dataset(self, name: str) -> Dataset | None:
        """The table or view of a name, however the name is written."""
        wanted = self.name_in_graph(name)
        return next((one for one in self.datasets if one.name == wanted), None)

    @property
    def names_beside(self) -> set[str]:
        """What the tables that SQL beside the program declares are called in the graph."""
        return {self.apart.get(one, one[-1]) for one in self.beside}

    def name_in_graph(self, written: str) -> str:
        """What a table is called in the graph, whether or not the program declares it."""
        one = meant(parts(written), self.apart)
        if one is not None:
            return self.apart[one]
        # What may be one of several is none of them.
        return "" if may_mean(parts(written), self.apart) else snake(written)

    def settle(self) -> None:
        """Give tables that share the last part of their names, and what feeds them, others."""
        names = [*(parts(one.written) for one in self.datasets), *self.beside]
        self.apart |= told_apart(names, self.names)
        self.datasets = [
            replace(one, name=self.name_in_graph(one.written)) for one in self.datasets
        ]
        self.flows = [replace(one, target=self._target(one)) for one in self.flows]
        self.changes = [replace(one, target=self._target(one)) for one in self.changes]

    def _target(self, one: FlowRecord | ChangesRecord) -> str:
        if several := may_mean(parts(one.target), self.apart):
            self.problem(
                f"feeds {one.target!r}, which may be {' or '.join(several)}",
                "write its schema too",
                one.place,
            )
        return self.name_in_graph(one.target)

    def rules_of(self, function: Function) -> list[Rule]:
        """The expectations on a function, and on those it wraps, in the order of their lines."""
        owners = wrapped(function)
        return [rule for owner, rule in self.rules if any(one is owner for one in owners)]

    def refuse_lost_rules(self) -> None:
        """Refuse expectations that stand on the function of no table or view."""
        kept = [f for one in self.datasets if one.function for f in wrapped(one.function)]
        fed = {id(f): flow for flow in self.flows for f in wrapped(flow.function)}
        for owner, rule in self.rules:
            if any(owner is one for one in kept):
                continue
            flow = fed.get(id(owner))
            option = {"warn": "expect_all", "drop": "expect_all_or_drop"}.get(rule.action)
            if flow is None:
                self.problem(
                    f"the expectation {rule.written!r} is on the function of no table or view",
                    "put it next to @table; a decorator between them has to use functools.wraps",
                    rule.place,
                )
            else:
                self.problem(
                    f"the expectation {rule.written!r} is on the flow {flow.name!r}, which keeps "
                    "none",
                    f"put it on create_streaming_table({option or 'expect_all_or_fail'}=...) of "
                    f"{flow.target!r}",
                    rule.place,
                )


def short(file: str) -> str:
    """A file's name as people write it: relative to the working folder where it lies inside."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def parts(name: str) -> Parts:
    """The parts of a name in snake_case, without LIVE."""
    given = [one for one in name.split(".") if one.strip("` ")] or [name]
    if len(given) > 1 and given[0].strip("` ").lower() == "live":
        del given[0]
    return tuple(snake(one) for one in given)


def snake(name: str) -> str:
    """The graph's name for what a program calls so: the last part, in snake_case."""
    last = name.replace("`", "").rpartition(".")[2].strip()
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last)
    plain = re.sub(r"[^a-z0-9]+", "_", apart.lower()).strip("_")[:100].rstrip("_")
    return plain if plain[:1].isalpha() else f"t_{plain}".rstrip("_")


def wrapped(function: Function) -> list[Function]:
    """A function, and those that decorators with `functools.wraps` have put it around."""
    found = [function]
    while (inner := getattr(found[-1], "__wrapped__", None)) is not None:
        found.append(inner)
    return found


def plain(function: Function) -> Function:
    """The function that was written: inside of decorators, of `partial` and of objects to call."""
    while True:
        function = inspect.unwrap(function)
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__code__") or not hasattr(type(function).__call__, "__code__"):
            return function
        else:
            function = type(function).__call__


def place_of(function: Function) -> Place:
    """Where a function of the program stands."""
    code = getattr(plain(function), "__code__", None)
    return Place("?", 0) if code is None else Place(short(code.co_filename), code.co_firstlineno)
