"""What a graph is: topics, folders of files, and tables with their places in the lake.

How it comes to be is `build`, which names what is wrong with declarations.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_assets.declarations import (
    RESCUED,
    Author,
    ExternalTable,
    FileSource,
    Flow,
    Read,
    Rule,
    Table,
    Topic,
)
from kafka_assets.frontends.notes import Note

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

RESERVED = ("_checkpoints", "_leases", "_operations", "_sinks", "_tables", "_broker", "dlq")
"""Folders of the lake that no table may lie in."""


@dataclass(frozen=True)
class Outside:
    """A table that something else writes, as an upstream.

    Attributes:
        declaration: The declaration.
        path: Where the Delta table lies.
    """

    declaration: ExternalTable
    path: str

    @property
    def name(self) -> str:
        """Its name in this graph."""
        return self.declaration.name


@dataclass(frozen=True)
class Files:
    """A folder of files, as an upstream.

    Attributes:
        declaration: The declaration.
        path: The folder or pattern.
        schema: The columns of its rows.
    """

    declaration: FileSource
    path: str
    schema: StructType

    @property
    def name(self) -> str:
        """Its name in this graph."""
        return self.declaration.name

    @property
    def rescues(self) -> bool:
        """Whether its last column is the text of rows that do not fit the others."""
        return self.schema.names[-1] == RESCUED


@dataclass(frozen=True)
class Input:
    """A topic, table or folder that a table reads, directly or through temporary views.

    Attributes:
        source: The topic, table or folder.
        read: How it is read.
    """

    source: Source
    read: Read


@dataclass(frozen=True, eq=False)
class Node:
    """A table of the graph: its declaration, its upstreams, and its places in the lake.

    Two nodes are the same when they are one object.

    Attributes:
        table: The declaration.
        upstreams: Parameter name -> source or view, in the function's order.
        path: Where the Delta table lies.
        dead_letters_path: Where its dead letters lie (whether or not it can have any).
        checkpoint: Where its stream's checkpoint lies.
        payload: The declared schema of the payload, when the table decodes.
        flows: Of a table that flows feed: for each the table as if it had this flow alone, with
            the flow's function, upstreams and checkpoint.
        flow: Of such a part: the flow.
        lookups: Tables that its expectations compare it with: name -> path.
    """

    table: Table
    upstreams: Mapping[str, Source]
    path: str
    dead_letters_path: str
    checkpoint: str
    payload: StructType | None = field(default=None, compare=False)
    flows: tuple[Node, ...] = ()
    flow: Flow | None = None
    lookups: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    @property
    def is_view(self) -> bool:
        """Whether it is a temporary view, which has no files."""
        return self.table.kind == "temporary_view"

    @property
    def parts(self) -> tuple[Node, ...]:
        """Its flows; the table itself when it has a function of its own."""
        return self.flows or (self,)

    @property
    def may_have_dead_letters(self) -> bool:
        """Whether rows of this table can die."""
        return any(part.table.may_have_dead_letters for part in self.parts)

    @property
    def decodes(self) -> bool:
        """Whether rows come into it as payloads."""
        return any(part.payload is not None for part in self.parts)

    @property
    def goes_to_kafka(self) -> bool:
        """Whether its rows go to a topic: what lies in the lake is the account of its batches."""
        return self.table.sink is not None and self.table.sink.format == "kafka"

    @property
    def is_merged(self) -> bool:
        """Whether its rows are updated and removed one by one (MERGE), with a change feed."""
        return self.table.kind == "auto_cdc" or bool(self.table.keys)

    @property
    def code_version(self) -> str:
        """Changes when the function's text, its rules, its schema or its options change."""
        table = self.table
        parts = [
            _source_of(table.function),
            *[
                f"{e.name}:{e.action}:{_source_of(e.rule)}" + (f":{e.above}" if e.above else "")
                for e in table.expectations
            ],
            self.payload.json() if self.payload is not None else "",
            repr((table.kind, table.json, table.event_time, table.window, table.window_column)),
            *[
                repr(more)
                for more in (
                    table.keys,
                    table.changes,
                    dict(table.reads),
                    dict(table.options.generated),
                )
                if more
            ],
            *[flow.code_version for flow in self.flows],
            *[u.code_version for u in self.upstreams.values() if isinstance(u, Node) and u.is_view],
            *[
                f"{u.declaration.format} {u.schema.json()} {sorted(u.declaration.options.items())}"
                for u in self.upstreams.values()
                if isinstance(u, Files)
            ],
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]

    def read_of(self, name: str) -> Read:
        """How an upstream is read."""
        if self.table.kind == "materialized_view":
            return "static"
        return self.table.reads.get(name, "stream")

    def frames(self, read: Callable[[Source, Read], Any], static: bool = False) -> dict[str, Any]:
        """What the function is given: parameter name -> frame.

        Args:
            read: Gives the frame of a source; views are computed from such.
            static: Read all as it is, whatever is declared.
        """
        found: dict[str, Any] = {}
        for name, upstream in self.upstreams.items():
            how: Read = "static" if static else self.read_of(name)
            if isinstance(upstream, Node) and upstream.is_view:
                found[name] = upstream.table(*upstream.frames(read, how == "static").values())
            else:
                found[name] = read(upstream, how)
        return found

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What it reads, each source once, flows and views looked through."""
        found = {(i.source.name, i.read): i for i in self._inputs(static=False)}
        return tuple(found.values())

    def _inputs(self, *, static: bool) -> Iterator[Input]:
        for flow in self.flows:
            yield from flow._inputs(static=static)
        for name, upstream in self.upstreams.items():
            how: Read = "static" if static else self.read_of(name)
            if isinstance(upstream, Node) and upstream.is_view:
                yield from upstream._inputs(static=how == "static")
            else:
                yield Input(upstream, how)

    @property
    def streams(self) -> tuple[Source, ...]:
        """The topics, tables and folders whose new rows it reads."""
        return tuple(one.source for one in self.inputs if one.read != "static")

    @property
    def only_stream(self) -> Source | None:
        """The stream of a table that reads one; None when it reads none or several."""
        return self.streams[0] if len(self.streams) == 1 else None

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics that it reads."""
        return tuple(i.source for i in self.inputs if isinstance(i.source, Topic))


Source = Topic | Outside | Files | Node
"""What a table reads."""


@dataclass(frozen=True)
class Graph:
    """All topics and tables of a code location, tables in an order in which upstreams come first.

    Attributes:
        topics: Name -> topic, those that a table reads and those that none does.
        tables: Name -> table.
        views: Name -> temporary view.
        outside: Name -> table that something else writes.
        files: Name -> folder of files.
        notes: What SQL files say and the graph takes differently.
    """

    topics: Mapping[str, Topic]
    tables: Mapping[str, Node]
    views: Mapping[str, Node] = field(default_factory=dict)
    outside: Mapping[str, Outside] = field(default_factory=dict)
    files: Mapping[str, Files] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    def downstream_of(self, name: str) -> tuple[Node, ...]:
        """All tables that depend on a topic or table, directly or through others, in order."""
        reached = {name}
        found = []
        for node in self.tables.values():
            if reached & {one.source.name for one in node.inputs}:
                reached.add(node.name)
                found.append(node)
        return tuple(found)


def _source_of(rule: Rule | Author) -> str:
    """What a function does, as text: comments, docstring and decorators do not count."""
    if isinstance(rule, str):
        return rule
    code = getattr(rule, "code", None)
    if isinstance(code, str):
        # A SELECT, which knows what its text is without comments.
        return repr((code, getattr(rule, "columns", ())))
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
