"""What a SELECT reads: topics, files and tables, as streams or as they are, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from kafka_assets.errors import DeclarationError
from kafka_assets.frontends.sql.reading import KafkaRead, kafka_read
from kafka_assets.frontends.sql.reading_files import FILES, FilesRead, files_read
from kafka_assets.frontends.sql.statements import Name
from kafka_assets.frontends.sql.text import DIALECT, Source

_TABLE_FUNCTIONS = (
    "collations",
    "explode",
    "explode_outer",
    "inline",
    "inline_outer",
    "json_tuple",
    "posexplode",
    "posexplode_outer",
    "range",
    "sql_keywords",
    "stack",
    "variant_explode",
    "variant_explode_outer",
)
"""Functions of Spark that can stand where a table can, and read nothing."""


@dataclass(frozen=True)
class Relation:
    """Something that a SELECT reads.

    Attributes:
        name: Its name, with catalog and schema; empty for what a function reads.
        kafka: How a topic is read.
        files: How files are read.
        stream: Whether it is read as a stream.
        start: Where its text begins, with the word STREAM.
        end: Where its text ends.
        alias: The name by which the SELECT means its columns, where no other is given.
        called: Its name in the graph, where that is not the last part.
    """

    name: Name
    kafka: KafkaRead | None
    stream: bool
    start: int
    end: int
    alias: str | None
    files: FilesRead | None = None
    called: str | None = None

    @property
    def from_function(self) -> bool:
        """Whether a function reads it, from outside of the pipeline."""
        return self.kafka is not None or self.files is not None


class Finder:
    """Finds where a relation stands in the tokens of a SELECT.

    Args:
        source: The file.
        subject: What the SELECT belongs to, for messages.
        tokens: The SELECT's tokens.
    """

    def __init__(self, source: Source, subject: str, tokens: list[Token]) -> None:
        self.source, self.subject, self.tokens = source, subject, tokens
        self.by_start = {token.start: at for at, token in enumerate(tokens)}
        self.by_end = {token.end: at for at, token in enumerate(tokens)}

    def relations(self, table: exp.Table) -> Iterator[Relation]:
        """What a table of the tree reads: nothing, when it is a name of the SELECT's own.

        Raises:
            DeclarationError: It reads something that nothing here can read.
        """
        if table.find_ancestor(exp.Hint) is not None or own_name(table) is not None:
            return
        if isinstance(table.this, exp.Identifier):
            yield self._named(table)
        else:
            kafka = self._function(table)
            if kafka is not None:
                yield kafka

    def refuse_other_stream(self, stream: exp.Stream) -> None:
        """Refuse STREAM of something that is read from nowhere.

        Raises:
            DeclarationError: It is a SELECT, or a name that WITH gives.
        """
        read = stream.this.this if isinstance(stream.this, exp.Subquery) else stream.this
        if isinstance(read, exp.Table) and own_name(read) is None:
            return
        inside = [node.meta["start"] for node in stream.walk() if "start" in node.meta]
        raise self._refused(
            min(inside, default=self.tokens[0].start),
            "STREAM of what is no topic, table or view",
            "write STREAM(name) where the SELECT names it",
        )

    def _named(self, table: exp.Table) -> Relation:
        parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
        first, last = parts[0].meta.get("start"), parts[-1].meta.get("end")
        name = tuple(part.name.lower() for part in parts)
        if first not in self.by_start or last not in self.by_end:
            raise self._refused(
                self.tokens[0].start,
                f"{'.'.join(name)} is read in a way that cannot be followed",
                "write FROM name",
            )
        at, end = self.by_start[first], self.by_end[last]
        if any(table.args.get(more) for more in ("version", "when", "changes")):
            raise self._refused(
                first, f"{name[-1]} is read at a version", "read the table as it is: FROM name"
            )
        if "/" in name[-1]:
            raise self._refused(
                first,
                f"the path {name[-1]} is no table of this pipeline",
                "declare it with ka.external_table in Python, and read its name",
            )
        stream, start, stop, bracket = self._stream(at, end)
        alias = _alias(table, bracket)
        return Relation(
            name=name[1:] if name[0] == "live" and len(name) > 1 else name,
            kafka=None,
            stream=stream,
            start=start,
            end=stop,
            alias=None if alias or table.args.get("sample") else parts[-1].name,
        )

    def _stream(self, at: int, end: int) -> tuple[bool, int, int, bool]:
        """Whether STREAM stands before these tokens, and where the whole begins and ends."""
        before = [token.token_type for token in self.tokens[max(at - 2, 0) : at]]
        if before[-1:] == [TokenType.STREAM]:
            return True, self.tokens[at - 1].start, self.tokens[end].end + 1, False
        if before != [TokenType.STREAM, TokenType.L_PAREN]:
            return False, self.tokens[at].start, self.tokens[end].end + 1, False
        after = self.tokens[end + 1] if end + 1 < len(self.tokens) else None
        if after is None or after.token_type != TokenType.R_PAREN:
            raise self._refused(
                self.tokens[at].start, "STREAM(...) holds more than a name", "write STREAM(name)"
            )
        return True, self.tokens[at - 2].start, after.end + 1, True

    def _function(self, table: exp.Table) -> Relation | None:
        start = table.this.meta.get("start")
        at = self.by_start.get(-1 if start is None else start)
        if at is None:
            raise self._refused(
                self.tokens[0].start,
                f"{table.sql(dialect=DIALECT)} cannot be read",
                "read a table of this pipeline",
            )
        name = self.tokens[at].text.lower()
        if name in _TABLE_FUNCTIONS:
            return None
        where = self.tokens[at].start
        kafka = files = None
        if name in FILES:
            files = files_read(self.source, self.subject, table.this, name, where)
        elif name == "read_kafka":
            kafka = kafka_read(self.source, self.subject, table.this, where)
        else:
            raise self._refused(
                where,
                f"the function {name}(...) cannot stand in place of a table",
                "read a table of this pipeline, a topic by read_kafka(...), or files by "
                "read_files(...)",
            )
        stream, first, stop, bracket = self._stream(at, self._closing(at))
        alias = None if _alias(table, bracket) else name
        return Relation((), kafka, stream, first, stop, alias, files)

    def _closing(self, at: int) -> int:
        """The bracket that closes the function which begins here."""
        depth = 0
        for number, token in enumerate(self.tokens[at:], at):
            depth += token.token_type == TokenType.L_PAREN
            depth -= token.token_type == TokenType.R_PAREN
            if depth == 0 and number > at:
                return number
        return at

    def _refused(self, offset: int, what: str, fix: str) -> DeclarationError:
        return self.source.refused(self.subject, offset, what, fix)


def _alias(table: exp.Table, bracket: bool) -> str:
    holder: Any = table.parent if bracket else table
    return str(holder.alias or table.alias)


def own_name(table: exp.Table) -> exp.CTE | None:
    """What a WITH of the SELECT gives by this name; None when it means something outside of it."""
    if table.args.get("db") is not None or not isinstance(table.this, exp.Identifier):
        return None
    node: exp.Expr = table
    inside: exp.CTE | None = None
    while node.parent is not None:
        node = node.parent
        if isinstance(node, exp.CTE):
            inside = node
        given = node.args.get("with_")
        if given is None:
            continue
        for one in given.expressions:
            if one is inside and not given.args.get("recursive"):
                # Its own name, and those given later, mean tables.
                break
            if one.alias.lower() == table.name.lower():
                return one  # type: ignore[no-any-return]
    return None
