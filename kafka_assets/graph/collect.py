"""The declarations of modules, each name once."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from kafka_assets.declarations import (
    DECLARED,
    Declaration,
    ExternalTable,
    FileSource,
    Flow,
    Sink,
    Table,
    Topic,
    pending_expectations,
)
from kafka_assets.errors import DeclarationError
from kafka_assets.frontends.file_options import limited, without_limits
from kafka_assets.frontends.notes import Note
from kafka_assets.frontends.sql import load_files


@dataclass(frozen=True)
class Found:
    """What modules declare, by name; flows in the order in which they are declared."""

    topics: dict[str, Topic] = field(default_factory=dict)
    outside: dict[str, ExternalTable] = field(default_factory=dict)
    files: dict[str, FileSource] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """All names that a function can have as a parameter."""
        return (*self.topics, *self.outside, *self.files, *self.tables)


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


def sql_files(modules: Iterable[ModuleType]) -> list[Path]:
    """The SQL files in the folders of packages and below them, in a stable order."""
    folders = [Path(path) for module in modules for path in getattr(module, "__path__", ())]
    found = {
        file.resolve()
        for folder in folders
        for file in folder.rglob("*.sql")
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    }
    return sorted(found)


def collect(modules: Iterable[ModuleType], files: Iterable[Path] = ()) -> Found:
    """Collect declarations: those in variables, those that were made on import, those in SQL files.

    Raises:
        DeclarationError: Two have one name, or an expectation belongs to no table.
    """
    found = Found()
    by_name: dict[str, Declaration] = {}
    for module in modules:
        for value in (*vars(module).values(), *getattr(module, DECLARED, ())):
            if isinstance(value, Flow):
                if not any(value is flow for flow in found.flows):
                    found.flows.append(value)
            elif isinstance(value, Topic | ExternalTable | FileSource | Table | Sink):
                _keep(found, value, by_name)
            else:
                _refuse_loose_expectations(value)
    # `ka.program` may have taken in a file of the package already.
    taken_in = {one.place for one in (*by_name.values(), *found.flows) if one.place.column}
    sql = load_files(files, found.topics.values())
    found.notes.extend(sql.notes)
    _refuse_flows_that_do_not_cast(found.flows, sql.typed)
    for declaration in sql.declarations:
        if declaration.place in taken_in:
            continue
        if isinstance(declaration, Flow):
            found.flows.append(declaration)
        else:
            _keep(found, declaration, by_name)
    _refuse_topic_twice(found.topics.values())
    return found


def _keep(
    found: Found,
    value: Topic | ExternalTable | FileSource | Table | Sink,
    by_name: dict[str, Declaration],
) -> None:
    other = by_name.setdefault(value.name, value)
    if isinstance(value, FileSource) and isinstance(other, FileSource):
        value, other = _as_limited(value, other), _as_limited(other, value)
    source = Topic | FileSource
    if isinstance(value, source) and isinstance(other, source) and _is_again(other, value):
        # The one that says more is kept.
        other = value = value if _says_nothing(other) else other
        by_name[value.name] = value
    if other is not value and other != value:
        raise DeclarationError(
            f"{kind_of(value)} {value.name!r}",
            str(value.place),
            f"{kind_of(other)} {other.name!r} at {other.place} has the same name",
            fix="rename one of them (a topic with name=); topics and tables share names",
        )
    if isinstance(value, Topic):
        found.topics[value.name] = value
    elif isinstance(value, ExternalTable):
        found.outside[value.name] = value
    elif isinstance(value, FileSource):
        found.files[value.name] = value
    elif isinstance(value, Sink):
        found.sinks[value.name] = value
    else:
        found.tables[value.name] = value


def _is_again(one: Topic | FileSource, other: Topic | FileSource) -> bool:
    """Whether two declarations are of one topic or folder, as two programs that read it make."""
    if _says_nothing(one) or _says_nothing(other):
        other = replace(other, description=one.description, owners=one.owners)
    return replace(one, place=other.place) == other


def _as_limited(one: FileSource, other: FileSource) -> FileSource:
    """A folder with the limits of another declaration of it, where it has none itself."""
    return limited(one, without_limits(other.options)[1]) or one


def _says_nothing(one: Topic | FileSource) -> bool:
    """Whether a source has neither a description nor owners."""
    return not (one.description or one.owners)


def kind_of(value: Declaration) -> str:
    """What a declaration is, in messages."""
    if isinstance(value, Table):
        return "view" if value.kind == "temporary_view" else "table"
    kinds = {
        Topic: "topic",
        ExternalTable: "external table",
        FileSource: "file source",
        Sink: "sink",
        Flow: "flow",
    }
    return kinds[type(value)]


def _refuse_loose_expectations(value: object) -> None:
    for expectation in pending_expectations(value):
        if callable(value) and not isinstance(value, type):
            raise DeclarationError(
                f"expectation {expectation.name!r}",
                str(expectation.place),
                f"stands on the function {getattr(value, '__name__', value)!r}, which is no table",
                fix="put a table decorator such as @ka.streaming_table(...) above it",
            )


def _refuse_flows_that_do_not_cast(flows: Iterable[Flow], typed: Collection[str]) -> None:
    for flow in flows:
        if flow.target in typed:
            raise DeclarationError(
                f"flow {flow.name!r}",
                str(flow.place),
                f"its target {flow.target!r} lists columns with types in SQL, which only flows in "
                "SQL are cast to",
                fix="write the flow in SQL, or list the target's columns without types",
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
