"""Loading a program: execute it, trace its functions, map what it declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from kafka_assets.declarations import Declaration, FileSource, Flow, Place, Table, Topic
from kafka_assets.declarations.places import declared
from kafka_assets.errors import DeclarationError, Problem, ProgramRefused
from kafka_assets.frontends.file_options import same_path
from kafka_assets.frontends.names import Parts
from kafka_assets.frontends.programs.feeding import changes_of, flow_of, sink_of
from kafka_assets.frontends.programs.inputs import Reads
from kafka_assets.frontends.programs.loaded import LoadedProgram
from kafka_assets.frontends.programs.mapping import Tables
from kafka_assets.frontends.programs.program import Program
from kafka_assets.frontends.programs.registry import Registry, parts, short, snake
from kafka_assets.frontends.programs.source import specifications_of, sql_of
from kafka_assets.frontends.sql import Loaded, load_files


class _Given(TypedDict):
    """What the author says about the SQL of a program."""

    called: Mapping[str, str] | None
    conf: Mapping[str, str]
    schemas: Mapping[str, str]


def load_program(
    path: str | Path,
    *,
    layers: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    tables: Mapping[str, str] | None = None,
    topics: Sequence[Topic] = (),
    schemas: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> LoadedProgram:
    """Load a program of DLT or Spark Declarative Pipelines as it is, without starting Spark.

    While it loads, the environment variable `SPARK_CONNECT_MODE_ENABLED` is set, with which
    Spark's functions need no session: no other thread should use Spark meanwhile.

    Args:
        path: A `.py` file, a notebook exported as source, an `.ipynb` notebook, or a folder.
        layers: Table name -> layer, where the derived one is not meant.
        conf: What `spark.conf.get` and `dbutils.widgets.get` answer, and `${name}` in SQL.
        tables: Tables or paths that it reads and others declare -> name in the graph.
        topics: Topics that are declared elsewhere and that it reads too.
        schemas: Paths of files that it reads without a schema -> their columns as DDL, or the name
            of a schema file.
        names: What tables that share the last part of their names are called, `schema.table` ->
            name.

    Returns:
        Its declarations, and notes on what has no counterpart.

    Raises:
        ProgramRefused: Something in it cannot be mapped; every such thing with its line.
    """
    file = Path(path).resolve()
    borrowed = dict(tables or {})
    columns = {same_path(folder): one for folder, one in (schemas or {}).items()}
    values = {k: str(v) for k, v in (conf or {}).items()}
    given: _Given = {"called": names, "conf": values, "schemas": columns}
    sql, refused = _sql(file, topics, given)
    written = frozenset(tuple(map(snake, one)) for one in sql.names)
    program = Program(file, values, borrowed, columns, written, names or {})
    by = program.execute()
    registry = by.registry
    beside = frozenset(registry.names_beside)
    registry.problems.extend(refused)
    reads = Reads(by, topics)
    if registry.problems and not (registry.datasets or registry.sinks):
        raise ProgramRefused(short(str(file)), tuple(registry.problems))
    _refuse_layers_of_sql(registry, layers or {}, beside)
    _refuse_unknown_names(registry, names or {})
    own = {name: layer for name, layer in (layers or {}).items() if name not in beside}
    made = Tables(program, registry, reads, own).all()
    flows = [flow_of(program, registry, reads, flow) for flow in registry.flows]
    changes = [changes_of(registry, reads, one) for one in registry.changes]
    sinks = [sink_of(registry, one, registry.brokers) for one in registry.sinks]
    _look_at_guesses(registry, reads, [one for one in (*made, *flows, *changes) if one is not None])
    registry.refuse_lost_rules()
    for problem in registry.refused_at_top:
        if problem not in registry.problems:
            file_name, _, line = problem.where.rpartition(":")
            registry.note(f"{problem.what}; no table uses it", Place(file_name, int(line)))
    # Now that Python's topics have names, SQL that reads one of them uses its name.
    others = [parts(one.written) for one in registry.datasets]
    sql, refused = _sql(file, [*topics, *reads.topics.values()], given, others)
    registry.problems.extend(one for one in refused if one not in registry.problems)
    _refuse_beside_sql(registry, sql, beside)
    if not refused:
        _refuse_unused(registry, sql)
    _note_specifications(registry, file)
    if not registry.problems and not (made or sinks or sql.declarations):
        registry.problem("declares no table", "is it a program of DLT or Spark pipelines?")
    if registry.problems:
        raise ProgramRefused(short(str(file)), tuple(registry.problems))
    read: list[Topic | FileSource] = [*reads.topics.values(), *reads.files.values()]
    every: list[Declaration | None] = [*map(declared, read), *made, *flows, *changes, *sinks]
    every += map(declared, sql.declarations)
    used = {up for one in (*made, *flows, *changes) if one is not None for up in one.upstreams}
    return LoadedProgram(
        path=short(str(file)),
        declarations=tuple(one for one in every if one is not None),
        notes=tuple(
            sorted((*registry.notes, *sql.notes), key=lambda n: (n.place.file, n.place.line))
        ),
        borrowed=tuple(name for name in dict.fromkeys(borrowed.values()) if name in used),
    )


def _sql(
    path: Path,
    topics: Sequence[Topic],
    given: _Given,
    others: Sequence[Parts] = (),
) -> tuple[Loaded, list[Problem]]:
    """What SQL in a program's folder declares, and why it cannot be read."""
    try:
        return load_files(sql_of(path), topics, others=others, **given), []
    except DeclarationError as error:
        what = error.what.replace(f" ({error.where})", "")
        fix = f"{error.fix or 'correct it'}; what declares nothing does not belong in the folder"
        return Loaded((), ()), [Problem(error.where, what, fix)]


def _refuse_layers_of_sql(
    registry: Registry, layers: Mapping[str, str], beside: frozenset[str]
) -> None:
    for name in sorted(layers.keys() & beside):
        registry.problem(
            f"layers={{{name!r}: {layers[name]!r}}}: SQL declares the table",
            "say it in the .sql file, in TBLPROPERTIES",
        )


def _refuse_unknown_names(registry: Registry, names: Mapping[str, str]) -> None:
    known = {".".join(parts(one.written)) for one in registry.datasets}
    known |= {".".join(one) for one in registry.beside}
    for name in sorted(names.keys() - known):
        registry.problem(
            f"names={{{name!r}: {names[name]!r}}}: the program has no such table",
            f"use one of {', '.join(sorted(known)) or '(none)'}",
            Place(short(str(registry.folder)), 1),
        )


def _refuse_beside_sql(registry: Registry, sql: Loaded, beside: frozenset[str]) -> None:
    """Refuse tables that SQL declares too, and flows into typed ones: only those in SQL cast."""
    for one in registry.datasets:
        if one.name in beside:
            registry.problem(
                f"{one.written!r} is declared a second time; the first is in SQL",
                "give one of them another name",
                one.place,
            )
    for flow in registry.flows:
        if flow.target in sql.typed:
            registry.problem(
                f"the flow {flow.name!r} feeds {flow.target!r}, whose columns have types in SQL, "
                "and does not cast to them",
                "list the table's columns without types, or write the flow in SQL",
                flow.place,
            )


def _note_specifications(registry: Registry, path: Path) -> None:
    for file in specifications_of(path):
        registry.note(
            f"{file.name} is not read: give its configuration by conf=; the program is all files "
            "of the folder",
            Place(short(str(file)), 1),
        )


def _refuse_unused(registry: Registry, sql: Loaded) -> None:
    """Columns that the author gives are those of no reader that has its own."""
    without = registry.without_schema | sql.without_schema
    for path, columns in registry.schemas.items():
        if path not in without:
            registry.problem(
                f"schemas={{{path!r}: {columns!r}}}: the program reads no files there without a "
                "schema of its own",
                "remove it, or write the path as the program does; it reads "
                f"{', '.join(sorted(without)) or '(none)'} so",
                Place(short(str(registry.folder)), 1),
            )


def _look_at_guesses(registry: Registry, reads: Reads, made: Sequence[Table | Flow]) -> None:
    """Say which tables of a catalog were taken for the program's own; refuse where none can be."""
    below: dict[str, set[str]] = {}
    for one in made:
        reader = one.target if isinstance(one, Flow) else one.name
        for upstream in one.upstreams:
            below.setdefault(upstream, set()).add(reader)
    for guess in reads.guessed:
        reached, new = {guess.reader}, [guess.reader]
        while new:
            more = below.get(new.pop(), set()) - reached
            reached |= more
            new.extend(more)
        mapping = f'tables={{"{guess.written}": "{snake(guess.written)}_outside"}}'
        if guess.name in reached:
            registry.problem(
                f"reads {guess.written!r}, which cannot be the program's own {guess.name!r}: that "
                f"is made from {guess.reader!r}",
                f"declare it in the pipeline with ka.external_table, and name it: {mapping}",
                guess.place,
            )
        else:
            registry.note(
                f"{guess.written!r} is taken for the program's own {guess.name!r}; if it is "
                f"another table, declare that and name it: {mapping}",
                guess.place,
            )
