"""What Auto Loader and `read_files` can be told about files, and what becomes of it here.

Names are compared in small letters and without `cloudFiles.`. Options of Spark's own readers are
`declarations.files`' to know; how an option is written is each frontend's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafka_assets.declarations.files import RESCUED, RESCUES
from kafka_assets.declarations.model import FileSource

AUTO_LOADER = "cloudfiles"

_SAID = "the schema says which columns there are"
_NOT_NEEDED: Mapping[str, str] = {
    "schemalocation": _SAID,
    "schemahints": _SAID,
    "infercolumntypes": _SAID,
    "schemaevolutionmode": f"{_SAID}, and no others are read",
    "usenotifications": "each run lists the folder",
    "inferschema": _SAID,
    "mergeschema": _SAID,
    "samplingratio": _SAID,
    "primitivesasstring": _SAID,
    "prefersdecimal": _SAID,
}
"""Options that say how to find files, or how to guess a schema, and why nothing needs them."""

_ONLY: Mapping[str, tuple[str, str, str]] = {
    "includeexistingfiles": (
        "true",
        "a table has the rows of all files that are there",
        "remove it, and filter by _metadata.file_modification_time",
    ),
    "allowoverwrites": (
        "false",
        "each file is read once",
        "remove it, and write changed rows into new files",
    ),
    "mode": (
        "permissive",
        "rows that do not fit are kept",
        f"remove it, and use an expectation such as {RESCUED} IS NULL",
    ),
    "rescueddatacolumn": (
        RESCUED,
        f"the column {RESCUED!r} is always there",
        f"name it {RESCUED!r}",
    ),
}
"""Option -> its one value here, why, and what to do instead of another."""

_LIMITS = {
    "maxfilespertrigger": "maxFilesPerTrigger",
    "maxbytespertrigger": "maxBytesPerTrigger",
}


@dataclass(frozen=True)
class Answer:
    """What becomes of one option; one of the three is given.

    Attributes:
        kept: Name and value as Spark's reader has them.
        why: Why nothing needs it here.
        refused: What is wrong with its value, and what to do.
    """

    kept: tuple[str, str] | None = None
    why: str | None = None
    refused: tuple[str, str] | None = None


def answer(name: str, value: str, format: str) -> Answer:
    """What becomes of an option of files of this format; Spark's own readers' are kept."""
    low = plain(name)
    if low in _NOT_NEEDED:
        return Answer(why=_NOT_NEEDED[low])
    if low not in _ONLY:
        return Answer(kept=_limit(low, value) or (name, value))
    only, why, fix = _ONLY[low]
    if low == "rescueddatacolumn" and format.lower() not in RESCUES:
        nothing = f"{format} files have no such column here"
        return Answer(refused=(nothing, "remove it: a file that does not fit stops the run"))
    if value.lower() != only:
        return Answer(refused=(why, fix))
    return Answer(why=why)


def same_path(path: str) -> str:
    """A path in the one form by which it is compared."""
    return path.rstrip("/") or path[:1]


def bare(name: str) -> str:
    """An option's name without `cloudFiles.`."""
    prefix = f"{AUTO_LOADER}."
    return name[len(prefix) :] if name.lower().startswith(prefix) else name


def plain(name: str) -> str:
    """An option's name in the form by which it is looked up."""
    return bare(name).lower()


def _limit(low: str, value: str) -> tuple[str, str] | None:
    """Name and value of a limit of batches as Spark has it; None for any other option."""
    if low not in _LIMITS:
        return None
    found = re.fullmatch(r"(\d+)\s*([kmgt])b?", value.strip().lower())
    if low == "maxbytespertrigger" and found is not None:
        value = str(int(found[1]) << 10 * " kmgt".index(found[2]))
    return _LIMITS[low], value


def without_limits(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options that say how files are read, and those that say how much a batch reads."""
    limits = {name: value for name, value in options.items() if name.lower() in _LIMITS}
    return {name: value for name, value in options.items() if name not in limits}, limits


def limited(made: FileSource, limits: Mapping[str, str]) -> FileSource | None:
    """A source with the limits that one more reader says; None when another has said others.

    Only a stream has limits of its batches: who reads the files as they are says none.
    """
    before = without_limits(made.options)[1]
    if not limits or limits == before:
        return made
    return None if before else replace(made, options={**made.options, **limits})


def one_limit(options: dict[str, str]) -> str | None:
    """Leave one limit of batches, as Spark does where Auto Loader takes two; gives a note of it."""
    by_low = {name.lower(): name for name in options}
    if not set(_LIMITS) <= by_low.keys():
        return None
    value = options.pop(by_low["maxbytespertrigger"])
    return f"maxBytesPerTrigger={value!r} is not used beside maxFilesPerTrigger"
