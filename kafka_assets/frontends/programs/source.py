"""The text of a program: files, exported notebooks and `.ipynb` notebooks, as units to execute.

Lines keep their numbers, so that every message can name one. What the text does is not looked at
here.
"""

from __future__ import annotations

import json
import linecache
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_assets.errors import Problem, ProgramRefused
from kafka_assets.frontends.programs.registry import short

RUN = "__kafka_assets_run__"
"""What a `%run` line becomes: a call that executes the other notebook in the same names."""

_MAGIC = re.compile(r"^# MAGIC %(\w+)\s*(.*?)\s*$")
_HARMLESS = ("md", "md-sandbox")
_NOTEBOOK = "# Databricks notebook source"


@dataclass(frozen=True)
class Unit:
    """A piece of a program that is compiled at once.

    Attributes:
        file: The name it is compiled under, which messages show.
        path: The file that it is of.
        text: Python, line by line as in the file.
        notes: Line and text of what is passed over.
        problems: What cannot be mapped already by its text.
        runs: Notebooks that it executes with `%run`.
    """

    file: str
    path: Path
    text: str
    notes: tuple[tuple[int, str], ...] = ()
    problems: tuple[Problem, ...] = ()
    runs: tuple[Path, ...] = ()


def units_of(path: Path) -> list[Unit]:
    """The units of a program: a file, or all files of a folder in the order of their names.

    Of a folder, notebooks that another one executes with `%run` are no programs by themselves.

    Raises:
        ProgramRefused: There is no program.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in (".py", ".ipynb"))
        found = {file: units_of(file) for file in files}
        if found or sql_of(path):
            return [unit for file in _begun(found) for unit in found[file]]
    try:
        if path.suffix == ".ipynb":
            return list(_cells(path))
        if path.suffix == ".py":
            return [_python(path, path.read_text(encoding="utf-8-sig"))]
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, f"cannot be read: {type(error).__name__}: {error}") from None
    raise _unreadable(path, "is no program in Python")


def sql_of(folder: Path) -> list[Path]:
    """The files of SQL in a folder, which declare tables of the program too."""
    files = [one for one in folder.rglob("*.sql") if not _is_hidden(one, folder)]
    return sorted(files) if folder.is_dir() else []


def specifications_of(folder: Path) -> list[Path]:
    """The files in a folder with which Spark's own command line finds a pipeline."""
    return sorted(folder.glob("spark-pipeline.y*ml")) if folder.is_dir() else []


def notebook(beside: Path, name: str) -> Path:
    """The file of a notebook that another one names in `%run`, without a suffix."""
    path = (beside.parent / name).resolve()
    return next((p for s in (".py", ".ipynb") if (p := path.with_suffix(s)).exists()), path)


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _begun(found: Mapping[Path, list[Unit]]) -> list[Path]:
    """The files of a folder that no other one executes; of some that execute each other, one."""
    runs = {
        file: {run for unit in units for run in unit.runs} - {file} for file, units in found.items()
    }
    run = {other for others in runs.values() for other in others}
    begun: list[Path] = []
    reached: set[Path] = set()
    for file in [*(one for one in found if one not in run), *found]:
        if file in reached:
            continue
        begun.append(file)
        new = [file]
        while new:
            one = new.pop()
            if one not in reached:
                reached.add(one)
                new.extend(runs.get(one, ()))
    return sorted(begun)


def _python(path: Path, text: str) -> Unit:
    file = str(path)
    if not text.lstrip().startswith(_NOTEBOOK):
        return Unit(file, path, text)
    lines, notes, problems, runs = text.split("\n"), [], [], []
    python = False
    for number, line in enumerate(lines, start=1):
        if python and line.startswith("# MAGIC"):
            # A cell that is marked as Python is Python like the others.
            lines[number - 1] = line.removeprefix("# MAGIC").removeprefix(" ")
            continue
        python = False
        magic = _MAGIC.match(line)
        if magic is None:
            continue
        word, rest = magic.groups()
        if word == "run":
            lines[number - 1], run, values = _run(path, rest)
            runs.append(run)
            notes += [(number, text) for text in values]
        elif word == "python":
            python = True
        elif word == "pip":
            notes.append((number, f"%pip {rest}: install it in this environment"))
        elif word not in _HARMLESS:
            problems.append(_magic_problem(file, number, word))
    return Unit(file, path, "\n".join(lines), tuple(notes), tuple(problems), tuple(runs))


def _run(path: Path, rest: str) -> tuple[str, Path, list[str]]:
    """`%run` as Python, the notebook that it names, and notes on values that it gives."""
    name, *values = (part.strip().strip('"') for part in rest.split(" $"))
    said = [value.partition("=")[0].strip() for value in values]
    notes = [f"%run {name} ${one}=...: not used; give it by conf=" for one in said]
    return f"{RUN}({name!r})", notebook(path, name), notes


def _cells(path: Path) -> Iterator[Unit]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for index, cell in enumerate(cells, start=1):
        text = "".join(cell["source"])
        if cell["cell_type"] != "code" or not text.strip():
            continue
        file = f"{path}[cell {index}]"
        lines, notes, problems, runs = text.split("\n"), [], [], []
        for number, line in enumerate(lines, start=1):
            if not line.startswith(("%", "!")):
                continue
            word, _, rest = line.lstrip("%!").partition(" ")
            lines[number - 1] = "#"
            if word == "run":
                lines[number - 1], run, values = _run(path, rest)
                runs.append(run)
                notes += [(number, text) for text in values]
            elif word == "pip":
                notes.append((number, f"%pip {rest}: install it in this environment"))
            elif word in _HARMLESS:
                lines[number:] = ["#"] * len(lines[number:])
                break
            else:
                problems.append(_magic_problem(file, number, word))
                lines[number:] = ["#"] * len(lines[number:])
                break
        # The text of functions is looked up under this name.
        linecache.cache[file] = (len(text), None, [f"{line}\n" for line in text.split("\n")], file)
        yield Unit(file, path, "\n".join(lines), tuple(notes), tuple(problems), tuple(runs))


def _magic_problem(file: str, number: int, word: str) -> Problem:
    return Problem(
        f"{short(file)}:{number}",
        f"a %{word} cell is not part of a Python program",
        "write it in Python; SQL that declares tables goes into a .sql file of its own",
    )


def _unreadable(path: Path, what: str) -> ProgramRefused:
    fix = "give a .py file, a notebook exported as source, an .ipynb notebook, or a folder of them"
    return ProgramRefused(short(str(path)), (Problem(short(str(path)), what, fix),))
