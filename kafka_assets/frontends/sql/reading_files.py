"""The functions that read files: the arguments of `read_files` and `cloud_files`, kept or refused.

They become the arguments of `file_source`, which knows formats and options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from kafka_assets.errors import DeclarationError
from kafka_assets.frontends import file_options
from kafka_assets.frontends.sql.reading import literal
from kafka_assets.frontends.sql.text import Source

FILES = ("read_files", "cloud_files")

Refused = Callable[[str, str], DeclarationError]
Options = tuple[dict[str, str], list[str]]


@dataclass(frozen=True)
class FilesRead:
    """What `read_files` or `cloud_files` says.

    Attributes:
        path: The folder or pattern.
        format: The files' format; `parquet`, which is Spark's default, where nothing says it.
        schema: The columns as DDL, if they are said.
        options: Options of Spark's reader, without limits.
        limits: How much a batch of a stream reads.
        offset: Where it stands.
        notes: What was taken differently.
    """

    path: str
    format: str
    schema: str | None
    options: tuple[tuple[str, str], ...]
    limits: tuple[tuple[str, str], ...] = field(compare=False)
    offset: int = field(compare=False)
    notes: tuple[str, ...] = field(compare=False)


def files_read(source: Source, subject: str, call: exp.Expr, name: str, offset: int) -> FilesRead:
    """The arguments of a function that reads files.

    Raises:
        DeclarationError: One of them cannot be kept.
    """

    def refused(what: str, fix: str) -> DeclarationError:
        return source.refused(subject, offset, f"{name}: {what}", fix)

    given: dict[str, tuple[str, str]] = {}
    for key, value in _arguments(call, refused):
        low = file_options.plain(key)
        if low in given:
            raise refused(f"{key} is given twice", "give it once")
        given[low] = (key, value)
    path = given.pop("path", ("", ""))[1]
    if not path:
        raise refused("names no folder", f"write {name}('/folder', format => 'json', ...)")
    format, schema = given.pop("format", ("", "parquet"))[1], given.pop("schema", None)
    every, notes = _options(given.values(), format, refused)
    options, limits = file_options.without_limits(every)
    return FilesRead(
        path=path,
        format=format,
        schema=None if schema is None else schema[1],
        options=tuple(sorted(options.items())),
        limits=tuple(limits.items()),
        offset=offset,
        notes=tuple(notes),
    )


def _options(given: Iterable[tuple[str, str]], format: str, refused: Refused) -> Options:
    """The options that are kept, and notes of those that are not needed."""
    notes: list[str] = []
    options: dict[str, str] = {}
    for key, value in given:
        answer = file_options.answer(key, value, format)
        if answer.kept is not None:
            option, kept = answer.kept
            options[file_options.bare(option)] = kept
        elif answer.refused is not None:
            what, fix = answer.refused
            raise refused(f"{key} => '{value}': {what}", fix)
        else:
            notes.append(f"{key} is not needed: {answer.why}")
    note = file_options.one_limit(options)
    if note is not None:
        notes.append(note)
    return options, notes


def _arguments(call: exp.Expr, refused: Refused) -> Iterator[tuple[str, str]]:
    """Name and value; the first two may stand without a name, and maps are opened."""
    by_place = ["path", "format"]
    for argument in call.expressions:
        if isinstance(argument, exp.VarMap):
            keys, values = argument.args["keys"].expressions, argument.args["values"].expressions
            pairs = [(literal(key), value) for key, value in zip(keys, values, strict=True)]
        elif isinstance(argument, exp.Kwarg):
            pairs = [(argument.this.name, argument.expression)]
        else:
            pairs = [(by_place.pop(0) if by_place else None, argument)]
        for key, expression in pairs:
            value = literal(expression)
            if key is None or value is None:
                raise refused(
                    f"{argument.sql()} is no plain value",
                    "write a string, a number or a boolean, each with its name",
                )
            yield key, value
