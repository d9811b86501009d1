"""What SQL files read from outside of the pipeline -> topics and file sources, each with a name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from kafka_assets.declarations import Declaration, FileSource, Topic, file_source, kafka_topic
from kafka_assets.declarations.files import FIXED, FORMATS, source_name
from kafka_assets.declarations.model import Place
from kafka_assets.declarations.places import written_at
from kafka_assets.errors import DeclarationError
from kafka_assets.frontends import file_options
from kafka_assets.frontends.notes import Note
from kafka_assets.frontends.sql.reading import KafkaRead
from kafka_assets.frontends.sql.reading_files import FilesRead
from kafka_assets.frontends.sql.relations import Relation
from kafka_assets.frontends.sql.text import Source
from kafka_assets.frontends.sql.using import Sources


@contextmanager
def shown(source: Source) -> Iterator[None]:
    """Let an error about a place show the line that stands there."""
    try:
        yield
    except DeclarationError as error:
        file, _, position = error.where.partition(f"{source.file}:")
        line, _, column = position.partition(":")
        told = error.what.removeprefix(f"{error.subject} ({error.where}): ")
        if file or not (line.isdecimal() and column.isdecimal()) or "\n" in told:
            raise
        text = source.shown(Place(source.file, int(line), int(column)))
        raise DeclarationError(
            error.subject, error.where, f"{told}\n{text}", fix=error.fix or "correct it"
        ) from None


@dataclass
class Outside:
    """Topics and files that are read so far.

    Attributes:
        sources: These, those of Python among them.
        names: Names of all statements.
        tables: Names of the tables and views among them.
        schemas: Columns of files that are read without saying them, by path.
        without_schema: Paths of files that are read so.
        declarations: The new ones, in order of appearance.
        notes: What was taken differently than it is written.
    """

    sources: Sources
    names: frozenset[str]
    tables: frozenset[str]
    schemas: Mapping[str, str] = field(default_factory=dict)
    without_schema: set[str] = field(default_factory=set)
    declarations: list[Declaration] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def take(self, source: Source, subject: str, relation: Relation) -> None:
        """Know what a relation reads, where a function reads it.

        Raises:
            DeclarationError: Its name cannot be used, or it is read in another way elsewhere.
        """
        kafka, files = relation.kafka, relation.files
        if kafka is not None and kafka.topic not in self.sources.topics:
            topic = self._topic(source, kafka)
            self.sources.topics[topic.topic] = topic
            self.declarations.append(topic)
        if files is not None and files.limits and not relation.stream:
            said = ", ".join(name for name, _ in files.limits)
            place = source.place(files.offset)
            self.notes.append(Note(place, f"{said} is not needed: all files are read"))
            files = replace(files, limits=())
        if files is not None and files not in self.sources.files:
            self.declarations.append(self._files(source, subject, files))
        elif files is not None:
            self._limit(source, subject, files)

    def _topic(self, source: Source, read: KafkaRead) -> Topic:
        place = source.place(read.offset)
        with written_at(place), shown(source):
            made = kafka_topic(read.topic)
            files = {one.name for one in self.sources.files.values()}
            if made.name not in self.tables | files:
                return made
            what = "files are" if made.name in files else "a table is"
            self.notes.append(
                Note(
                    place,
                    f"the topic {read.topic!r} is named '{made.name}_topic': {what} named "
                    f"{made.name!r}",
                )
            )
            return kafka_topic(read.topic, name=f"{made.name}_topic")

    def _files(self, source: Source, subject: str, read: FilesRead) -> FileSource:
        for other, made in self.sources.files.items():
            if other.path == read.path:
                raise self._other_way(source, subject, read, made)
        taken = {*self.names, *(topic.name for topic in self.sources.topics.values())}
        with written_at(source.place(read.offset)), shown(source):
            made = file_source(
                source_name(read.path, taken),
                read.path,
                format=read.format,
                schema=self._columns(source, subject, read),
                options=dict((*read.options, *read.limits)),
            )
        self.sources.files[read] = made
        return made

    def _columns(self, source: Source, subject: str, read: FilesRead) -> str | None:
        known = {format.lower() for format in FORMATS} - {format.lower() for format in FIXED}
        if read.schema is not None or read.format.lower() not in known:
            return read.schema
        path = file_options.same_path(read.path)
        self.without_schema.add(path)
        if path not in self.schemas:
            raise source.refused(
                subject,
                read.offset,
                f"nothing says which columns its {read.format} files at {read.path} have, and "
                "guessing them from the files that are there would change with the files",
                "write schema => 'id BIGINT, at TIMESTAMP', or give it to ka.program: "
                f'schemas={{"{path}": "id BIGINT, at TIMESTAMP"}}',
            )
        return self.schemas[path]

    def _limit(self, source: Source, subject: str, read: FilesRead) -> None:
        """Keep the limits of a stream, also when others read its files before, without any."""
        made = self.sources.files[read]
        limited = file_options.limited(made, dict(read.limits))
        if limited is None:
            raise self._other_way(source, subject, read, made)
        self.sources.files[read] = limited
        self.declarations[self.declarations.index(made)] = limited

    def _other_way(
        self, source: Source, subject: str, read: FilesRead, made: FileSource
    ) -> DeclarationError:
        return source.refused(
            subject,
            read.offset,
            f"{read.path} is read in another way at {made.place}",
            "read it in one way, in a table that the others read",
        )
