"""A SELECT with its names resolved: the function that runs it, and how it reads its upstreams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kafka_assets.declarations.model import FileSource, Read, Topic
from kafka_assets.frontends.notes import Note
from kafka_assets.frontends.sql.function import SqlFunction
from kafka_assets.frontends.sql.query import Query
from kafka_assets.frontends.sql.reading_files import FilesRead
from kafka_assets.frontends.sql.relations import Relation
from kafka_assets.frontends.sql.statements import Column

NO_CATALOG = "names here have no catalog and no schema"


@dataclass
class Sources:
    """The topics and files that are read, and their names in the graph.

    Attributes:
        topics: Kafka's name of a topic -> the topic.
        files: How files are read -> the source.
    """

    topics: dict[str, Topic]
    files: dict[FilesRead, FileSource] = field(default_factory=dict)

    def name_of(self, relation: Relation) -> str:
        """What a relation reads, by its name in the graph."""
        if relation.kafka is not None:
            return self.topics[relation.kafka.topic].name
        if relation.files is not None:
            return self.files[relation.files].name
        return relation.called or relation.name[-1]

    def is_topic(self, relation: Relation) -> bool:
        """Whether it is a topic, by whichever of its names."""
        return self.name_of(relation) in {topic.name for topic in self.topics.values()}

    def has(self, relation: Relation) -> bool:
        """Whether it comes from outside of the pipeline."""
        return relation.files is not None or self.is_topic(relation)


@dataclass(frozen=True)
class Use:
    """How a table, view or flow uses a SELECT.

    Attributes:
        function: Runs it.
        reads: Upstream -> how it is read, where that is not as a stream.
        source: Whether its rows come from a topic or files.
        aggregates: Whether rows are brought together.
        keys: By which columns, where its rows are those of a stream without an end; None where
            they are not known.
        endless: It aggregates a stream that certainly has no watermark.
        most: Records of a micro-batch at most, where `read_kafka` says so.
        notes: What was taken differently.
        offset: Where the SELECT begins.
    """

    function: SqlFunction
    reads: Mapping[str, Read]
    source: bool
    aggregates: bool
    keys: tuple[str, ...] | None
    endless: bool
    most: int | None
    notes: tuple[Note, ...]
    offset: int


def use_of(
    query: Query,
    subject: str,
    name: str,
    sources: Sources,
    *,
    columns: tuple[Column, ...],
    partial: bool,
    comment: str | None,
    static: bool,
    decodes: bool,
    tables: frozenset[str],
) -> Use:
    """Resolve the names of a SELECT.

    Args:
        query: The SELECT.
        subject: What it belongs to, for messages.
        name: Name of the table, view or flow.
        sources: The topics and files that are read.
        columns: The columns that are listed.
        partial: The SELECT may lack some of them.
        comment: The description.
        static: Everything is read as it is: a materialized view.
        decodes: The function gets a topic's records decoded.
        tables: Names of tables, and of no views.

    Raises:
        DeclarationError: It reads nothing, or something in two ways.
    """
    if not query.relations:
        raise query.source.refused(
            subject, query.offset, "its SELECT reads no topic and no table", "add FROM name"
        )
    relations = _with_streamed_topic(query, static)
    reads: dict[str, Read] = {}
    for given, relation in zip(query.relations, relations, strict=True):
        if static and relation.stream:
            raise query.source.refused(
                subject,
                relation.start,
                "STREAM in a materialized view, which reads everything as it is",
                "remove STREAM, or use a STREAMING TABLE",
            )
        upstream = sources.name_of(relation)
        read: Read = "stream" if relation.stream else "static"
        if reads.setdefault(upstream, read) != read:
            raise query.source.refused(
                subject,
                given.start,
                f"reads {upstream} once as a stream and once as it is",
                "read it in one way; or read one of the two through a TEMPORARY VIEW",
            )
    upstreams = tuple(reads)
    # SQL has no watermarks; a view in Python may have one.
    streamed = [name for name, read in reads.items() if read == "stream"]
    known = {*tables, *(sources.name_of(r) for r in relations if sources.has(r))}
    return Use(
        function=SqlFunction(
            name=name,
            text=_text(query, relations, upstreams, sources, decodes),
            upstreams=upstreams,
            code=query.code,
            columns=tuple((column.name, column.type) for column in columns),
            partial=partial,
            doc=comment,
            hidden=tuple(
                sources.name_of(relation)
                for relation in relations
                if relation.files is not None and "_metadata" in query.code
            ),
        ),
        reads={} if static else {name: read for name, read in reads.items() if read != "stream"},
        source=_begins_here(relations, sources),
        aggregates=query.aggregates,
        keys=query.groups if streamed else (),
        endless=bool(streamed) and query.aggregates and set(streamed) <= known,
        most=min((r.kafka.most for r in relations if r.kafka and r.kafka.most), default=None),
        notes=tuple(_notes(query, relations)),
        offset=query.offset,
    )


def once(query: Query, sources: Sources) -> Query:
    """What a flow reads that runs once: what it reads first as a whole, it reads as a stream."""
    if not query.relations or any(relation.stream for relation in query.relations):
        return query
    first = sources.name_of(query.relations[0])
    return replace(
        query,
        relations=tuple(
            replace(relation, stream=sources.name_of(relation) == first)
            for relation in query.relations
        ),
    )


def _with_streamed_topic(query: Query, static: bool) -> tuple[Relation, ...]:
    """What a function reads by itself is read as a stream, with the word STREAM or without."""
    only = query.relations[0]
    if static or len(query.relations) > 1 or not only.from_function:
        return query.relations
    return (replace(only, stream=True),)


def _begins_here(relations: tuple[Relation, ...], sources: Sources) -> bool:
    """Whether rows come from outside: looking something up there is not enough."""
    streamed = [relation for relation in relations if relation.stream]
    if streamed:
        return any(sources.has(relation) for relation in streamed)
    return all(sources.has(relation) for relation in relations)


def _text(
    query: Query,
    relations: tuple[Relation, ...],
    upstreams: tuple[str, ...],
    sources: Sources,
    decodes: bool,
) -> str:
    """The author's text with placeholders in place of what it reads."""
    written, at = "", query.offset
    for relation in relations:
        written += _literal(query.source.text[at : relation.start])
        frame = f"{{frame_{upstreams.index(sources.name_of(relation))}}}"
        if query.timestamp_type and not decodes and sources.is_topic(relation):
            # No value of a user is in it.
            frame = f"(SELECT *, timestamp_type AS timestampType FROM {frame})"  # noqa: S608
        alias = "" if relation.alias is None else f" AS `{_literal(relation.alias)}`"
        written, at = f"{written}{frame}{alias}", relation.end
    return written + _literal(query.source.text[at : query.end])


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _notes(query: Query, relations: tuple[Relation, ...]) -> list[Note]:
    found = []
    for given, relation in zip(query.relations, relations, strict=True):
        place = query.source.place(given.start)
        if len(relation.name) > 1:
            called = relation.called or relation.name[-1]
            full = ".".join(relation.name)
            found.append(Note(place, f"{full} is the table {called}: {NO_CATALOG}"))
        if relation.kafka is not None and relation.kafka.servers is not None:
            servers = relation.kafka.servers
            found.append(
                Note(
                    place,
                    f"the brokers {servers} are not used: KAFKA_ASSETS_KAFKA__BOOTSTRAP_SERVERS "
                    "says where topics are",
                    servers,
                )
            )
        if relation.kafka is not None:
            found += [Note(place, text) for text in relation.kafka.notes]
        if relation.stream and not given.stream:
            name = "read_kafka" if relation.files is None else "read_files"
            found.append(Note(place, f"{name} is read as a stream: STREAM {name}(...)"))
        if relation.files is not None:
            found += [Note(place, text) for text in relation.files.notes]
    return found
