"""What a function of a program reads, as far as its text shows: constant names and simple calls.

Second best, for functions that cannot be called without rows.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_assets.declarations import Place, Read
from kafka_assets.frontends.file_options import same_path
from kafka_assets.frontends.programs.execution import Execution
from kafka_assets.frontends.programs.facts import Aggregate, Facts, Source
from kafka_assets.frontends.programs.readers import FORMATS, Reader
from kafka_assets.frontends.programs.registry import Function, place_of

_READS: dict[str, Read] = {"read": "static", "read_stream": "stream", "readStream": "stream"}
_SETTERS = ("format", "option", "options", "schema")


@dataclass(frozen=True)
class _Call:
    """One name after a point, and what is given to it; what the text does not show is None."""

    word: str
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)

    def value(self, name: str, at: int = 0) -> Any:
        """An argument, by its name or its place."""
        return self.arguments[at] if len(self.arguments) > at else self.named.get(name)


@dataclass(frozen=True)
class _Chain:
    """Calls on one thing: `spark.readStream.format("kafka").load()` is a root and three of them."""

    root: str
    calls: tuple[_Call, ...]


def found_in_text(by: Execution, function: Function, seen: Iterable[Source] = ()) -> Facts | None:
    """What a function reads by its text.

    Args:
        by: The execution at load.
        function: The function.
        seen: What it read before it could not go on; that is known better than by its text.

    Returns:
        What is known of it; None when the text is not to be had.
    """
    tree = tree_of(function)
    if tree is None:
        return None
    values = values_of(function).items()
    names = {name: value for name, value in values if is_plain(value) or _is_schema(value)}
    known = {source.name for source in seen if source.kind == "files"}
    place = place_of(function)
    sources: list[Source] = []
    streams = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            at = Place(place.file, place.line + node.lineno - 1)
            source = _source(by, _chain(node, names), at, known)
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
    """Plain values that a function sees."""
    return {name: value for name, value in values_of(function).items() if is_plain(value)}


def values_of(function: Function) -> dict[str, Any]:
    """All that a function sees: of its module, its defaults and what it closes over."""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    if code is None:
        return {}
    seen = inspect.getclosurevars(inner)
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(inner).parameters.items()
    }
    return {**seen.globals, **seen.nonlocals, **defaults}


def is_plain(value: object) -> bool:
    """Whether a value is made of texts and numbers alone."""
    if isinstance(value, list | tuple | set | frozenset):
        return all(is_plain(one) for one in value)
    if isinstance(value, dict):
        return all(is_plain(k) and is_plain(v) for k, v in value.items())
    return value is None or isinstance(value, str | int | float | bool)


def _is_schema(value: object) -> bool:
    from pyspark.sql.types import StructType

    return isinstance(value, StructType)


def _chain(node: ast.Call, names: Mapping[str, Any]) -> _Chain:
    calls: list[_Call] = []
    at: ast.expr = node
    arguments: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    while True:
        if isinstance(at, ast.Call):
            arguments = tuple(_value(one, names) for one in at.args)
            named = _named(at.keywords, names)
            at = at.func
        elif isinstance(at, ast.Attribute):
            calls.append(_Call(at.attr, arguments, named))
            arguments, named = (), {}
            at = at.value
        else:
            root = at.id if isinstance(at, ast.Name) else ""
            return _Chain(root, tuple(reversed(calls)))


def _named(keywords: Iterable[ast.keyword], names: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in keywords:
        value = _value(one.value, names)
        if one.arg is not None:
            found[one.arg] = value
        elif isinstance(value, dict):
            found |= value
    return found


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


def _source(by: Execution, chain: _Chain, place: Place, known: Collection[str]) -> Source | None:
    if not chain.calls:
        return None
    first, last = chain.calls[0], chain.calls[-1]
    if chain.root in ("dlt", "dp") and len(chain.calls) == 1 and first.word in _READS:
        return _table(last, _READS[first.word], place)
    if chain.root != "spark":
        return None
    if last.word == "table":
        return _table(last, _READS.get(first.word, "static"), place)
    if last.word in ("load", *FORMATS) and first.word in ("read", "readStream"):
        return _loaded(by, chain, place, known)
    return None


def _table(call: _Call, how: Read, place: Place) -> Source | None:
    name = next(iter((*call.arguments, *call.named.values())), None)
    return Source(name, "table", how, place) if isinstance(name, str) else None


def _loaded(by: Execution, chain: _Chain, place: Place, known: Collection[str]) -> Source | None:
    """What a reader loads, asked in the same way as by the program itself."""
    first, *setters, last = chain.calls
    path = last.value("path")
    if isinstance(path, str) and same_path(path) in known:
        return None
    unseen = [name for call in setters for name in _unseen(call)]
    formats = [call.value("source") for call in setters if call.word == "format"]
    if unseen and formats != ["kafka"]:
        by.registry.problem(
            f"{', '.join(unseen)} of a reader cannot be seen in the text of its function, which "
            "cannot be called without rows",
            "write plain values there, or a name that the module gives to one",
            place,
        )
        return None
    reader = Reader(by, first.word == "readStream")
    try:
        for call in setters:
            if call.word in _SETTERS:
                getattr(reader, call.word)(*call.arguments, **call.named)
        return reader.source(last.word, last.arguments, last.named, place)
    except TypeError:
        # The program's own call would fail in the same way.
        return None


def _unseen(call: _Call) -> Iterator[str]:
    """What of a reader's options and schema its text does not show."""
    if call.word == "option" and call.value("value", 1) is None:
        yield f"the option {call.value('key')}"
    elif call.word == "options":
        yield from (f"the option {name}" for name, value in call.named.items() if value is None)
    elif call.word == "schema" and call.value("schema") is None:
        yield "the schema"
