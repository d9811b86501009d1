"""Statements -> declarations, made by the same words as in Python, so that all checks apply.

SQL files are taken together: a topic or a folder that one of them reads is known to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_assets.declarations import (
    Declaration,
    Flow,
    Topic,
    create_auto_cdc_flow,
)
from kafka_assets.declarations.model import Place
from kafka_assets.declarations.places import check_name, written_at
from kafka_assets.frontends.names import may_mean, meant, shared, told_apart
from kafka_assets.frontends.notes import Note
from kafka_assets.frontends.sql.outside import Outside, shown
from kafka_assets.frontends.sql.parse import parse
from kafka_assets.frontends.sql.parse_table import AUTO
from kafka_assets.frontends.sql.properties import DATABRICKS
from kafka_assets.frontends.sql.query import Query, read_query
from kafka_assets.frontends.sql.relations import Relation
from kafka_assets.frontends.sql.statements import (
    ChangesStatement,
    Column,
    FlowStatement,
    Name,
    Statement,
    TableKind,
    TableStatement,
)
from kafka_assets.frontends.sql.table import declare_table, refuse_batch_size, refuse_view_options
from kafka_assets.frontends.sql.text import Source
from kafka_assets.frontends.sql.using import NO_CATALOG, Sources, Use, once, use_of
from kafka_assets.frontends.sql.values import filled

__all__ = ["Loaded", "Note", "load_files", "load_sql"]


@dataclass(frozen=True)
class Loaded:
    """What SQL files declare.

    Attributes:
        declarations: Topics that were not known before, tables, views and flows.
        notes: What was taken differently than it is written.
        typed: Tables that flows feed and that list types: each flow has to cast to them.
        names: The names of the tables as they are written.
        without_schema: Paths of files that are read without saying their columns.
    """

    declarations: tuple[Declaration, ...]
    notes: tuple[Note, ...]
    typed: frozenset[str] = frozenset()
    names: frozenset[Name] = frozenset()
    without_schema: frozenset[str] = frozenset()


def load_sql(path: Path) -> tuple[Declaration, ...]:
    """The declarations of one SQL file, as if there were no other.

    Raises:
        DeclarationError: As `load_files`.
    """
    return load_files([path]).declarations


def load_files(
    paths: Iterable[Path],
    topics: Iterable[Topic] = (),
    *,
    called: Mapping[str, str] | None = None,
    others: Iterable[Name] = (),
    borrowed: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    schemas: Mapping[str, str] | None = None,
) -> Loaded:
    """The declarations of SQL files.

    Args:
        paths: The files.
        topics: Topics that are declared already; one of them is used where its Kafka topic is
            read.
        called: What tables that share the last part of their names are called by the author.
        others: Names of tables that are declared beside these files.
        borrowed: Tables that they read and others declare -> name in the graph.
        conf: Values that take the place of `${name}`.
        schemas: Paths of files that are read without a schema -> their columns.

    Returns:
        Declarations, and notes on what was taken differently than it is written.

    Raises:
        DeclarationError: Something is no statement, or cannot be mapped; names the table, file,
            line, column and the fix, and shows the line.
    """
    unused: list[Note] = []
    files = [filled(Source.read(path), conf or {}, unused) for path in paths]
    statements = [one for file in files for one in parse(file)]
    written = [one.name for one in statements if isinstance(one, TableStatement)]
    apart = told_apart([*map(without_live, [*written, *others])], called)
    # What others declare is known by its whole name, and by no other.
    theirs = {tuple(name.lower().split(".")): one for name, one in (borrowed or {}).items()}
    known = {topic.name for topic in topics}
    statements = [_settled(one, apart, theirs) for one in statements]
    names = frozenset(one.name[-1] for one in statements if one.name)
    tables = frozenset(one.name[-1] for one in statements if isinstance(one, TableStatement))
    sources = Sources({topic.topic: topic for topic in topics})
    outside = Outside(sources, names, tables, schemas or {})
    kept = [one for one in statements if isinstance(one, TableStatement)]
    own = frozenset(one.name[-1] for one in kept if one.kind != "temporary_view")
    pipeline = _Pipeline(outside, apart, theirs, frozenset(known), own)
    for one in statements:
        pipeline.read(one)
    for one in statements:
        if isinstance(one, FlowStatement):
            pipeline.feed(one)
    for one in statements:
        with shown(one.source):
            pipeline.declare(one)
    typed = {
        one.name[-1]
        for one in statements
        if isinstance(one, TableStatement)
        and one.select is None
        and any(column.type for column in _returned(one.columns))
    }
    declarations = (*outside.declarations, *pipeline.declarations)
    notes = (*unused, *outside.notes, *pipeline.notes)
    return Loaded(
        declarations,
        notes,
        frozenset(typed),
        frozenset(map(without_live, written)),
        frozenset(outside.without_schema),
    )


@dataclass
class _Pipeline:
    """What is known so far, by name."""

    outside: Outside
    apart: Mapping[Name, str]
    borrowed: Mapping[Name, str]
    topics: frozenset[str]
    tables: frozenset[str]
    declarations: list[Declaration] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    queries: dict[int, Query] = field(default_factory=dict)
    listed: dict[str, tuple[Column, ...]] = field(default_factory=dict)
    feeds: dict[str, list[Use]] = field(default_factory=dict)

    def read(self, one: Statement) -> None:
        """Find the topics and files that a statement reads, and what others need to know of it."""
        if isinstance(one, ChangesStatement):
            return
        if isinstance(one, TableStatement):
            self.listed.setdefault(one.name[-1], _returned(one.columns))
            refuse_view_options(one)
        if one.select is None:
            return
        query = read_query(one.source, _subject(one), one.select)
        relations = [replace(r, called=self._called(one, r)) for r in query.relations]
        _refuse_one_alias(one, relations)
        query = replace(query, relations=tuple(relations))
        self.queries[id(one)] = query
        for relation in query.relations:
            self.outside.take(one.source, _subject(one), relation)

    def _called(self, one: Statement, relation: Relation) -> str | None:
        """The name in the graph of what is read, where that is not the last part of its own."""
        if relation.name in self.borrowed:
            return self.borrowed[relation.name]
        if len(relation.name) == 1 and relation.name[0] in self.topics:
            # A name of a topic alone means that.
            return None
        return _called(one, relation.name, relation.start, self.apart)

    def feed(self, one: FlowStatement) -> None:
        """Know what feeds a table, when all topics are known."""
        use = self._use(one, one.name, self.queries[id(one)])
        self.feeds.setdefault(one.target[-1], []).append(use)

    def declare(self, one: Statement) -> None:
        """Make the declarations of a statement."""
        place = one.source.place(one.offset)
        if isinstance(one, ChangesStatement):
            self.declarations.append(self._changes(one, place))
        elif isinstance(one, FlowStatement):
            self.declarations.append(self._flow(one, place))
        else:
            query = self.queries.get(id(one))
            one = self._kept(one, query)
            use = None if query is None else self._use(one, one.name, query)
            self._note_name(one, one.name)
            self._note_unused(one)
            self.notes += [
                Note(one.source.place(key.offset), f"{key.text} is not enforced")
                for key in one.keys
            ]
            if use is not None:
                self.notes += use.notes
            feeds = self.feeds.get(one.name[-1], [])
            shares = shared(self._written(one.name), self.apart)
            made = declare_table(one, _subject(one), place, use, feeds, shares)
            if made.keys and "kafka_assets.keys" not in one.properties:
                said = "aggregates without a watermark: its rows are updated by "
                said += ", ".join(made.keys)
                self.notes.append(Note(place, f"{made.name!r} {said}"))
            self.declarations.append(made)

    def _kept(self, one: TableStatement, query: Query | None) -> TableStatement:
        """A view whose rules keep or drop rows, as the private table that it has to be."""
        if one.kind != "temporary_view" or not one.constraints:
            return one
        streams = query is not None and any(r.stream or r.kafka for r in query.relations)
        text = f"the view {one.name[-1]!r} becomes a private table, because it has expectations"
        self.notes.append(Note(one.source.place(one.offset), text))
        kind: TableKind = "streaming_table" if streams else "materialized_view"
        return replace(one, kind=kind, private=True)

    def _note_unused(self, one: TableStatement) -> None:
        """Note what means nothing outside of Databricks."""
        for key, given in one.properties.items():
            if key.startswith(DATABRICKS) and key != f"{DATABRICKS}reset.allowed":
                text = f"the property {key!r} means nothing outside of Databricks"
                self.notes.append(Note(one.source.place(given.offset), text))
        if one.clustered_by == AUTO:
            text = "CLUSTER BY AUTO: nobody chooses columns here; CLUSTER BY (a, b) names them"
            self.notes.append(Note(one.source.place(one.offset), text))
        for rule in one.constraints:
            if rule.name != rule.written.lower():
                text = f"the expectation {rule.written!r} is named {rule.name!r}"
                self.notes.append(Note(one.source.place(rule.offset), text))

    def _use(self, one: TableStatement | FlowStatement, name: Name, query: Query) -> Use:
        columns = _returned(one.columns) if isinstance(one, TableStatement) else ()
        if isinstance(one, FlowStatement):
            columns = self.listed.get(one.target[-1], ())
            query = once(query, self.outside.sources) if one.once else query
        schema = isinstance(one, TableStatement) and "kafka_assets.schema" in one.properties
        return use_of(
            query,
            _subject(one),
            name[-1],
            self.outside.sources,
            columns=columns,
            partial=isinstance(one, FlowStatement),
            comment=one.comment,
            static=isinstance(one, TableStatement) and one.kind == "materialized_view",
            decodes=schema,
            tables=self.tables,
        )

    def _flow(self, one: FlowStatement, place: Place) -> Flow:
        use = self._use(one, one.name, self.queries[id(one)])
        self.notes += use.notes
        self._note_name(one, one.name)
        self._note_name(one, one.target)
        refuse_batch_size(one.source, _subject(one), use)
        check_name(_subject(one), place, one.name[-1], "the flow's name")
        return Flow(
            name=one.name[-1],
            target=one.target[-1],
            function=use.function,
            upstreams=use.function.upstreams,
            place=place,
            reads=dict(use.reads),
            once=one.once,
        )

    def _changes(self, one: ChangesStatement, place: Place) -> Flow:
        for name in (one.name, one.target, one.upstream):
            self._note_name(one, name or ())
        typed = [column for column in self.listed.get(one.target[-1], ()) if column.type]
        if typed:
            raise one.source.refused(
                _subject(one),
                one.offset,
                f"the target {one.target[-1]!r} lists {typed[0].name} {typed[0].type}, and changes "
                "are applied as they are",
                "cast in the table that is read, and list the target's columns without types",
            )
        with written_at(place):
            return create_auto_cdc_flow(
                target=one.target[-1],
                source=one.upstream[-1],
                keys=one.keys,
                sequence_by=one.sequence_by,
                apply_as_deletes=one.deletes,
                apply_as_truncates=one.truncates,
                column_list=one.columns,
                except_column_list=one.except_columns,
                ignore_null_updates=one.ignore_nulls,
                stored_as_scd_type=one.scd_type,
                track_history_column_list=one.track,
                track_history_except_column_list=one.track_except,
                name=None if one.name is None else one.name[-1],
            )

    def _written(self, name: Name) -> Name:
        """A settled name as its author wrote it."""
        return next((one for one, called in self.apart.items() if called == name[-1]), name)

    def _note_name(self, one: Statement, name: Name) -> None:
        if len(name) > 1 and name[0] != "live":
            place, written = one.source.place(one.offset), ".".join(self._written(name))
            self.notes.append(Note(place, f"{written} is the table {name[-1]}: {NO_CATALOG}"))


def _settled(one: Statement, apart: Mapping[Name, str], borrowed: Mapping[Name, str]) -> Statement:
    """A statement whose names of tables end as in the graph."""

    def settled(name: Name) -> Name:
        called = _called(one, name, one.offset, apart)
        return name if called is None else (*name[:-1], called)

    if isinstance(one, TableStatement):
        return replace(one, name=settled(one.name))
    if isinstance(one, ChangesStatement):
        theirs = borrowed.get(one.upstream)
        upstream = settled(one.upstream) if theirs is None else (*one.upstream[:-1], theirs)
        return replace(one, target=settled(one.target), upstream=upstream)
    return replace(one, target=settled(one.target))


def without_live(name: Name) -> Name:
    """A name without the word that older pipelines put before those of their own tables."""
    return name[1:] if len(name) > 1 and name[0] == "live" else name


def _refuse_one_alias(one: Statement, relations: Iterable[Relation]) -> None:
    """Refuse tables that a SELECT would know by one name: their columns could not be told apart."""
    seen: dict[str, Relation] = {}
    for relation in relations:
        other = seen.setdefault(relation.alias or "", relation)
        if relation.alias is not None and other.name != relation.name:
            raise one.source.refused(
                _subject(one),
                relation.start,
                f"reads {'.'.join(other.name)} and {'.'.join(relation.name)} under one name",
                f"give one of them another: {'.'.join(relation.name)} AS name",
            )


def _called(one: Statement, name: Name, offset: int, apart: Mapping[Name, str]) -> str | None:
    """The name in the graph of a table whose name others end in too; None for another."""
    name = without_live(name)
    if several := may_mean(name, apart):
        raise one.source.refused(
            _subject(one),
            offset,
            f"{'.'.join(name)} may be {' or '.join(several)}",
            "write its schema too",
        )
    found = meant(name, apart)
    return None if found is None else apart[found]


def _returned(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns that a SELECT returns: the others are computed from them."""
    return tuple(column for column in columns if column.generated is None)


def _subject(one: Statement) -> str:
    if isinstance(one, TableStatement):
        return f"{'view' if one.kind == 'temporary_view' else 'table'} {one.name[-1]!r}"
    return f"flow {(one.name or one.target)[-1]!r}"
