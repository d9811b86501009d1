"""Schema files: find them, load them, fingerprint them.

A schema file holds the payload's Spark schema, as Spark's own JSON (`.json`, what
`StructType.json()` writes) or as DDL (`.ddl` or `.sql`, such as `id BIGINT NOT NULL, name STRING`).
Loading needs no Spark session, and neither does writing columns as DDL. How bytes become columns
is `decoding`'s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import sqlglot
from pyspark.sql import types as T
from sqlglot import exp
from sqlglot.errors import SqlglotError

_SIMPLE: dict[str, T.DataType] = {
    "BOOLEAN": T.BooleanType(),
    "TINYINT": T.ByteType(),
    "SMALLINT": T.ShortType(),
    "INT": T.IntegerType(),
    "BIGINT": T.LongType(),
    "FLOAT": T.FloatType(),
    "DOUBLE": T.DoubleType(),
    "TEXT": T.StringType(),
    "BINARY": T.BinaryType(),
    "VARBINARY": T.BinaryType(),
    "DATE": T.DateType(),
    "TIMESTAMP": T.TimestampType(),
    "TIMESTAMPTZ": T.TimestampType(),
    "TIMESTAMPLTZ": T.TimestampType(),
    "TIMESTAMPNTZ": T.TimestampNTZType(),
}

MOST_DIGITS = 38

FILES = (".json", ".ddl", ".sql")
"""How the name of a schema file ends."""


def find_schema(name: str, folders: Iterable[Path]) -> Path:
    """Find a schema file by its name.

    Args:
        name: The file's name, as given in `schema=`.
        folders: Where to look, in order.

    Raises:
        ValueError: The name leads out of the folders, or no folder has the file.
    """
    searched = tuple(dict.fromkeys(folders))
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError("a schema file is named relative to the schemas folder")
    for folder in searched:
        if (folder / name).is_file():
            return folder / name
    raise ValueError(f"there is no such file in {', '.join(str(f) for f in searched)}")


def load_schema(path: Path) -> T.StructType:
    """Load a schema file.

    Args:
        path: A `.json`, `.ddl` or `.sql` file.

    Returns:
        The payload's schema. A field that is not nullable is required.

    Raises:
        ValueError: The file cannot be read as a schema, has no fields, or has a field whose name
            begins with an underscore (these are the product's) or stands there twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as UTF-8: {error}") from None
    if path.suffix == ".json":
        schema = _from_json(path, text)
    elif path.suffix in (".ddl", ".sql"):
        schema = from_ddl(path, text)
    else:
        raise ValueError(f"{path}: a schema file ends in .json, .ddl or .sql")
    _check(path, schema)
    return schema


def fingerprint(schema: T.StructType) -> str:
    """A short stable name of a schema's content: the first 12 hex digits of a SHA-256."""
    return hashlib.sha256(schema.json().encode()).hexdigest()[:12]


def _from_json(path: Path, text: str) -> T.StructType:
    try:
        return T.StructType.fromJson(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except Exception as error:
        raise ValueError(f"{path}: not a Spark schema: {type(error).__name__} {error}") from None


def from_ddl(path: Path, text: str) -> T.StructType:
    """Columns of a table's DDL, such as `id BIGINT NOT NULL, name STRING`, without Spark.

    Args:
        path: Where the text comes from, for messages.
        text: The columns.

    Raises:
        ValueError: It is no DDL, or has a type that is not supported.
    """
    try:
        table = sqlglot.parse_one(f"CREATE TABLE t (\n{text}\n)", dialect="spark")
    except SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        line = int(details[0].get("line") or 2) - 1
        raise ValueError(
            f"{path}:{line}: not DDL: {details[0].get('description', error)}"
        ) from None
    columns = table.this.expressions if isinstance(table.this, exp.Schema) else []
    return T.StructType([_field(path, column) for column in columns])


def to_ddl(schema: T.StructType) -> str:
    """Columns as DDL, as `from_ddl` reads them; whether an array may hold null is not said."""
    return ", ".join(f"{_quoted(field.name)} {_ddl(field)}" for field in schema.fields)


def _ddl(field: T.StructField) -> str:
    comment = (field.metadata or {}).get("comment")
    required = "" if field.nullable else " NOT NULL"
    if comment is None:
        return _ddl_type(field.dataType) + required
    text = str(comment).replace("\\", "\\\\").replace("'", "\\'")
    return f"{_ddl_type(field.dataType)}{required} COMMENT '{text}'"


def _ddl_type(kind: T.DataType) -> str:
    if isinstance(kind, T.StructType):
        inner = ", ".join(f"{_quoted(field.name)}: {_ddl(field)}" for field in kind.fields)
        return f"STRUCT<{inner}>"
    if isinstance(kind, T.ArrayType):
        return f"ARRAY<{_ddl_type(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"MAP<{_ddl_type(kind.keyType)}, {_ddl_type(kind.valueType)}>"
    return kind.simpleString().upper()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _field(path: Path, column: exp.Expression) -> T.StructField:
    if not isinstance(column, exp.ColumnDef) or column.args.get("kind") is None:
        raise ValueError(f"{path}: {column.sql(dialect='spark')!r} is no column with a type")
    constraints = [c.args.get("kind") for c in column.args.get("constraints") or []]
    required = any(isinstance(c, exp.NotNullColumnConstraint) for c in constraints)
    comments = [c.this.this for c in constraints if isinstance(c, exp.CommentColumnConstraint)]
    metadata = {"comment": comments[0]} if comments else {}
    return T.StructField(column.name, _type(path, column.args["kind"]), not required, metadata)


def _type(path: Path, kind: exp.Expression) -> T.DataType:
    name = kind.this.name if isinstance(kind, exp.DataType) else str(kind)
    arguments = kind.expressions
    if name in ("DECIMAL",):
        sizes = [int(size.name) for size in arguments] or [10, 0]
        precision, scale = sizes[0], sizes[1] if len(sizes) > 1 else 0
        if not 0 <= scale <= precision <= MOST_DIGITS or precision == 0:
            raise ValueError(
                f"{path}: DECIMAL({precision}, {scale}): Spark has 1 to {MOST_DIGITS} digits, and "
                "at most all of them behind the point"
            )
        return T.DecimalType(precision, scale)
    wanted = {"ARRAY": 1, "LIST": 1, "MAP": 2}.get(name)
    if wanted is not None and len(arguments) != wanted:
        written = kind.sql(dialect="spark")
        raise ValueError(f"{path}: {written!r} needs {wanted} types in < >, such as STRING")
    if name in ("ARRAY", "LIST"):
        return T.ArrayType(_type(path, arguments[0]))
    if name == "MAP":
        return T.MapType(_type(path, arguments[0]), _type(path, arguments[1]))
    if name == "STRUCT":
        return T.StructType([_field(path, field) for field in arguments])
    if name in _SIMPLE:
        return _SIMPLE[name]
    raise ValueError(f"{path}: type {kind.sql(dialect='spark')!r} is not supported")


def _check(path: Path, schema: T.StructType) -> None:
    if not schema.fields:
        raise ValueError(f"{path}: has no fields")
    seen: set[str] = set()
    for name in schema.fieldNames():
        if name.startswith("_"):
            raise ValueError(f"{path}: field {name!r}: names that begin with _ are reserved")
        if name.lower() in seen:
            raise ValueError(f"{path}: field {name!r} stands there twice (case does not count)")
        seen.add(name.lower())
