"""`${name}` in SQL files: values of the pipeline's configuration, put into the text that is read.

They come from `SET name = value` above, or from who takes the file in (`conf=`). As on Databricks
and in Spark the text of the value takes the place of `${name}`, also in strings and names, and not
in comments. What no value is known for is left to `open_values`, which refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sqlglot.tokenizer_core import Token

from kafka_assets.errors import DeclarationError
from kafka_assets.frontends.notes import Note
from kafka_assets.frontends.sql.text import STATEMENT, Shift, Source

_NAMED = re.compile(r"\$\{(?:spark:|sparkconf:|hiveconf:|hivevar:)?([\w.-]+)\}")
_UNUSED = ("pipelines.", "spark.databricks.")
"""Begins names of settings that are about Databricks."""


def filled(source: Source, conf: Mapping[str, str], notes: list[Note]) -> Source:
    """A file with its values in their places; errors still point at what is written.

    Args:
        source: The file as it is written.
        conf: Values from outside; a `SET` in the file goes before them.
        notes: Takes up which statements have no effect.

    Raises:
        DeclarationError: A `SET` gives no value, has no end, or sets what is Spark's.
    """
    values, parts, shifts = dict(conf), [], list[Shift]()
    sets: dict[int, str] = {}
    asked: set[int] = set()
    end = length = 0
    for tokens in source.statements():
        for found in _places(source.text, tokens):
            asked |= {at for at, name in sets.items() if name == found[1]}
            if found[1] not in values:
                continue
            parts += [source.text[end : found.start()], values[found[1]]]
            length += len(parts[-2])
            shifts.append(Shift(length, length + len(parts[-1]), found.start(), found.end()))
            length, end = length + len(parts[-1]), found.end()
        if tokens[0].text.upper() == "SET":
            name, values = _set(source, tokens, values)
            sets[tokens[0].start] = name
    notes += [_unused(source, at, name) for at, name in sets.items() if at not in asked]
    if not shifts:
        return source
    return Source(source.file, "".join([*parts, source.text[end:]]), source.text, tuple(shifts))


def _places(text: str, tokens: list[Token]) -> Iterable[re.Match[str]]:
    # What stands in a comment stands in no token.
    for found in _NAMED.finditer(text[: tokens[-1].end + 1], tokens[0].start):
        if any(token.start <= found.start() <= token.end for token in tokens):
            yield found


def _set(
    source: Source, tokens: list[Token], values: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """The name that a `SET` gives a value, and all values then; one in quotes keeps them."""
    text = source.between(tokens)[len("SET") :]
    name, equals, value = text.partition("=")
    name, start = name.strip().strip("`"), tokens[0].start
    if not equals or not re.fullmatch(r"[\w.-]+", name):
        raise source.refused(
            STATEMENT, start, "SET gives no value to a name", "write SET name = value;"
        )
    first = source.place(start).line
    for token in tokens:
        if source.place(token.start).line != first:
            raise source.refused(
                STATEMENT, token.start, f"SET {name} goes on here", "end it with ; on its line"
            )
    if name.startswith("spark.sql."):
        raise _spark(source, start, name)
    filled_in = _NAMED.sub(lambda found: values.get(found[1], found[0]), value.strip())
    return name, {**values, name: filled_in}


def _unused(source: Source, offset: int, name: str) -> Note:
    if name.startswith("spark.") and not name.startswith(_UNUSED):
        raise _spark(source, offset, name)
    why = "it is about Databricks" if name.startswith(_UNUSED) else f"nothing asks for ${{{name}}}"
    return Note(source.place(offset), f"SET {name} is not used: {why}")


def _spark(source: Source, offset: int, name: str) -> DeclarationError:
    # Without the value, which may be a secret from outside.
    return source.refused(
        STATEMENT,
        offset,
        f"SET {name}: a setting of Spark belongs to the tables that need it",
        f"write TBLPROPERTIES ('kafka_assets.spark_conf.{name}' = ...) on them",
    )
