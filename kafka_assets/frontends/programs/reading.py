"""What a function of a program reads, as far as its text shows: constant names and simple calls.

Second best, for functions that cannot be called without rows.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_assets.declarations import Place, Read
from kafka_assets.frontends.programs.execution import Execution
from kafka_assets.frontends.programs.facts import Aggregate, Facts, Source
from kafka_assets.frontends.programs.registry import Function, place_of
from kafka_assets.frontends.programs.sources import source_of

_READS: dict[str, Read] = {"read": "static", "read_stream": "stream", "readStream": "stream"}


@dataclass(frozen=True)
class _Chain:
    """Calls on one thing: `spark.readStream.format("kafka").load()` is its names and arguments."""

    root: str
    calls: tuple[tuple[str, tuple[Any, ...]], ...]
    line: int


def found_in_text(by: Execution, function: Function) -> Facts | None:
    """What a function reads by its text; None when the text is not to be had."""
    tree = tree_of(function)
    if tree is None:
        return None
    names = constants_of(function)
    place = place_of(function)
    sources: list[Source] = []
    streams = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            at = Place(place.file, place.line + node.lineno - 1)
            source = _source(by, _chain(node, names), at)
            if source is not None:
                sources.append(source)
                streams = streams or source.how != "static"
    words = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    aggregate = None
    if streams and words & {"groupBy", "groupby", "agg", "rollup", "cube"}:
        aggregate = Aggregate(place, None, "withWatermark" in words)
    sources.sort(key=lambda one: one.place.line)
    return Facts(tuple(sources), streams, "?" if "withWatermark" in words else "", aggregate)


def tree_of(function: Function) -> ast.Module | None:
    """A function's text, parsed."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None


def constants_of(function: Function) -> dict[str, Any]:
    """Plain values that a function sees: of its module, its defaults and what it closes over."""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    if code is None:
        return {}
    seen = inspect.getclosurevars(inner)
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(inner).parameters.items()
    }
    every = {**seen.globals, **seen.nonlocals, **defaults}
    return {name: value for name, value in every.items() if is_plain(value)}


def is_plain(value: object) -> bool:
    """Whether a value is made of texts and numbers alone."""
    if isinstance(value, list | tuple | set | frozenset):
        return all(is_plain(one) for one in value)
    if isinstance(value, dict):
        return all(is_plain(k) and is_plain(v) for k, v in value.items())
    return value is None or isinstance(value, str | int | float | bool)


def _chain(node: ast.Call, names: Mapping[str, Any]) -> _Chain:
    calls: list[tuple[str, tuple[Any, ...]]] = []
    at: ast.expr = node
    arguments: tuple[Any, ...] = ()
    while True:
        if isinstance(at, ast.Call):
            given = [*at.args, *[keyword.value for keyword in at.keywords]]
            arguments = tuple(_value(one, names) for one in given)
            at = at.func
        elif isinstance(at, ast.Attribute):
            calls.append((at.attr, arguments))
            arguments = ()
            at = at.value
        else:
            root = at.id if isinstance(at, ast.Name) else ""
            return _Chain(root, tuple(reversed(calls)), node.lineno)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        pass
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.JoinedStr):
        parts = list(_parts(node, names))
        return None if None in parts else "".join(str(part) for part in parts)
    return None


def _parts(node: ast.JoinedStr, names: Mapping[str, Any]) -> Iterator[Any]:
    for part in node.values:
        yield _value(part.value if isinstance(part, ast.FormattedValue) else part, names)


def _source(by: Execution, chain: _Chain, place: Place) -> Source | None:
    if not chain.calls:
        return None
    (first, given), (last, arguments) = chain.calls[0], chain.calls[-1]
    name = arguments[0] if arguments and isinstance(arguments[0], str) else None
    if chain.root in ("dlt", "dp") and len(chain.calls) == 1 and first in _READS:
        return None if name is None else Source(name, False, _READS[first], place)
    if chain.root != "spark":
        return None
    how: Read = "stream" if first == "readStream" else "static"
    if last == "table" and name is not None:
        return Source(name, False, how, place)
    if last == "load" and first in ("read", "readStream"):
        options = {a[0]: a[1] for word, a in chain.calls if word == "option" and len(a) == 2}
        kind = next((a[0] for word, a in chain.calls if word == "format" and a), "delta")
        return source_of(by.registry, str(kind), options, how == "stream", place)
    del given
    return None
