"""How tests write a program, and look at one that is loaded: its tables, edges, rules and notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kafka_assets as ka
from kafka_assets.errors import ProgramRefused
from kafka_assets.frontends.programs import LoadedProgram, load_program
from kafka_assets.graph import Graph, build_graph

PROGRAMS = Path(__file__).parent / "programs"
START = "import dlt\nfrom pyspark.sql.types import *\n"
JSON = 'spark.readStream.format("json").schema("id INT")'
AUTO = 'spark.readStream.format("cloudFiles").option("cloudFiles.format", "json").schema("id INT")'


def load(name: str, **options: Any) -> LoadedProgram:
    """One of the example programs."""
    return load_program(PROGRAMS / name, **options)


def written(folder: Path, text: str, **options: Any) -> LoadedProgram:
    """A program with this text."""
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    return load_program(file, **options)


def refused(folder: Path, text: str, **options: Any) -> list[str]:
    """Line and text of each problem of a program with this text."""
    with pytest.raises(ProgramRefused) as raised:
        written(folder, text, **options)
    assert all(problem.fix for problem in raised.value.problems)
    file = str(folder / "program.py")
    return [f"{p.where.replace(file, 'program.py')}: {p.what}" for p in raised.value.problems]


def graph_of_program(loaded: LoadedProgram, folder: Path) -> Graph:
    """The validated graph."""
    return build_graph([loaded.as_module()], ka.Settings(lake=str(folder / "lake")))


def tables(loaded: LoadedProgram) -> dict[str, str]:
    """Name -> layer and kind."""
    return {t["name"]: f"{t['layer']} {t['kind']}" for t in loaded.as_dict()["tables"]}


def edges(loaded: LoadedProgram) -> set[tuple[str, str]]:
    """All edges."""
    return set(loaded.edges)


def rules(loaded: LoadedProgram) -> dict[str, list[tuple[str, str, str]]]:
    """Table -> name, action and text of each rule, for tables that have some."""
    return {
        name: [(e.name, e.action, e.text) for e in table.expectations]
        for name, table in loaded.tables.items()
        if table.expectations
    }


def program(*readers: str) -> str:
    """A program with a table for each reader."""
    made = [f"@dlt.table\ndef table_{n}(): return {one}\n" for n, one in enumerate(readers)]
    return START + "".join(made)


def notes(loaded: LoadedProgram) -> list[str]:
    return [f"{note.place.line}: {note.text}" for note in loaded.notes]
