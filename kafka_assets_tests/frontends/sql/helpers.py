"""Small words for tests of SQL files: what a text declares, and what is wrong with it."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from kafka_assets.declarations import Flow, Table, Topic
from kafka_assets.errors import DeclarationError
from kafka_assets.frontends.sql import Loaded, load_files
from kafka_assets.frontends.sql.function import SqlFunction


def load(*texts: str, topics: tuple[Topic, ...] = ()) -> Loaded:
    """What files with these texts declare together: a.sql, b.sql, ..."""
    with TemporaryDirectory() as folder:
        files = []
        for name, text in zip("abc", texts, strict=False):
            files.append(Path(folder) / f"{name}.sql")
            files[-1].write_text(textwrap.dedent(text), encoding="utf-8")
        return load_files(files, topics)


def declared(*texts: str) -> dict[str, Any]:
    """Name -> declaration; tables win over flows of their name."""
    found = load(*texts).declarations
    return {one.name: one for one in sorted(found, key=lambda one: not isinstance(one, Flow))}


def table(text: str, name: str = "t") -> Table:
    """The table of this name that a text declares."""
    found = declared(text)[name]
    assert isinstance(found, Table)
    return found


def flow(text: str) -> Flow:
    """The only flow of a text."""
    (found,) = [one for one in load(text).declarations if isinstance(one, Flow)]
    return found


def function_of(made: Table | Flow) -> SqlFunction:
    """The function that a SELECT became."""
    found = inspect.unwrap(made.function)
    assert isinstance(found, SqlFunction)
    return found


def refused(*texts: str) -> DeclarationError:
    """The error that a text is refused with."""
    with pytest.raises(DeclarationError) as raised:
        load(*texts)
    assert raised.value.fix
    return raised.value
