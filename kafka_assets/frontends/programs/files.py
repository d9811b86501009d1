"""The readers of files, Auto Loader's among them, as sources: what of their options is kept.

What a reader says is here; its name in the graph is given in `inputs`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_assets.declarations import RESCUED, Read, file_source
from kafka_assets.declarations.files import FIXED, FORMATS, RESCUES
from kafka_assets.declarations.places import written_at
from kafka_assets.errors import DeclarationError
from kafka_assets.frontends import file_options
from kafka_assets.frontends.programs.asked import Asked
from kafka_assets.frontends.programs.ddl import refuse_constraints
from kafka_assets.frontends.programs.facts import FilesRead, Source
from kafka_assets.frontends.programs.registry import Registry
from kafka_assets.frontends.programs.unknown import MARK, refuse_unknown
from kafka_assets.schemas import FILES, from_ddl, to_ddl

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_FORMAT = f"{file_options.AUTO_LOADER}.format"
"""Not an option of the files' reader: it says which one reads them."""


def files(registry: Registry, asked: Asked) -> Source | None:
    """The folder of a reader of files; None when it was refused."""
    how: Read = "stream" if asked.streaming else "static"
    reader = _Files(registry, asked)
    path, format = reader.path(), reader.format()
    if path is None or format is None:
        return None
    if MARK in path:
        # Whoever is given this source refuses it.
        return Source(path, "files", how, asked.place)
    options, schema = reader.options(format), reader.schema(format, path)
    if reader.refused:
        return None
    options, limits = file_options.without_limits(options)
    if limits and not asked.streaming:
        registry.note(f"{', '.join(limits)} is not needed: all files are read", asked.place)
        limits = {}
    read = FilesRead(format, schema, tuple(sorted(options.items())), tuple(limits.items()))
    return Source(path, "files", how, asked.place, files=read)


class _Files:
    """What one reader says, looked at part by part.

    Args:
        registry: Takes up problems and notes.
        asked: What it says.

    Attributes:
        refused: Whether a part of it cannot be mapped.
    """

    def __init__(self, registry: Registry, asked: Asked) -> None:
        self._registry, self._asked = registry, asked
        self.refused = False

    def path(self) -> str | None:
        """The folder; None when there is none that can be read here."""
        path = self._asked.path
        if isinstance(path, list | tuple) and path:
            self._refuse(
                f"reads files of {len(path)} folders at once",
                "read each in a table or append_flow of its own, or one pattern such as /in/*",
            )
            return None
        if not isinstance(path, str) or not path:
            self._refuse("reads files and names no folder", 'write .load("/folder")')
            return None
        if path.lower().startswith("dbfs:"):
            self._refuse(
                f"reads the files at {path!r}, a place that exists only on Databricks",
                'take the path from spark.conf.get("..."), and give it: conf={...}',
            )
            return None
        return file_options.same_path(path)

    def format(self) -> str | None:
        """The files' format, as Spark calls it; None when it cannot be read."""
        named, what = self._asked.format, "the format of the files"
        if named.lower() == file_options.AUTO_LOADER:
            given = {name.lower(): value for name, value in self._asked.options.items()}
            named = given.get(_FORMAT, "")
        if refuse_unknown(self._registry, what, named, self._asked.place):
            return None
        found = {known.lower(): known for known in FORMATS}.get(named.lower())
        if found is None:
            self._refuse(
                f"reads files of the format {named!r}, which kafka_assets has no reader for"
                if named
                else "reads files, and cloudFiles.format is not set",
                f"formats are {', '.join(FORMATS)}",
            )
        return found

    def options(self, format: str) -> dict[str, str]:
        """The options that are kept; all others are noted or refused."""
        kept: dict[str, str] = {}
        for name, value in self._asked.options.items():
            if name.lower() == _FORMAT:
                continue
            answer = file_options.answer(name, value, format)
            if answer.kept is not None:
                kept |= self._kept(*answer.kept, format)
            elif answer.refused is not None:
                what, fix = answer.refused
                self._refuse(f"{name}={value!r}: {what}", fix)
            else:
                note = f"{name}={value!r} is not needed here: {answer.why}"
                self._registry.note(note, self._asked.place)
        unused = file_options.one_limit(kept)
        if unused is not None:
            self._registry.note(unused, self._asked.place)
        return kept

    def schema(self, format: str, path: str) -> str | None:
        """The columns as DDL, or a schema file's name; None for formats with their own."""
        given = self._asked.schema
        ddl = None if given is None else self._ddl(given, path, format)
        if format in FIXED:
            if ddl not in (None, FIXED[format]):
                self._refuse(
                    f"reads {format} files with the schema {ddl}",
                    f"remove it: {format} files have {FIXED[format]}",
                )
            return None
        if given is not None:
            return ddl
        self._registry.without_schema.add(path)
        ours = self._registry.schemas.get(path)
        if ours is None:
            self._refuse(
                f"reads the {format} files at {path!r} without a schema",
                f'give their columns: schemas={{"{path}": "id BIGINT, at TIMESTAMP"}}, or '
                f'--schema "{path}=id BIGINT, at TIMESTAMP"; a schema file\'s name will do',
            )
        elif not ours.endswith(FILES):
            return self._ddl(ours, path, format)
        return ours

    def _ddl(self, given: Any, path: str, format: str) -> str | None:
        """Columns as DDL in one form, so that two readers' can be compared."""
        from pyspark.sql.types import StructType

        what = f"the schema of the files at {path!r}"
        if isinstance(given, str) and refuse_unknown(
            self._registry, what, given, self._asked.place
        ):
            self.refused = True
            return None
        try:
            if isinstance(given, str):
                columns = from_ddl(Path("schema"), given)
                refuse_constraints(given)
                given = columns
            if not isinstance(given, StructType):
                raise ValueError(f"{type(given).__name__} is neither DDL nor a StructType")
            _check(given, format)
            ddl = to_ddl(given)
            if to_ddl(from_ddl(Path("schema"), ddl)) != ddl:
                raise ValueError(f"not all types of {ddl} are supported")
        except ValueError as error:
            self._refuse(f"{what}: {error}", "name columns with types, NOT NULL and COMMENT only")
            return None
        return ddl

    def _kept(self, name: str, value: str, format: str) -> dict[str, str]:
        if refuse_unknown(self._registry, name, value, self._asked.place):
            self.refused = True
            return {}
        try:
            # The declaration knows which options there are.
            with written_at(self._asked.place):
                made = file_source(
                    "files",
                    "files",
                    format=format,
                    schema=None if format in FIXED else "id INT",
                    options={name: value},
                )
        except DeclarationError as error:
            self._refuse(error.what.partition("): ")[2], error.fix or "remove it")
            return {}
        return dict(made.options)

    def _refuse(self, what: str, fix: str) -> None:
        self.refused = True
        self._registry.problem(what, fix, self._asked.place)


def _check(columns: StructType, format: str) -> None:
    """Refuse columns that no row can have here."""
    if not columns.fields:
        raise ValueError("it has no columns, as far as is known while the program is loaded")
    if format in RESCUES and "_corrupt_record" in columns.names:
        raise ValueError(
            f"the text of a row that does not fit is in {RESCUED}, not _corrupt_record"
        )
