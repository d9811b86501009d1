"""Places in a statement that a value is to be put into, and for which nobody has given one."""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import Token, TokenType

from kafka_assets.frontends.sql.text import STATEMENT, Source

_NAMED = re.compile(r"\$\{[^{}]*\}")
_OPERANDS = (
    *(TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING),
    *(TokenType.R_PAREN, TokenType.R_BRACKET),
)
"""What a field is taken from by a colon; elsewhere a colon begins a parameter."""


def refuse_open_values(source: Source, tokens: list[Token]) -> None:
    """Refuse `${name}`, also in strings, and the parameters `:name` and `?`.

    Raises:
        DeclarationError: The statement has one; names its place.
    """
    first = _first_named(source, tokens) or _first_parameter(source, tokens)
    if first is not None:
        offset, written = first
        named = re.fullmatch(r"\$\{([\w.-]+)\}", written)
        raise source.refused(
            STATEMENT,
            offset,
            f"{written} stands where a value should, and nothing here puts one there",
            f"write SET {named[1]} = value; above, or give it to ka.program: "
            f'conf={{"{named[1]}": ...}}'
            if named is not None
            else "write the value itself",
        )


def _first_named(source: Source, tokens: list[Token]) -> tuple[int, str] | None:
    end = tokens[-1].end + 1
    for found in _NAMED.finditer(source.text[:end], tokens[0].start):
        # What stands in a comment stands in no token.
        if any(token.start <= found.start() <= token.end for token in tokens):
            return found.start(), found[0]
    return None


def _first_parameter(source: Source, tokens: list[Token]) -> tuple[int, str] | None:
    for number, token in enumerate(tokens):
        if token.token_type == TokenType.PLACEHOLDER:
            return token.start, token.text
        before, after = tokens[max(number - 1, 0)], tokens[min(number + 1, len(tokens) - 1)]
        if token.token_type != TokenType.COLON or before.token_type in _OPERANDS:
            continue
        field = before.end + 1 == token.start and re.fullmatch(r"\w+", before.text)
        word = source.text[after.start : after.end + 1]
        if not field and token.end + 1 == after.start and re.fullmatch(r"\w+", word):
            return token.start, f":{word}"
    return None
