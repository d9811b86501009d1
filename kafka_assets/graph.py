"""Declarations -> one validated graph of topics and tables.

Everything that can be known without Spark about how declarations fit together is checked here,
and every table gets its place in the lake. Whether a function fits its inputs is `streaming.plan`'s
to find.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import inspect
import pkgutil
import posixpath
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from types import ModuleType
from typing import TYPE_CHECKING

from kafka_assets.declarations import (
    Author,
    Rule,
    Table,
    Topic,
    pending_expectations,
)
from kafka_assets.errors import DeclarationError
from kafka_assets.schemas import find_schema, load_schema
from kafka_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

RESERVED = ("_checkpoints", "_leases", "_operations", "_tables", "_broker", "dlq")
"""Folders of the lake that no table may lie in."""


@dataclass(frozen=True)
class Node:
    """A table of the graph: its declaration, its upstreams, and its places in the lake.

    Attributes:
        table: The declaration.
        upstreams: Parameter name -> topic or table, in the function's order.
        path: Where the Delta table lies.
        dead_letters_path: Where its dead letters lie (whether or not it can have any).
        checkpoint: Where its stream's checkpoint lies.
        payload: The declared schema of the payload, when the table decodes.
    """

    table: Table
    upstreams: Mapping[str, Topic | Node]
    path: str
    dead_letters_path: str
    checkpoint: str
    payload: StructType | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    @property
    def code_version(self) -> str:
        """Changes when the function's text, its rules, its schema or its options change."""
        table = self.table
        parts = [
            _source_of(table.function),
            *[f"{e.name}:{e.action}:{_source_of(e.rule)}" for e in table.expectations],
            self.payload.json() if self.payload is not None else "",
            repr((table.kind, table.json, table.event_time, table.window, table.window_column)),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]

    @property
    def only_upstream(self) -> Topic | Node:
        """The upstream of a table that has one."""
        (upstream,) = self.upstreams.values()
        return upstream

    @property
    def upstream_table(self) -> Node:
        """The upstream of a table that reads one table.

        Raises:
            TypeError: It reads a topic.
        """
        upstream = self.only_upstream
        if isinstance(upstream, Topic):
            raise TypeError(f"table {self.name!r} reads the topic {upstream.name!r}, not a table")
        return upstream


@dataclass(frozen=True)
class Graph:
    """All topics and tables of a code location, tables in an order in which upstreams come first.

    Attributes:
        topics: Name -> topic, those that a table reads and those that none does.
        tables: Name -> table.
    """

    topics: Mapping[str, Topic]
    tables: Mapping[str, Node]

    def downstream_of(self, name: str) -> tuple[Node, ...]:
        """All tables that depend on a topic or table, directly or through others, in order."""
        reached = {name}
        found = []
        for node in self.tables.values():
            if reached & set(node.upstreams):
                reached.add(node.name)
                found.append(node)
        return tuple(found)


def _source_of(rule: Rule | Author) -> str:
    """What a function does, as text: comments, docstring and decorators do not count."""
    if isinstance(rule, str):
        return rule
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(rule)))
    except (OSError, TypeError, SyntaxError):
        # A lambda's source is only a part of a statement, and a shell's is not kept at all.
        code = rule.__code__
        constants = [c for c in code.co_consts if not inspect.iscode(c)]
        return repr((code.co_code, constants, code.co_names))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            function.decorator_list = []
            if ast.get_docstring(function) is not None:
                function.body = function.body[1:]
    return ast.dump(tree)


def pipeline_modules(modules: ModuleType | Iterable[ModuleType]) -> list[ModuleType]:
    """The modules given, and for a package all modules in it, imported, in a stable order."""
    given = [modules] if isinstance(modules, ModuleType) else list(modules)
    found = [module for one in given for module in (one, *_inside(one))]
    return list(dict.fromkeys(found))


def _inside(module: ModuleType) -> Iterator[ModuleType]:
    path = getattr(module, "__path__", None)
    if path is not None:
        inside = pkgutil.walk_packages(path, f"{module.__name__}.")
        for name in sorted(info.name for info in inside):
            yield importlib.import_module(name)


def build_graph(modules: ModuleType | Iterable[ModuleType], settings: Settings) -> Graph:
    """Collect the declarations of modules and check that they fit together.

    Args:
        modules: Pipeline modules; a package stands for all modules in it.
        settings: For the lake's root and the schemas folder.

    Returns:
        The graph.

    Raises:
        DeclarationError: Unknown upstream, cycle, duplicate name or path, a missing or wrong
            schema file, an expectation that belongs to no table, or an upstream that a table of
            this kind cannot read; names the declaration, its file and line, and the fix.
    """
    topics, tables = _collect(pipeline_modules(modules))
    order = _order(topics, tables)
    nodes: dict[str, Node] = {}
    for name in order:
        nodes[name] = _place_in_lake(tables[name], topics, nodes, settings)
    _refuse_shared_paths(nodes.values())
    return Graph(topics=topics, tables=nodes)


def _collect(modules: Iterable[ModuleType]) -> tuple[dict[str, Topic], dict[str, Table]]:
    topics: dict[str, Topic] = {}
    tables: dict[str, Table] = {}
    by_name: dict[str, Topic | Table] = {}
    for module in modules:
        for value in vars(module).values():
            if not isinstance(value, Topic | Table):
                _refuse_loose_expectations(value)
                continue
            other = by_name.setdefault(value.name, value)
            if other is not value and other != value:
                raise DeclarationError(
                    f"{_kind(value)} {value.name!r}",
                    str(value.place),
                    f"{_kind(other)} {other.name!r} at {other.place} has the same name",
                    fix="rename one of them (a topic with name=); topics and tables share names",
                )
            if isinstance(value, Topic):
                topics[value.name] = value
            else:
                tables[value.name] = value
    _refuse_topic_twice(topics.values())
    return topics, tables


def _kind(value: Topic | Table) -> str:
    return "topic" if isinstance(value, Topic) else "table"


def _refuse_loose_expectations(value: object) -> None:
    for expectation in pending_expectations(value):
        if callable(value) and not isinstance(value, type):
            raise DeclarationError(
                f"expectation {expectation.name!r}",
                str(expectation.place),
                f"stands on the function {getattr(value, '__name__', value)!r}, which is no table",
                fix="put a table decorator such as @ka.streaming_table(...) above it",
            )


def _refuse_topic_twice(topics: Iterable[Topic]) -> None:
    by_topic: dict[str, Topic] = {}
    for topic in topics:
        other = by_topic.setdefault(topic.topic, topic)
        if other is not topic:
            raise DeclarationError(
                f"topic {topic.name!r}",
                str(topic.place),
                f"the Kafka topic {topic.topic!r} is declared as {other.name!r} at {other.place}",
                fix="declare each Kafka topic once and import it where it is read",
            )


def _order(topics: Mapping[str, Topic], tables: Mapping[str, Table]) -> tuple[str, ...]:
    for table in tables.values():
        for upstream in table.upstreams:
            if upstream not in tables and upstream not in topics:
                raise _unknown_upstream(table, upstream, (*topics, *tables))
    sorter = TopologicalSorter(
        {t.name: [u for u in t.upstreams if u in tables] for t in tables.values()}
    )
    try:
        return tuple(sorter.static_order())
    except CycleError as error:
        cycle = error.args[1]
        table = tables[cycle[0]]
        raise DeclarationError(
            f"table {table.name!r}",
            str(table.place),
            f"is its own upstream: {' -> '.join(cycle)}",
            fix="remove one of these parameters",
        ) from None


def _unknown_upstream(table: Table, upstream: str, known: Iterable[str]) -> DeclarationError:
    close = difflib.get_close_matches(upstream, tuple(known), n=1)
    hint = f"did you mean {close[0]!r}?" if close else "declare it, or rename the parameter."
    return DeclarationError(
        f"table {table.name!r}",
        str(table.place),
        f"its parameter {upstream!r} is no topic and no table",
        fix=f"{hint} Known names: {', '.join(sorted(known)) or '(none)'}",
    )


def _place_in_lake(
    table: Table, topics: Mapping[str, Topic], nodes: Mapping[str, Node], settings: Settings
) -> Node:
    upstreams: dict[str, Topic | Node] = {
        name: topics[name] if name in topics else nodes[name] for name in table.upstreams
    }
    _refuse_upstreams_of_kind(table, upstreams)
    node = Node(
        table=table,
        upstreams=upstreams,
        path=f"{settings.lake}/{_relative_path(table)}",
        dead_letters_path=f"{settings.lake}/dlq/{table.name}",
        checkpoint=f"{settings.lake}/_checkpoints/{table.layer}/{table.name}",
        payload=_payload(table, settings),
    )
    _refuse_decoding_of_decoded(node)
    return node


def _refuse_upstreams_of_kind(table: Table, upstreams: Mapping[str, Topic | Node]) -> None:
    subject, place = f"table {table.name!r}", str(table.place)
    if table.kind != "materialized_view" and len(upstreams) > 1:
        raise DeclarationError(
            subject,
            place,
            f"a {table.kind.replace('_', ' ')} reads one upstream, not {', '.join(upstreams)}",
            fix="read one of them, or declare a materialized_view",
        )
    for upstream in upstreams.values():
        if isinstance(upstream, Topic) and table.kind != "streaming_table":
            raise DeclarationError(
                subject,
                place,
                f"a {table.kind.replace('_', ' ')} cannot read the topic {upstream.name!r}",
                fix="declare a streaming_table (bronze) that keeps the topic, and read that",
            )
        if isinstance(upstream, Node) and table.kind != "materialized_view":
            _refuse_rewritten_upstream(table, upstream)


def _refuse_rewritten_upstream(table: Table, upstream: Node) -> None:
    if upstream.table.kind != "streaming_table":
        raise DeclarationError(
            f"table {table.name!r}",
            str(table.place),
            f"streams from {upstream.name!r}, whose rows are replaced, not only appended "
            f"(a {upstream.table.kind.replace('_', ' ')}, {upstream.table.place})",
            fix="declare a materialized_view, or read the streaming table that it is made from",
        )


def _refuse_decoding_of_decoded(node: Node) -> None:
    if node.payload is None:
        return
    upstream = node.only_upstream
    if isinstance(upstream, Node) and upstream.payload is not None:
        raise DeclarationError(
            f"table {node.name!r}",
            str(node.table.place),
            f"schema={node.table.schema!r} would decode {upstream.name!r}, which is decoded "
            "already",
            fix="remove schema=, or read the bronze table",
        )


def _payload(table: Table, settings: Settings) -> StructType | None:
    if table.schema is None:
        return None
    if table.kind != "streaming_table":
        raise DeclarationError(
            f"table {table.name!r}",
            str(table.place),
            f"schema= on a {table.kind.replace('_', ' ')}",
            fix="decode in a streaming_table",
        )
    try:
        return load_schema(find_schema(table.schema, settings.schema_folders))
    except ValueError as error:
        raise DeclarationError(
            f"table {table.name!r}",
            str(table.place),
            f"schema={table.schema!r}: {error}",
            fix="correct the file, or the name in schema=",
        ) from None


def _relative_path(table: Table) -> str:
    if table.path is None:
        return f"{table.layer}/{table.name}"
    path = posixpath.normpath(table.path)
    parts = path.split("/")
    legal = all(part and part[0] not in "._" and part.isprintable() for part in parts)
    if not legal or "://" in table.path or ":" in path or parts[0] in RESERVED:
        raise DeclarationError(
            f"table {table.name!r}",
            str(table.place),
            f"path={table.path!r} is no place for a table",
            fix=f"use a path inside the lake, relative, not below {', '.join(RESERVED)}",
        )
    return path


def _refuse_shared_paths(nodes: Iterable[Node]) -> None:
    placed: list[Node] = []
    for node in nodes:
        for other in placed:
            mine, theirs = f"{node.path.lower()}/", f"{other.path.lower()}/"
            if mine.startswith(theirs) or theirs.startswith(mine):
                raise DeclarationError(
                    f"table {node.name!r}",
                    str(node.table.place),
                    f"its path {node.path} is in the way of table {other.name!r} "
                    f"({other.table.place}) at {other.path}",
                    fix="give one of them another path=",
                )
        placed.append(node)
