"""The command that shows what a program of another product becomes here.

A part of the command line: options and output only. The loading is in `frontends`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from kafka_assets.errors import SettingsError

out = Console()

Pairs = list[str] | None


def import_program(
    path: Annotated[
        Path, typer.Argument(help="A DLT or Spark pipelines program, a folder of them, or SQL.")
    ],
    layer: Annotated[
        Pairs, typer.Option(help="Another layer than the derived one.", metavar="TABLE=LAYER")
    ] = None,
    conf: Annotated[
        Pairs,
        typer.Option(
            help="What spark.conf.get, widgets and ${name} in SQL answer.", metavar="NAME=VALUE"
        ),
    ] = None,
    table: Annotated[
        Pairs,
        typer.Option(help="A table that others declare: its name here.", metavar="TABLE=NAME"),
    ] = None,
    schema: Annotated[
        Pairs,
        typer.Option(
            help="Columns of files that are read without a schema, as DDL or a schema file.",
            metavar="PATH=COLUMNS",
        ),
    ] = None,
    name: Annotated[
        Pairs,
        typer.Option(
            help="What a table is called whose last name another has too.",
            metavar="SCHEMA.TABLE=NAME",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show the tables and edges that a program makes, unchanged; exit 1 if a part cannot be mapped.

    Starts no Spark. In a pipeline module, ka.program(PATH) takes the program in.
    """
    import kafka_assets as ka
    from kafka_assets.graph import build_graph

    loaded = ka.program(
        path.resolve(),
        layers=_pairs("--layer", layer),
        conf=_pairs("--conf", conf),
        tables=_pairs("--table", table),
        schemas=_pairs("--schema", schema),
        names=_pairs("--name", name),
    )
    build_graph([loaded.as_module()], ka.Settings())
    found = loaded.as_dict()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    out.print(_tables(found))
    out.print(_edges(found))
    for note in found["notes"]:
        out.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for one in given or ():
        # What is read may have the sign in its name; what it is here, or its columns, has not.
        last = option in ("--table", "--schema")
        name, sign, value = one.rpartition("=") if last else one.partition("=")
        if not sign or not name:
            raise SettingsError(f"{option} {one!r} is no pair", fix=f"write {option} NAME=VALUE")
        pairs[name] = value
    return pairs


def _tables(found: dict[str, Any]) -> RichTable:
    shown = RichTable("table", "kind", "layer", "rules", title="Tables")
    for table in found["tables"]:
        rules = "\n".join(f"{r['name']} ({r['action']}): {r['rule']}" for r in table["rules"])
        kind = table["kind"].replace("_", " ")
        shown.add_row(table["name"], kind, table["layer"], escape(rules))
    for topic in found["topics"]:
        shown.add_row(topic["name"], "topic", "kafka", topic["topic"])
    for files in found["files"]:
        shown.add_row(files["name"], "files", files["format"], escape(files["path"]))
    return shown


def _edges(found: dict[str, Any]) -> RichTable:
    shown = RichTable("from", "to", title="Edges")
    for upstream, table in found["edges"]:
        shown.add_row(upstream, table)
    return shown
