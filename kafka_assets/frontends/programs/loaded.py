"""What a loaded program is: its declarations, and notes on what has no counterpart.

How it is printed by the command line stands here too, so that it has one form.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kafka_assets.declarations import (
    DECLARED,
    Declaration,
    ExternalTable,
    FileSource,
    Flow,
    Place,
    Sink,
    Table,
    Topic,
)
from kafka_assets.frontends.notes import Note


@dataclass(frozen=True)
class LoadedProgram:
    """A program's declarations.

    Attributes:
        path: The program.
        declarations: Topics, files, tables, views, flows and sinks, as an author would have
            made them.
        notes: What has no counterpart, each with its line.
        borrowed: Names that it reads and does not declare: they are declared elsewhere.
    """

    path: str
    declarations: tuple[Declaration, ...]
    notes: tuple[Note, ...] = ()
    borrowed: tuple[str, ...] = ()

    @property
    def topics(self) -> dict[str, Topic]:
        """The topics that it reads, by name."""
        return {one.name: one for one in self.declarations if isinstance(one, Topic)}

    @property
    def files(self) -> dict[str, FileSource]:
        """The folders of files that it reads, by name."""
        return {one.name: one for one in self.declarations if isinstance(one, FileSource)}

    @property
    def tables(self) -> dict[str, Table]:
        """Its tables and views, by name."""
        return {one.name: one for one in self.declarations if isinstance(one, Table)}

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Its flows, in the order in which they are declared."""
        return tuple(one for one in self.declarations if isinstance(one, Flow))

    @property
    def sinks(self) -> dict[str, Sink]:
        """Its sinks, by name."""
        return {one.name: one for one in self.declarations if isinstance(one, Sink)}

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Pairs of upstream and reader; a flow's reader is its target."""
        pairs = [(up, table.name) for table in self.tables.values() for up in table.upstreams]
        pairs += [(up, flow.target) for flow in self.flows for up in flow.upstreams]
        return tuple(dict.fromkeys(pairs))

    def as_module(self) -> ModuleType:
        """A pipeline module that holds the declarations, and stand-ins for what it borrows."""
        module = ModuleType("kafka_assets_program")
        here = Place(self.path, 1)
        outside = [
            ExternalTable(name, ("silver", name), f"silver/{name}", None, here)
            for name in self.borrowed
        ]
        setattr(module, DECLARED, [*self.declarations, *outside])
        return module

    def as_dict(self) -> dict[str, Any]:
        """The graph for programs: tables, topics, files, edges and notes."""
        changed = {flow.target for flow in self.flows if flow.changes is not None}
        tables = [
            {
                "name": table.name,
                "kind": "auto_cdc" if table.name in changed else table.kind,
                "layer": table.layer,
                "rules": [
                    {"name": rule.name, "action": rule.action, "rule": rule.text}
                    for rule in table.expectations
                ],
            }
            for table in self.tables.values()
        ]
        sinks = [
            {"name": sink.name, "kind": "sink", "layer": "sink", "rules": []}
            for sink in self.sinks.values()
        ]
        return {
            "tables": tables + sinks,
            "topics": [{"name": t.name, "topic": t.topic} for t in self.topics.values()],
            "files": [
                {"name": f.name, "path": f.path, "format": f.format} for f in self.files.values()
            ],
            "edges": [list(edge) for edge in self.edges],
            "notes": [str(note) for note in self.notes],
        }
