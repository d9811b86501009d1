"""The function that a table of the graph has: the program's own, given the frames of a run.

It also carries what changes its code version: its text, and the plain values that it sees.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafka_assets.errors import KafkaAssetsError
from kafka_assets.frontends.programs.environment import around
from kafka_assets.frontends.programs.execution import Running
from kafka_assets.frontends.programs.facts import Key
from kafka_assets.frontends.programs.program import Program
from kafka_assets.frontends.programs.reading import constants_of, is_plain, tree_of
from kafka_assets.frontends.programs.recording import Recorded
from kafka_assets.frontends.programs.registry import Function, plain

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Input = tuple[str, Key | None]
"""Name in the graph, and of a topic or folder what it is known by outside."""


def function_of(
    program: Program,
    kind: str,
    key: str,
    original: Function,
    inputs: tuple[Input, ...],
    schema: StructType | None = None,
) -> Callable[..., Any]:
    """Make a table's function.

    Args:
        program: The program.
        kind: `dataset` or `flow`.
        key: By which the program's function is found again.
        original: The program's function as it was at load.
        inputs: What it reads, in the order of its frames.
        schema: Columns that its result is to have; None takes it as it is.

    Returns:
        A function of as many frames as there are inputs.
    """

    def run(*frames: Any) -> Any:
        given = dict(zip(inputs, frames, strict=True))
        running = Running(
            session=frames[0].sparkSession if frames else _active(),
            tables={name: frame for (name, key), frame in given.items() if key is None},
            sources={key: frame for (_, key), frame in given.items() if key is not None},
        )
        by, function = program.function(kind, key, running)
        with by.run_with(running), around(by):
            result: Any = function()
        if type(result) is Recorded:
            raise KafkaAssetsError(
                f"{key!r} returns a frame that the program made at its top from what this "
                "function does not read",
                fix="make the frame inside the function",
            )
        return result if schema is None else result.to(_nullable(schema))

    run.__name__ = run.__qualname__ = key.rpartition("/")[2]
    run.__doc__ = inspect.getdoc(plain(original))
    vars(run)["__wrapped__"] = original
    # What the graph takes for its text, and by what the plan knows where it comes from.
    vars(run)["code"] = _text(original)
    vars(run)["of_program"] = True
    return run


def _active() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.active()


def _nullable(schema: StructType) -> StructType:
    """The columns, all of which may be null: a stream's columns always may."""
    from pyspark.sql.types import StructType

    def relaxed(value: Any) -> Any:
        if isinstance(value, list):
            return [relaxed(one) for one in value]
        if isinstance(value, dict):
            free = ("nullable", "containsNull", "valueContainsNull")
            return {k: True if k in free else relaxed(v) for k, v in value.items()}
        return value

    return StructType.fromJson(relaxed(json.loads(schema.json())))


def _text(function: Function) -> str:
    """What a function does, as text: comments, docstring and decorators do not count."""
    inner = plain(function)
    tree = tree_of(inner)
    values = repr(sorted({**constants_of(inner), **_given(function)}.items()))
    if tree is None:
        code = getattr(inner, "__code__", None)
        if code is None:
            return f"{getattr(inner, '__qualname__', '')} {values}"
        return f"{code.co_code!r} {code.co_names!r} {values}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:]
    return f"{ast.dump(tree)} {values}"


def _given(function: Function) -> dict[str, Any]:
    """Plain values that a `partial` gives its function, or that an object to call has."""
    outer = inspect.unwrap(function)
    given: dict[str, Any] = {}
    if isinstance(outer, functools.partial):
        given = {f"={n}": value for n, value in enumerate(outer.args)} | {**outer.keywords}
        given |= _given(outer.func)
    elif not inspect.isroutine(outer):
        given = {f".{name}": value for name, value in getattr(outer, "__dict__", {}).items()}
    elif inspect.ismethod(outer):
        of_object = getattr(outer.__self__, "__dict__", {})
        given = {f".{name}": value for name, value in of_object.items()}
    return {name: value for name, value in given.items() if is_plain(value)}
