"""What a program finds around it while it is executed and while its functions run, and only then.

The stand-ins for modules are in `sys.modules`, the program's folder is on the path, and asking
Spark for its session from within the program gives the stand-in. Afterwards all is as it was;
modules that the program imported from its own folder are forgotten, so that two programs may have
modules of one name, and so that their functions travel to Spark's workers by value.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from kafka_assets.frontends.programs.databricks import Dbutils, show_nothing
from kafka_assets.frontends.programs.execution import Execution
from kafka_assets.frontends.programs.recording import Recorded
from kafka_assets.frontends.programs.words import module_of

_OLD_NAMES = (
    *("approxCountDistinct", "bitwiseNOT", "countDistinct", "shiftLeft", "shiftRight"),
    *("shiftRightUnsigned", "sumDistinct", "toDegrees", "toRadians"),
)
_LOCK = threading.RLock()
_CONNECT = "SPARK_CONNECT_MODE_ENABLED"
"""With this variable set, Spark's functions make Columns without a session."""


@contextmanager
def around(by: Execution) -> Iterator[None]:
    """Let the program's code run.

    Args:
        by: The execution; when it is running with real frames, Columns are those of its session.
    """
    with _LOCK, ExitStack() as stack:
        stack.enter_context(_modules(by))
        stack.enter_context(_folder(by.registry.folder))
        if by.running is None:
            # What a program prints while it is loaded is not the output of who loads it.
            stack.enter_context(redirect_stdout(sys.stderr))
            stack.enter_context(_without_session())
            stack.enter_context(_methods_of_frames())
        stack.enter_context(_session_of_program(by))
        stack.enter_context(_old_names())
        yield


@contextmanager
def _modules(by: Execution) -> Iterator[None]:
    import pyspark as parent

    pyspark: Any = parent

    shims = {name: module_of(by, name) for name in ("dlt", "pyspark.pipelines")}
    shims |= _of_notebooks(by)
    before = {name: sys.modules.get(name) for name in shims}
    attribute = getattr(pyspark, "pipelines", None)
    sys.modules.update(shims)
    pyspark.pipelines = shims["pyspark.pipelines"]
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
        if attribute is None:
            del pyspark.pipelines
        else:
            pyspark.pipelines = attribute


def _of_notebooks(by: Execution) -> dict[str, ModuleType]:
    """Modules from which programs import what notebooks have without importing it."""
    runtime, utils = ModuleType("databricks.sdk.runtime"), ModuleType("pyspark.dbutils")
    has = {"spark": by.spark, "dbutils": Dbutils(by), "display": show_nothing}
    vars(runtime).update(has)
    vars(utils)["DBUtils"] = lambda *_: Dbutils(by)
    shims = {one.__name__: one for one in (runtime, utils)}
    if find_spec("databricks") is None:
        for name in ("databricks", "databricks.sdk"):
            shims[name] = ModuleType(name)
            shims[name].__path__ = []
    return shims


@contextmanager
def _folder(folder: Path) -> Iterator[None]:
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if _lies_in(sys.modules[name], folder):
                del sys.modules[name]


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    own = not module.__name__.startswith("kafka_assets")
    return own and file is not None and Path(file).is_relative_to(folder)


@contextmanager
def _old_names() -> Iterator[None]:
    """`from pyspark.sql.functions import *` gives also the names that Spark 4 hides."""
    from pyspark.sql import functions

    before = list(functions.__all__)
    functions.__all__ = [*before, *(name for name in _OLD_NAMES if hasattr(functions, name))]
    try:
        yield
    finally:
        functions.__all__ = before


@contextmanager
def _without_session() -> Iterator[None]:
    """Spark's functions make Columns, and types are parsed from text, without an engine."""
    from pyspark.sql.connect.session import SparkSession

    before, active = os.environ.get(_CONNECT), SparkSession.__dict__["active"]
    os.environ[_CONNECT] = "1"
    nobody = SimpleNamespace(_parse_ddl=parse_type, conf=SimpleNamespace(get=lambda *_: "false"))
    SparkSession.active = classmethod(lambda cls: nobody)  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        SparkSession.active = active  # type: ignore[method-assign]
        if before is None:
            del os.environ[_CONNECT]
        else:
            os.environ[_CONNECT] = before


@contextmanager
def _methods_of_frames() -> Iterator[None]:
    """`DataFrame.union(a, b)`, as `reduce` is given it, takes recording frames too."""
    from pyspark.sql import DataFrame

    before = {
        name: method
        for name, method in vars(DataFrame).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }

    def taking(name: str, method: Any) -> Any:
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            if type(self) is Recorded:
                return getattr(self, name)(*arguments, **named)
            return method(self, *arguments, **named)

        return call

    for name, method in before.items():
        setattr(DataFrame, name, taking(name, method))
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(DataFrame, name, method)


def parse_type(text: str) -> Any:
    """A type, or columns, from their text, without an engine."""
    from kafka_assets.schemas import from_ddl

    where = Path("a type of the program")
    try:
        return from_ddl(where, f"`value` {text}").fields[0].dataType
    except (ValueError, IndexError):
        return from_ddl(where, text)


@contextmanager
def _session_of_program(by: Execution) -> Iterator[None]:
    """Asked from the program's code, Spark answers with the stand-in."""
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder
    places: list[tuple[Any, str]] = [
        (SparkSession, "active"),
        (SparkSession, "getActiveSession"),
        (builder, "getOrCreate"),
    ]
    before = [owner.__dict__[name] for owner, name in places]

    def answering(original: Any) -> Any:
        def answer(owner: Any, *arguments: Any) -> Any:
            if by.registry.owns(sys._getframe(1).f_code.co_filename):
                return by.spark
            return original.__get__(None, owner)(*arguments)

        return answer

    def of_builder(original: Any) -> Any:
        def answer(self: Any) -> Any:
            if by.registry.owns(sys._getframe(1).f_code.co_filename):
                return by.spark
            return original(self)

        return answer

    for (owner, name), original in zip(places, before, strict=True):
        new = of_builder(original) if owner is builder else classmethod(answering(original))
        setattr(owner, name, new)
    try:
        yield
    finally:
        for (owner, name), original in zip(places, before, strict=True):
            setattr(owner, name, original)
