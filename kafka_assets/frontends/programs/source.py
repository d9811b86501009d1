"""The text of a program: files, exported notebooks and `.ipynb` notebooks, as units to execute.

Lines keep their numbers, so that every message can name one. What the text does is not looked at
here.
"""

from __future__ import annotations

import json
import linecache
import re
from collections.abc import Iterator
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
        text: Python, line by line as in the file.
        notes: Line and text of what is passed over.
        problems: What cannot be mapped already by its text.
    """

    file: str
    text: str
    notes: tuple[tuple[int, str], ...] = ()
    problems: tuple[Problem, ...] = ()


def units_of(path: Path) -> list[Unit]:
    """The units of a program: a file, or all files of a folder in the order of their names.

    Raises:
        ProgramRefused: There is no program.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in (".py", ".ipynb"))
        found = [unit for file in files for unit in units_of(file)]
        if found:
            return found
    try:
        if path.suffix == ".ipynb":
            return list(_cells(path))
        if path.suffix == ".py":
            return [_python(str(path), path.read_text(encoding="utf-8-sig"))]
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, f"cannot be read: {type(error).__name__}: {error}") from None
    raise _unreadable(path, "is no program in Python")


def notebook(path: Path) -> Path:
    """The file of a notebook that `%run` names without a suffix."""
    return next((p for s in (".py", ".ipynb") if (p := path.with_suffix(s)).exists()), path)


def _python(file: str, text: str) -> Unit:
    if not text.lstrip().startswith(_NOTEBOOK):
        return Unit(file, text)
    lines, notes, problems = text.split("\n"), [], []
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
            lines[number - 1] = f"{RUN}({rest.split(' $')[0].strip().strip(chr(34))!r})"
        elif word == "python":
            python = True
        elif word == "pip":
            notes.append((number, f"%pip {rest}: install it in this environment"))
        elif word not in _HARMLESS:
            problems.append(_magic_problem(file, number, word))
    return Unit(file, "\n".join(lines), tuple(notes), tuple(problems))


def _cells(path: Path) -> Iterator[Unit]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for index, cell in enumerate(cells, start=1):
        text = "".join(cell["source"])
        if cell["cell_type"] != "code" or not text.strip():
            continue
        file = f"{path}[cell {index}]"
        lines, notes, problems = text.split("\n"), [], []
        for number, line in enumerate(lines, start=1):
            if not line.startswith(("%", "!")):
                continue
            word, _, rest = line.lstrip("%!").partition(" ")
            lines[number - 1] = "#"
            if word == "run":
                lines[number - 1] = f"{RUN}({rest.split(' $')[0].strip().strip(chr(34))!r})"
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
        yield Unit(file, "\n".join(lines), tuple(notes), tuple(problems))


def _magic_problem(file: str, number: int, word: str) -> Problem:
    return Problem(
        f"{short(file)}:{number}",
        f"a %{word} cell is not part of a Python program",
        "write it in Python; SQL that declares tables goes into a .sql file of its own",
    )


def _unreadable(path: Path, what: str) -> ProgramRefused:
    fix = "give a .py file, a notebook exported as source, an .ipynb notebook, or a folder of them"
    return ProgramRefused(short(str(path)), (Problem(short(str(path)), what, fix),))
