"""The word for files that appear in a folder, as a source that tables read.

What a format's rows look like to Spark is `sources.files`; the schema is looked up in `graph`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence

from kafka_assets.declarations.model import FileSource, Place
from kafka_assets.declarations.places import caller, check_name, check_owners, declared
from kafka_assets.errors import DeclarationError
from kafka_assets.settings import is_secret

FORMATS = ("json", "csv", "parquet", "orc", "text", "binaryFile")
FIXED = {
    "text": "`value` STRING",
    "binaryFile": "`path` STRING, `modificationTime` TIMESTAMP, `length` BIGINT, `content` BINARY",
}
"""Formats that have columns of their own, with these; from Spark's pages on data sources."""

RESCUED = "_rescued_data"
"""The column of a row's own text, where that did not fit the schema; null where it did."""
RESCUES = ("json", "csv")
"""Formats whose rows have that column."""

_ANY = ("pathGlobFilter", "recursiveFileLookup", "maxFilesPerTrigger", "maxBytesPerTrigger")
_DATES = ("dateFormat", "timestampFormat", "timestampNTZFormat", "timeZone", "locale")
_LINES = ("multiLine", "lineSep", "encoding", *_DATES)
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "json": (
        *_LINES,
        "allowComments",
        "allowUnquotedFieldNames",
        "allowSingleQuotes",
        "allowNumericLeadingZeros",
        "allowBackslashEscapingAnyCharacter",
        "allowUnquotedControlChars",
        "allowNonNumericNumbers",
    ),
    "csv": (
        *_LINES,
        "sep",
        "delimiter",
        "header",
        "enforceSchema",
        "quote",
        "escape",
        "charToEscapeQuoteEscaping",
        "comment",
        "nullValue",
        "nanValue",
        "positiveInf",
        "negativeInf",
        "emptyValue",
        "ignoreLeadingWhiteSpace",
        "ignoreTrailingWhiteSpace",
        "unescapedQuoteHandling",
        "maxColumns",
        "maxCharsPerColumn",
        "charset",
    ),
    "text": ("wholetext", "lineSep"),
    "parquet": (),
    "orc": (),
    "binaryFile": (),
}
"""Format -> the options of Spark's reader that can be set.

From Spark's pages on the file formats and on Structured Streaming's file source. Left out is what
would lose rows (`mode`, `maxFileAge`, `latestFirst`, `cleanSource`), what is set here, and what
only guessing a schema needs.
"""


def file_source(
    name: str,
    path: str,
    *,
    format: str,
    schema: str | None = None,
    options: Mapping[str, object] | None = None,
    description: str | None = None,
    owners: Sequence[str] = (),
) -> FileSource:
    """Declare a folder in which files appear.

    A table that reads it gets the rows of each file once. A file that is overwritten under its own
    name is not read again. One that goes before it was read, or while the run reads, is named by
    an error: Spark alone would pass over it. A materialized view gets the rows of all files that
    are there, and is computed anew when they change; a stream that looks them up
    (`reads={"name": "static"}`) gets those that are there when its run starts.

    Args:
        name: Its name in the graph, by which functions have it as a parameter.
        path: The folder, or a pattern such as `/landing/orders/*.json`; relative to the lake, or
            absolute, with any scheme that Spark knows.
        format: `json`, `csv`, `parquet`, `orc`, `text` or `binaryFile`.
        schema: The columns: a file of the schemas folder, or DDL such as
            `"id BIGINT, at TIMESTAMP"`. Not for `text` and `binaryFile`, which have their own.
        options: Options of Spark's reader for this format, such as `{"header": True}`.
        description: Shown in the Dagster UI.
        owners: Emails, or `team:name`.

    Returns:
        A declaration. Of `json` and `csv`, the frame has a column `_rescued_data` after those of
        the schema: the text of a row that does not fit it, else null. All have Spark's hidden
        `_metadata`, from which a function may select, such as `_metadata.file_path`.

    Raises:
        DeclarationError: Name, path, format, schema or an option cannot be used.
    """
    place = caller()
    subject = f"file source {name!r}"
    check_name(subject, place, name, "its name")
    check_owners(subject, place, owners)
    by_low = {known.lower(): known for known in FORMATS}
    if format.lower() not in by_low:
        raise _error(
            subject, place, f"there is no format {format!r}", f"use one of {', '.join(FORMATS)}"
        )
    format = by_low[format.lower()]
    if not path.strip() or ".." in path.split("/"):
        raise _error(subject, place, f"{path!r} is no path", "name a folder, without ..")
    if format in FIXED and schema is not None:
        raise _error(subject, place, f"{format} files have columns of their own", "remove schema=")
    if format not in FIXED and schema is None:
        raise _error(
            subject,
            place,
            f"nothing says which columns its {format} files have, and guessing them from the "
            "files that are there would change with the files",
            'say schema="id BIGINT, at TIMESTAMP", or the name of a schema file',
        )
    given = {key: _text(value) for key, value in (options or {}).items()}
    return declared(
        FileSource(
            name=name,
            path=path,
            format=format,
            schema=schema,
            options=_options(subject, place, format, given),
            description=description,
            owners=tuple(owners),
            place=place,
        )
    )


def source_name(path: str, taken: Collection[str]) -> str:
    """A name for a folder that a program or a SQL file reads without naming it.

    Args:
        path: The folder or pattern.
        taken: Names that are in use.
    """
    parts = [part for part in path.split("://")[-1].split("/") if part and "*" not in part]
    name = re.sub(r"[^a-z0-9]+", "_", (parts[-1] if parts else "files").lower()).strip("_")
    if not name[:1].isalpha():
        name = f"files_{name}".rstrip("_")
    return f"{name}_files" if name in taken else name


def _shown(name: str, value: str) -> str:
    return "***" if is_secret(name) or "connection" in name.lower() else repr(value)


def _options(subject: str, place: Place, format: str, given: Mapping[str, str]) -> dict[str, str]:
    known = {name.lower(): name for name in (*_ANY, *OPTIONS[format])}
    found = {}
    for name, value in given.items():
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, 1)
            meant = f"did you mean {known[near[0]]}? " if near else ""
            raise _error(
                subject,
                place,
                f"the option {name}={_shown(name, value)} cannot be set",
                f"{meant}{format} files have {', '.join(sorted(known.values()))}",
            )
        found[known[name.lower()]] = value
    if {"maxFilesPerTrigger", "maxBytesPerTrigger"} <= found.keys():
        raise _error(
            subject,
            place,
            "maxFilesPerTrigger and maxBytesPerTrigger both say how large a batch is",
            "keep one of them",
        )
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _error(subject: str, place: Place, what: str, fix: str) -> DeclarationError:
    return DeclarationError(subject, str(place), what, fix=fix)
