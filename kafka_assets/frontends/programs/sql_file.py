"""A single file of SQL taken in as a program: what its author may say about it from outside.

What the statements mean is `frontends.sql`'s; a folder of Python and SQL is `load`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from kafka_assets.declarations import Declaration, Flow, Table, Topic
from kafka_assets.declarations.places import check_layer, declared
from kafka_assets.errors import DeclarationError
from kafka_assets.frontends.file_options import same_path
from kafka_assets.frontends.programs.loaded import LoadedProgram
from kafka_assets.frontends.sql import load_files


def load_sql_file(
    file: Path,
    *,
    layers: Mapping[str, str] | None = None,
    tables: Mapping[str, str] | None = None,
    topics: Sequence[Topic] = (),
    names: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    schemas: Mapping[str, str] | None = None,
) -> LoadedProgram:
    """Load a file of SQL; the options are those of `load_program`.

    Raises:
        DeclarationError: A statement cannot be mapped, or an option names a table that the file
            does not declare.
    """
    values = {name: str(value) for name, value in (conf or {}).items()}
    columns = {same_path(path): one for path, one in (schemas or {}).items()}
    found = load_files([file], topics, called=names, borrowed=tables, conf=values, schemas=columns)
    known = {one.name for one in found.declarations if isinstance(one, Table)}
    _refuse_unknown(file, "layers=", layers or {}, known)
    _refuse_unknown(file, "names=", names or {}, {".".join(name) for name in found.names})
    _refuse_unknown(file, "schemas=", columns, found.without_schema, "read without a schema")
    made = tuple(declared(_placed(one, layers or {})) for one in found.declarations)
    read = {up for one in made if isinstance(one, Table | Flow) for up in one.upstreams}
    borrowed = tuple(name for name in dict.fromkeys((tables or {}).values()) if name in read)
    return LoadedProgram(str(file), made, found.notes, borrowed)


def _refuse_unknown(
    file: Path, option: str, given: Mapping[str, str], known: Set[str], does: str = "declare"
) -> None:
    if unknown := given.keys() - known:
        raise DeclarationError(
            f"program {file.name!r}",
            str(file),
            f"{option} names {', '.join(sorted(unknown))}, which it does not {does}",
            fix=f"use one of {', '.join(sorted(known)) or '(none)'}",
        )


def _placed(one: Declaration, layers: Mapping[str, str]) -> Declaration:
    if not isinstance(one, Table) or one.name not in layers:
        return one
    check_layer(f"table {one.name!r}", one.place, layers[one.name])
    return replace(one, layer=layers[one.name])
