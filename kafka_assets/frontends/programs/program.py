"""A program that can be executed: at load, to see what it declares, and again where it runs.

Columns, and functions for Spark's workers, belong to the kind of session under which they were
made; so a run executes the program anew, with its own session, and takes the functions from there.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_assets.declarations import Place
from kafka_assets.errors import Problem, ProgramRefused
from kafka_assets.frontends.names import Parts
from kafka_assets.frontends.programs.databricks import Dbutils, show_nothing
from kafka_assets.frontends.programs.environment import around
from kafka_assets.frontends.programs.execution import Execution, Running
from kafka_assets.frontends.programs.recording import Untraceable
from kafka_assets.frontends.programs.registry import Function, Registry, short, snake
from kafka_assets.frontends.programs.session import Spark
from kafka_assets.frontends.programs.source import RUN, Unit, notebook, units_of


@dataclass
class Program:
    """A program.

    Attributes:
        path: Its file or folder.
        conf: Answers of `spark.conf.get` and of widgets.
        borrowed: Tables that it reads and others declare.
        schemas: Columns of files that it reads without saying them, by path.
        beside: Names of tables that SQL in its folder declares.
        names: What tables that share the last part of their names are called by the author.
        units: Its text.
    """

    path: Path
    conf: Mapping[str, str]
    borrowed: Mapping[str, str]
    schemas: Mapping[str, str]
    beside: frozenset[Parts] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    _last: tuple[Any, Execution] | None = None
    _apart: dict[Parts, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.units = units_of(self.path)

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.path if self.path.is_dir() else self.path.parent

    def execute(self, running: Running | None = None) -> Execution:
        """Execute the program from its top.

        Args:
            running: What a run has; None at load.
        """
        files = {unit.file for unit in self.units}
        registry = Registry(
            self.folder,
            files,
            dict(self.conf),
            self.schemas,
            names=self.names,
            beside=self.beside,
            apart=dict(self._apart),
        )
        by = Execution(registry, self.borrowed)
        by.running = running
        by.spark = Spark(by)
        # Files share nothing but what they import; cells of one notebook share all names.
        names: dict[Path, dict[str, Any]] = {}
        with around(by):
            for unit in self.units:
                if unit.path not in names:
                    names[unit.path] = self._names(by, unit.path)
                _execute(by, unit, names[unit.path])
        by.running = None
        registry.settle()
        self._apart = registry.apart
        return by

    def function(self, kind: str, name: str, running: Running) -> tuple[Execution, Function]:
        """A function of the program, made under the session of a run.

        Args:
            kind: `dataset` or `flow`.
            name: Its name in the graph; of a flow, `target/name`.
            running: What the run has.

        Raises:
            ProgramRefused: The program declares something else than when it was loaded.
        """
        by = self._last[1] if self._last and self._last[0] is running.session else None
        if by is None:
            by = self.execute(Running(running.session, running.tables, running.sources, whole=True))
            self._last = None if by.reads_at_top else (running.session, by)
        functions: dict[str, Function | None] = {}
        if kind == "dataset":
            functions = {one.name: one.function for one in by.registry.datasets}
        else:
            functions = {f"{one.target}/{one.name}": one.function for one in by.registry.flows}
        function = functions.get(name)
        if function is not None:
            return by, function
        problems = by.registry.problems or [
            Problem(
                short(str(self.path)), f"it does not declare {name!r} any more", "load it again"
            )
        ]
        raise ProgramRefused(short(str(self.path)), tuple(problems))

    def _names(self, by: Execution, path: Path) -> dict[str, Any]:
        """What a file of the program has without importing it."""
        names: dict[str, Any] = {
            "__name__": f"program_{snake(path.stem)}",
            "__file__": str(path),
            "spark": by.spark,
            "dbutils": Dbutils(by),
            "display": show_nothing,
            "displayHTML": show_nothing,
        }

        running = [path]

        def run(other: str) -> None:
            file = notebook(running[-1], other)
            if file in running:
                by.registry.problem(
                    f"%run {other}: the notebook is running already", "remove the line"
                )
                return
            try:
                units = units_of(file)
            except ProgramRefused as error:
                by.registry.problem(f"%run {other}: {error.problems[0].what}", "correct the path")
                return
            by.registry.files.update(unit.file for unit in units)
            running.append(file)
            for unit in units:
                _execute(by, unit, names)
            running.pop()

        names[RUN] = run
        return names


def _execute(by: Execution, unit: Unit, names: dict[str, Any]) -> None:
    for line, text in unit.notes:
        by.registry.note(text, Place(short(unit.file), line))
    by.registry.problems.extend(unit.problems)
    fix = "the program must run by itself from its top to its end"
    try:
        # It is the author's own program, which is run as it would be on Databricks.
        exec(compile(unit.text, unit.file, "exec", dont_inherit=True), names)  # noqa: S102
    except SyntaxError as error:
        by.registry.problem(
            f"no Python: {error.msg}", "correct it", Place(short(unit.file), error.lineno or 1)
        )
    except ModuleNotFoundError as error:
        fix = "install it in this environment, or put it beside the program"
        by.registry.problem(str(error), fix, line_of(by.registry, error))
    except Untraceable as error:
        by.registry.problem(
            f"at its top the program wants rows: {error}",
            "read rows inside a table's function; write rules in the program, in a module that it "
            "imports, or in a pipeline module with ka.rules_from",
            line_of(by.registry, error),
        )
    except Exception as error:
        by.registry.problem(f"{type(error).__name__}: {error}", fix, line_of(by.registry, error))


def line_of(registry: Registry, error: BaseException) -> Place:
    """The program's line that an exception came through last."""
    own = [one for one in traceback.extract_tb(error.__traceback__) if registry.owns(one.filename)]
    if not own:
        return registry.place()
    return Place(short(own[-1].filename), own[-1].lineno or 1)
