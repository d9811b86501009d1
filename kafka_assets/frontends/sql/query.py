"""A SELECT as the parser sees it: that it is one, what it reads, whether it aggregates.

The author's text is kept as it is; the parser is asked only what stands where. `using` makes a
function of the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from kafka_assets.errors import DeclarationError
from kafka_assets.frontends.sql.groups import aggregates, groups, only_databricks
from kafka_assets.frontends.sql.relations import Finder, Relation
from kafka_assets.frontends.sql.statements import Select
from kafka_assets.frontends.sql.text import DIALECT, Source


@dataclass(frozen=True)
class Query:
    """A SELECT whose relations are known.

    Attributes:
        source: The file.
        offset: Where it begins.
        end: Where it ends.
        relations: What it reads, in order of appearance.
        aggregates: Whether rows are brought together.
        groups: Names in the result of what they are brought together by; None when they are not
            known, or when a row that is corrected can vanish by what comes after.
        code: The SELECT without comments and white space.
        timestamp_type: Whether it uses Spark's own name of a topic's column.
    """

    source: Source = field(repr=False)
    offset: int
    end: int
    relations: tuple[Relation, ...]
    aggregates: bool
    groups: tuple[str, ...] | None
    code: str = field(repr=False)
    timestamp_type: bool


def read_query(source: Source, subject: str, select: Select) -> Query:
    """Find what a SELECT reads.

    Raises:
        DeclarationError: It cannot be parsed, or reads something that nothing here can read.
    """
    tokens = list(select.tokens)
    _refuse_words(source, subject, tokens)
    try:
        trees = DIALECT.parser().parse(_with_window_function(tokens), source.text)
    except SqlglotError as error:
        raise _problem(source, subject, error, select.offset) from None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query):
        raise source.refused(
            subject, select.offset, "after AS stands no SELECT", "write AS SELECT ..."
        )
    if (foreign := only_databricks(tree)) is not None:
        what, fix = foreign
        raise source.refused(subject, select.offset, f"{what}: Spark's SQL has no such thing", fix)
    finder = Finder(source, subject, tokens)
    for stream in tree.find_all(exp.Stream):
        finder.refuse_other_stream(stream)
    found = {r.start: r for table in tree.find_all(exp.Table) for r in finder.relations(table)}
    return Query(
        source=source,
        offset=select.offset,
        end=tokens[-1].end + 1,
        relations=tuple(found[start] for start in sorted(found)),
        aggregates=any(map(aggregates, tree.find_all(exp.Select))),
        groups=_groups(tree),
        code=" ".join(_plain(token) for token in tokens),
        timestamp_type=any(token.text.lower() == "timestamptype" for token in tokens),
    )


def _with_window_function(tokens: list[Token]) -> list[Token]:
    """The tokens, with `window(...)` as a function, which the parser takes for a clause."""
    return [
        Token(TokenType.VAR, one.text, one.line, one.col, one.start, one.end, one.comments)
        if one.token_type == TokenType.WINDOW and after.token_type == TokenType.L_PAREN
        else one
        for one, after in zip(tokens, [*tokens[1:], tokens[-1]], strict=True)
    ]


def _plain(token: Token) -> str:
    """A token as it counts: strings are no names, however they are quoted."""
    strings = (TokenType.STRING, TokenType.RAW_STRING)
    return repr(token.text) if token.token_type in strings else token.text


def _refuse_words(source: Source, subject: str, tokens: list[Token]) -> None:
    texts = [token.text.upper() for token in tokens]
    pairs = [*pairwise(texts)]
    for number, (word, after) in enumerate(pairs):
        # Names may be words of SQL: only the whole clause is one.
        clause = word == "WATERMARK" and after not in (",", ".", ")")
        if clause and texts[max(number - 1, 0)] != "." and ("DELAY", "OF") in pairs[number + 1 :]:
            raise source.refused(
                subject,
                tokens[number].start,
                "WATERMARK: Spark's SQL has no such clause",
                "write this table in Python with withWatermark(...), or without a watermark",
            )


def _problem(source: Source, subject: str, error: Exception, offset: int) -> DeclarationError:
    """The parser's complaint, with the place that it names."""
    details = (getattr(error, "errors", None) or [{}])[0]
    line, column = details.get("line"), details.get("col")
    if line and column:
        lines = source.text.splitlines(keepends=True)
        # The parser names the column at which a word ends.
        word = len(str(details.get("highlight") or " "))
        offset = sum(map(len, lines[: line - 1])) + max(column - word, 0)
    what = str(details.get("description") or str(error).splitlines()[0]).split(" for <")[0]
    return source.refused(subject, offset, f"its SELECT cannot be read: {what}", "correct it")


def _groups(tree: exp.Query) -> tuple[str, ...] | None:
    inside = any(aggregates(one) for one in tree.find_all(exp.Select) if one is not tree)
    sessions = "session_window" in tree.sql(dialect="databricks").lower()
    if inside or sessions or not isinstance(tree, exp.Select):
        return None
    return groups(tree)
