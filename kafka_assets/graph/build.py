"""Declarations -> the graph: names become upstreams, and every table gets its place in the lake."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from kafka_assets.declarations import RESCUED, FileSource, Flow, Sink, Table
from kafka_assets.declarations.computed import computing
from kafka_assets.declarations.files import FIXED, RESCUES
from kafka_assets.declarations.model import Place
from kafka_assets.errors import DeclarationError
from kafka_assets.graph import rules
from kafka_assets.graph.collect import Found, collect, kind_of, pipeline_modules, sql_files
from kafka_assets.graph.model import RESERVED, Files, Graph, Node, Outside, Source
from kafka_assets.schemas import FILES, find_schema, from_ddl, load_schema
from kafka_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["build_graph", "pipeline_modules"]


def build_graph(modules: ModuleType | Iterable[ModuleType], settings: Settings) -> Graph:
    """Collect the declarations of modules and check that they fit together.

    Args:
        modules: Pipeline modules; a package stands for all modules in it, and for the SQL files
            beside them.
        settings: For the lake's root and the schemas folder.

    Returns:
        The graph.

    Raises:
        DeclarationError: Unknown upstream or target, cycle, duplicate name or path, a missing or
            wrong schema file, an expectation that belongs to no table, or an upstream that a table
            of this kind cannot read; names the declaration, its file and line, and the fix.
    """
    every = pipeline_modules(modules)
    found = collect(every, sql_files(every))
    flows = _flows_of(found)
    order = _order(found, flows)
    known: dict[str, Source] = dict(found.topics)
    for name, table in found.outside.items():
        known[name] = Outside(table, _anywhere(table.path, settings))
    for name, files in found.files.items():
        known[name] = Files(files, _anywhere(files.path, settings), _columns(files, settings))
    nodes: dict[str, Node] = {}
    for name in order:
        node = _node(found.tables[name], flows[name], {**known, **nodes}, settings)
        nodes[name] = replace(node, lookups=_lookups(node.table, found, known, settings))
        rules.refuse(nodes[name])
    tables = {name: node for name, node in nodes.items() if not node.is_view}
    _refuse_shared_paths(tables.values())
    return Graph(
        topics=found.topics,
        tables=tables,
        views={name: node for name, node in nodes.items() if node.is_view},
        outside={name: one for name, one in known.items() if isinstance(one, Outside)},
        files={name: one for name, one in known.items() if isinstance(one, Files)},
        notes=tuple(n for n in found.notes if n.servers != settings.kafka.bootstrap_servers),
    )


def _flows_of(found: Found) -> dict[str, list[Flow]]:
    """Table name -> its flows; sinks become tables that have no place in the lake."""
    for sink in found.sinks.values():
        found.tables[sink.name] = _table_of_sink(sink)
    flows: dict[str, list[Flow]] = {name: [] for name in found.tables}
    for flow in found.flows:
        table = found.tables.get(flow.target)
        if table is None:
            raise _unknown(
                f"flow {flow.name!r}", str(flow.place), f"target {flow.target!r}", found.tables
            )
        rules.refuse_flow(flow, table, flows[flow.target])
        flows[flow.target].append(flow)
    for table in found.tables.values():
        if table.waits_for_flows and not flows[table.name]:
            raise DeclarationError(
                f"{kind_of(table)} {table.name!r}",
                str(table.place),
                "is fed by no flow",
                fix=f'add @ka.append_flow(target="{table.name}") or create_auto_cdc_flow',
            )
    return flows


def _table_of_sink(sink: Sink) -> Table:
    from kafka_assets.declarations.model import fed_by_flows

    return Table(
        name=sink.name,
        function=fed_by_flows,
        kind="sink",
        layer="sink",
        upstreams=(),
        place=sink.place,
        comment=sink.description,
        sink=sink,
    )


def _order(found: Found, flows: Mapping[str, list[Flow]]) -> tuple[str, ...]:
    reads: dict[str, list[str]] = {}
    for table in found.tables.values():
        reads[table.name] = []
        readers: list[Table | Flow] = [table, *flows[table.name]]
        for reader in readers:
            for upstream in reader.upstreams:
                if upstream not in found.names or upstream in found.sinks:
                    raise _unknown(
                        f"{kind_of(reader)} {reader.name!r}",
                        str(reader.place),
                        f"parameter {upstream!r}",
                        [name for name in found.names if name not in found.sinks],
                    )
                if upstream in found.tables:
                    reads[table.name].append(upstream)
    try:
        return tuple(TopologicalSorter(reads).static_order())
    except CycleError as error:
        cycle = error.args[1]
        table = found.tables[cycle[0]]
        raise DeclarationError(
            f"table {table.name!r}",
            str(table.place),
            f"is its own upstream: {' -> '.join(cycle)}",
            fix="remove one of these parameters",
        ) from None


def _unknown(subject: str, place: str, what: str, known: Iterable[str]) -> DeclarationError:
    names = sorted(known)
    close = difflib.get_close_matches(what.split("'")[1], names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "declare it, or write another name."
    return DeclarationError(
        subject,
        place,
        f"its {what} is no topic and no table" if what[0] == "p" else f"its {what} is no table",
        fix=f"{hint} Known names: {', '.join(names) or '(none)'}",
    )


def _node(
    table: Table,
    flows: list[Flow],
    known: Mapping[str, Source],
    settings: Settings,
) -> Node:
    checkpoint = f"{settings.lake}/_checkpoints/{table.layer}/{table.name}"
    changes = next((flow.changes for flow in flows if flow.changes is not None), None)
    if changes is not None:
        table = replace(table, kind="auto_cdc", changes=changes)
    node = Node(
        table=table,
        upstreams={name: known[name] for name in table.upstreams},
        path=_path(table, settings),
        dead_letters_path=f"{settings.lake}/dlq/{table.name}",
        checkpoint=checkpoint,
        payload=_payload(table, settings),
    )
    parts = tuple(
        replace(
            node,
            table=_part(table, flow),
            upstreams={name: known[name] for name in flow.upstreams},
            checkpoint=f"{checkpoint}/{flow.name}",
            payload=_payload(_part(table, flow), settings),
            flow=flow,
        )
        for flow in flows
    )
    return replace(node, flows=parts)


def _lookups(
    table: Table, found: Found, known: Mapping[str, Source], settings: Settings
) -> dict[str, str]:
    """Where the tables lie that a table's expectations compare it with."""
    paths = {}
    for rule in table.table_expectations:
        if rule.other is None:
            continue
        name = rule.other[0]
        outside, other = known.get(name), found.tables.get(name)
        if isinstance(outside, Outside):
            paths[name] = outside.path
        elif other is not None and other.kind not in ("temporary_view", "sink"):
            paths[name] = _path(other, settings)
        else:
            tables = [t.name for t in found.tables.values() if t.kind != "temporary_view"]
            raise _unknown(
                f"expectation {rule.name!r}",
                str(rule.place),
                f"table {name!r}",
                [*tables, *found.outside],
            )
    return paths


def _part(table: Table, flow: Flow) -> Table:
    """A table as if it had one flow alone."""
    return replace(
        table,
        function=computing(flow.function, table.options.generated),
        upstreams=flow.upstreams,
        schema=flow.schema,
        json=flow.json,
        reads=flow.reads,
        changes=flow.changes,
    )


def _columns(files: FileSource, settings: Settings) -> StructType:
    """The columns of a file source's rows, with the one for text that does not fit them."""
    from pyspark.sql.types import StringType, StructType

    text = FIXED.get(files.format) or str(files.schema)
    fix = 'write columns such as "id BIGINT, at TIMESTAMP", or the name of a schema file'
    with _named(f"file source {files.name!r}", files.place, text, fix):
        if text.endswith(FILES):
            schema = load_schema(find_schema(text, settings.schema_folders))
        else:
            schema = from_ddl(Path("schema="), text)
    if files.format not in RESCUES:
        return schema
    kept = [column for column in schema.fields if column.name != RESCUED]
    return StructType(kept).add(RESCUED, StringType())


def _anywhere(path: str, settings: Settings) -> str:
    """A place that need not be in the lake; one without a beginning is."""
    return path if "://" in path or path.startswith("/") else f"{settings.lake}/{path}"


def _payload(table: Table, settings: Settings) -> StructType | None:
    if table.schema is None:
        return None
    if table.kind != "streaming_table" and table.kind != "sink":
        raise DeclarationError(
            f"table {table.name!r}",
            str(table.place),
            f"schema= on a {table.kind.replace('_', ' ')}",
            fix="decode in a streaming_table",
        )
    fix = "correct the file, or the name in schema="
    with _named(f"table {table.name!r}", table.place, table.schema, fix):
        return load_schema(find_schema(table.schema, settings.schema_folders))


@contextmanager
def _named(subject: str, place: Place, schema: str, fix: str) -> Iterator[None]:
    """Say whose schema it is that cannot be read."""
    try:
        yield
    except ValueError as error:
        what = f"schema={schema!r}: {error}"
        raise DeclarationError(subject, str(place), what, fix=fix) from None


def _path(table: Table, settings: Settings) -> str:
    if table.sink is not None:
        return table.sink.options.get("path", f"{settings.lake}/_sinks/{table.name}")
    return f"{settings.lake}/{_relative_path(table)}"


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
