"""Where a declaration stands, that it is found, and what names it may have.

A declaration need not be assigned to a variable: each is also kept in the list `DECLARED` of the
module that is being imported, so that none made in a loop or a function gets lost.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from kafka_assets.declarations.model import LAYERS, Declaration, Place
from kafka_assets.errors import DeclarationError

NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
DECLARED = "__kafka_assets_declared__"

D = TypeVar("D", bound=Declaration)

_WRITTEN_AT: ContextVar[Place | None] = ContextVar("written_at", default=None)


@contextmanager
def written_at(place: Place) -> Iterator[None]:
    """Declarations made inside stand at this place, of a file that is no Python.

    They belong to no module that is being imported: whoever makes them keeps them.
    """
    before = _WRITTEN_AT.set(place)
    try:
        yield
    finally:
        _WRITTEN_AT.reset(before)


def declared(declaration: D, instead_of: Declaration | None = None) -> D:
    """Keep a declaration with the module that is being imported, and give it back.

    Args:
        declaration: The new declaration.
        instead_of: The one that it replaces: a table gets further expectations by a new value.
    """
    if _WRITTEN_AT.get() is not None:
        return declaration
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is not None:
        kept = frame.f_globals.setdefault(DECLARED, [])
        kept[:] = [one for one in kept if one is not instead_of]
        kept.append(declaration)
    return declaration


def caller() -> Place:
    """The line outside of this package that is running."""
    elsewhere = _WRITTEN_AT.get()
    if elsewhere is not None:
        return elsewhere
    here = str(Path(__file__).parent)
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(here) and frame.f_back is not None:
        frame = frame.f_back
    return Place(shortened(frame.f_code.co_filename), frame.f_lineno)


def place_of(function: Callable[..., Any]) -> Place:
    """Where a function stands."""
    code = inspect.unwrap(function).__code__
    return Place(shortened(code.co_filename), code.co_firstlineno)


def shortened(file: str) -> str:
    """A path as messages name it: relative to where the process runs, when it lies below."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def check_name(subject: str, place: Place, name: str, what: str) -> None:
    """Refuse a name that is not snake_case.

    Raises:
        DeclarationError: Names `what` and the rule.
    """
    if not NAME.fullmatch(name) or "__" in name:
        raise DeclarationError(
            subject,
            str(place),
            f"{what} {name!r} is not snake_case",
            fix="use lower-case letters, digits, single underscores; a letter first; at most 100",
        )


def check_layer(subject: str, place: Place, layer: str) -> None:
    """Refuse a layer that does not exist.

    Raises:
        DeclarationError: Names the layers.
    """
    if layer not in LAYERS:
        raise DeclarationError(
            subject,
            str(place),
            f"layer={layer!r} does not exist",
            fix=f"use one of {', '.join(LAYERS)}",
        )


def check_owners(subject: str, place: Place, owners: Sequence[str]) -> None:
    """Refuse an owner that Dagster would not take.

    Raises:
        DeclarationError: Names the owner.
    """
    for owner in owners:
        if not re.fullmatch(r"team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+\.[^@\s]+", owner):
            raise DeclarationError(
                subject,
                str(place),
                f"owner {owner!r} is neither an email nor a team",
                fix='write "name@example.org" or "team:name"',
            )


def columns(subject: str, place: Place, option: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """Column names given as one name or several.

    Raises:
        DeclarationError: There is none, or one is empty or given twice.
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or len(set(names)) != len(names) or not all(_is_text(names)):
        raise DeclarationError(
            subject,
            str(place),
            f"{option}={given!r} is no list of different column names",
            fix=f'write {option}=["a", "b"]',
        )
    return names


def _is_text(names: Iterable[Any]) -> list[bool]:
    return [isinstance(name, str) and bool(name) for name in names]


def parameters(function: Callable[..., Any], subject: str, place: Place) -> tuple[str, ...]:
    """The names of a function's parameters, which are its upstreams.

    Raises:
        DeclarationError: It has none, or takes any number of them.
    """
    found = inspect.signature(function).parameters.values()
    bad = [p.name for p in found if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if bad or not found:
        what = f"takes *{bad[0]}" if bad else "has no parameter"
        raise DeclarationError(
            subject,
            str(place),
            f"its function {what}; parameters name the upstream topics and tables",
            fix="name each upstream topic or table as a parameter",
        )
    return tuple(p.name for p in found)
