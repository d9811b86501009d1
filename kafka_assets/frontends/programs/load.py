"""Loading a program: execute it, trace its functions, map what it declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka_assets.declarations import Declaration, FileSource, Flow, Place, Table, Topic
from kafka_assets.declarations.places import declared
from kafka_assets.errors import ProgramRefused
from kafka_assets.frontends.programs.feeding import changes_of, flow_of, sink_of
from kafka_assets.frontends.programs.files import same_path
from kafka_assets.frontends.programs.inputs import Reads
from kafka_assets.frontends.programs.loaded import LoadedProgram
from kafka_assets.frontends.programs.mapping import Tables
from kafka_assets.frontends.programs.program import Program
from kafka_assets.frontends.programs.registry import Registry, short, snake


def load_program(
    path: str | Path,
    *,
    layers: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    tables: Mapping[str, str] | None = None,
    topics: Sequence[Topic] = (),
    schemas: Mapping[str, str] | None = None,
) -> LoadedProgram:
    """Load a program of DLT or Spark Declarative Pipelines as it is, without starting Spark.

    While it loads, the environment variable `SPARK_CONNECT_MODE_ENABLED` is set, with which
    Spark's functions need no session: no other thread should use Spark meanwhile.

    Args:
        path: A `.py` file, a notebook exported as source, an `.ipynb` notebook, or a folder.
        layers: Table name -> layer, where the derived one is not meant.
        conf: What `spark.conf.get` and `dbutils.widgets.get` answer.
        tables: Tables or paths that it reads and others declare -> name in the graph.
        topics: Topics that are declared elsewhere and that it reads too.
        schemas: Paths of files that it reads without a schema -> their columns as DDL, or the name
            of a schema file.

    Returns:
        Its declarations, and notes on what has no counterpart.

    Raises:
        ProgramRefused: Something in it cannot be mapped; every such thing with its line.
    """
    file = Path(path).resolve()
    borrowed = dict(tables or {})
    columns = {same_path(folder): one for folder, one in (schemas or {}).items()}
    program = Program(file, {k: str(v) for k, v in (conf or {}).items()}, borrowed, columns)
    by = program.execute()
    registry = by.registry
    reads = Reads(by, topics)
    if registry.problems and not (registry.datasets or registry.sinks):
        raise ProgramRefused(short(str(file)), tuple(registry.problems))
    made = Tables(program, registry, reads, dict(layers or {})).all()
    flows = [flow_of(program, registry, reads, flow) for flow in registry.flows]
    changes = [changes_of(registry, reads, one) for one in registry.changes]
    sinks = [sink_of(registry, one, registry.brokers) for one in registry.sinks]
    _look_at_guesses(registry, reads, [one for one in (*made, *flows, *changes) if one is not None])
    _refuse_unused(registry)
    for problem in registry.refused_at_top:
        if problem not in registry.problems:
            file_name, _, line = problem.where.rpartition(":")
            registry.note(f"{problem.what}; no table uses it", Place(file_name, int(line)))
    if not registry.problems and not (made or sinks):
        registry.problem("declares no table", "is it a program of DLT or Spark pipelines?")
    if registry.problems:
        raise ProgramRefused(short(str(file)), tuple(registry.problems))
    read: list[Topic | FileSource] = [*reads.topics.values(), *reads.files.values()]
    every: list[Declaration | None] = [*map(declared, read), *made, *flows, *changes, *sinks]
    used = {up for one in (*made, *flows, *changes) if one is not None for up in one.upstreams}
    return LoadedProgram(
        path=short(str(file)),
        declarations=tuple(one for one in every if one is not None),
        notes=tuple(sorted(registry.notes, key=lambda n: (n.place.file, n.place.line))),
        borrowed=tuple(name for name in dict.fromkeys(borrowed.values()) if name in used),
    )


def _refuse_unused(registry: Registry) -> None:
    """Columns that the author gives are those of no reader that has its own."""
    for path, columns in registry.schemas.items():
        if path not in registry.without_schema:
            registry.problem(
                f"schemas={{{path!r}: {columns!r}}}: the program reads no files there without a "
                "schema of its own",
                "remove it, or write the path as the program does; it reads "
                f"{', '.join(sorted(registry.without_schema)) or '(none)'} so",
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
