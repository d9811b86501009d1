"""How a Delta table of the lake comes to be, and how it gets further columns.

Tables are made with deltalake: a commit of a few milliseconds where Spark takes most of a second.
Further columns are added by SQL, which classic sessions and Spark Connect share. What a table holds
and how it changes belongs to `tables`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, Schema

from kafka_assets.declarations import TableOptions
from kafka_assets.declarations.computed import QUOTED
from kafka_assets.errors import LakeError
from kafka_assets.streaming.tables import CONSTRAINT, LakeTable, first_line, sql_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PROPERTIES = {
    # Other readers (deltalake, DuckDB, pandas) know neither of these features.
    "delta.enableDeletionVectors": "false",
    "delta.checkpointPolicy": "classic",
}


def _array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def _struct(*fields: tuple[str, Any, str]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": name,
                "type": kind,
                "nullable": True,
                "metadata": {"comment": comment} if comment else {},
            }
            for name, kind, comment in fields
        ],
    }


LETTERS = _struct(
    ("letter_id", "string", "Names the letter; equal letters of one batch share it."),
    ("key", "binary", "Key of the Kafka record, as it was."),
    ("value", "binary", "Value of the Kafka record, as it was."),
    (
        "headers",
        _array(_struct(("key", "string", ""), ("value", "binary", ""))),
        "Headers of the Kafka record.",
    ),
    ("topic", "string", "Where the record came from."),
    ("partition", "integer", "Where the record came from."),
    ("offset", "long", "Where the record came from."),
    ("timestamp", "timestamp", "Timestamp of the Kafka record."),
    ("failed_rules", _array("string"), "Rules that the row broke; empty when undecodable."),
    ("reason", "string", "Why the row is here."),
    ("row", "string", "The row as JSON; null when undecodable."),
    ("batch_offsets", "string", "End offsets of the batch."),
    ("query_id", "string", "Checkpoint that the batch belongs to."),
    ("batch_id", "long", "The batch in that checkpoint."),
    ("run_id", "string", "Run that wrote the letter."),
    ("schema_fingerprint", "string", "Names the schema that the payload was decoded with."),
    ("died_at", "timestamp", "When the letter was written."),
)
"""Columns of every dead-letter table, in Delta's JSON form."""


def ensure_table(
    session: SparkSession,
    path: str,
    schema: StructType,
    *,
    name: str,
    properties: Mapping[str, str],
    comment: str | None,
    options: TableOptions | None = None,
) -> LakeTable:
    """Create a table with its schema, or widen it by new columns.

    Args:
        session: Where SQL runs.
        path: Where the table lies.
        schema: The columns that it must have.
        name: The table's name, for messages and its properties.
        properties: Recorded with the table.
        comment: Description.
        options: How it is laid out. What is changed in it later is changed in the table, but the
            partitions, which cannot be; what is declared no more stays.

    Returns:
        The table.

    Raises:
        LakeError: A column has another type than before, the layout cannot be had, or the path
            cannot be written.
    """
    options = options or TableOptions()
    existing = LakeTable.open(path)
    if existing is None:
        columns = _plain(json.loads(schema.json()))
        _add_comments(columns, options, name)
        what = f"table {name!r}"
        parts = options.partition_by
        existing = _create(path, columns, {**properties, **PROPERTIES}, comment, what, parts)
        return _laid_out(session, existing, options, name)
    if tuple(existing.partition_columns) != options.partition_by:
        raise LakeError(
            f"table {name!r} at {path} is parted by {existing.partition_columns or 'nothing'}, and "
            f"partition_by= says {list(options.partition_by) or 'nothing'}; nothing was changed",
            fix=f"write partition_by= as it was, or kafka-assets reset {name} after moving the "
            "table's folder away",
        )
    existing = _widen(session, existing, schema, name)
    existing = _described(session, existing, properties, comment, options)
    return _laid_out(session, existing, options, name)


def set_property(session: SparkSession, path: str, name: str, value: str) -> None:
    """Set a table property; by SQL, which also writes tables with features of newer Deltas."""
    pair = f"{sql_text(name)} = {sql_text(value)}"
    session.sql(f"ALTER TABLE delta.`{_escaped(path)}` SET TBLPROPERTIES ({pair})")


def _described(
    session: SparkSession,
    table: LakeTable,
    properties: Mapping[str, str],
    comment: str | None,
    options: TableOptions,
) -> LakeTable:
    """Bring properties and comments up to what is declared; of a table that was made here."""
    if "kafka_assets.table" not in table.properties:
        # A sink may be somebody else's table.
        return table
    quoted = f"delta.`{_escaped(table.path)}`"
    has = {name.lower(): value for name, value in table.properties.items()}
    new = {name: value for name, value in properties.items() if has.get(name.lower()) != value}
    changes = []
    if new:
        pairs = ", ".join(f"{sql_text(name)} = {sql_text(value)}" for name, value in new.items())
        changes.append(f"ALTER TABLE {quoted} SET TBLPROPERTIES ({pairs})")
    if comment is not None and comment != table.comment:
        changes.append(f"COMMENT ON TABLE {quoted} IS {sql_text(comment)}")
    changes += [
        f"ALTER TABLE {quoted} ALTER COLUMN `{_escaped(column)}` COMMENT {sql_text(about)}"
        for column, about in options.column_comments.items()
        if table.column_comments.get(column) != about
    ]
    for change in changes:
        session.sql(change)
    return LakeTable.existing(table.path) if changes else table


def _laid_out(
    session: SparkSession, table: LakeTable, options: TableOptions, name: str
) -> LakeTable:
    return _constrain(session, _cluster(session, table, options, name), options, name)


def _constrain(
    session: SparkSession, table: LakeTable, options: TableOptions, name: str
) -> LakeTable:
    """Add constraints that the table does not have, and change those that say something else.

    One that is no longer declared stays: it may be somebody else's.
    """
    has = {
        key.removeprefix(CONSTRAINT): value
        for key, value in table.properties.items()
        if key.startswith(CONSTRAINT)
    }
    new = {
        key: text
        for key, text in options.constraints.items()
        if key not in has or _bare(has[key]) != _bare(text)
    }
    quoted = f"delta.`{_escaped(table.path)}`"
    for constraint, condition in new.items():
        add = f"ALTER TABLE {quoted} ADD CONSTRAINT `{constraint}` CHECK "
        dropped = False
        try:
            if constraint in has:
                session.sql(f"ALTER TABLE {quoted} DROP CONSTRAINT `{constraint}`")
                dropped = True
            session.sql(f"{add}({condition})")
        except Exception as error:
            if dropped:
                session.sql(f"{add}({has[constraint]})")
            raise LakeError(
                f"table {name!r} at {table.path} cannot have the constraint {constraint!r} "
                f"({condition}): {first_line(error)}",
                fix="correct constraints=, or the rows that break it: kafka-assets reset "
                f"{name} computes them again",
            ) from error
    return LakeTable.existing(table.path) if new else table


def _bare(condition: str) -> str:
    """A condition without the spaces that Delta puts between all of its words and signs."""
    parts = QUOTED.split(condition), [*QUOTED.findall(condition), ""]
    return "".join("".join(plain.split()) + quoted for plain, quoted in zip(*parts, strict=True))


def _cluster(
    session: SparkSession, table: LakeTable, options: TableOptions, name: str
) -> LakeTable:
    if not options.cluster_by:
        return table
    quoted = f"delta.`{_escaped(table.path)}`"
    columns = ", ".join(f"`{_escaped(column)}`" for column in options.cluster_by)
    try:
        has = session.sql(f"DESCRIBE DETAIL {quoted}").collect()[0]["clusteringColumns"]
        if tuple(has) == options.cluster_by:
            return table
        session.sql(f"ALTER TABLE {quoted} CLUSTER BY ({columns})")
    except Exception as error:
        raise LakeError(
            f"table {name!r} at {table.path} cannot be clustered by "
            f"{', '.join(options.cluster_by)}: {first_line(error)}",
            fix="use columns of the table that have statistics: the first 32, of simple types",
        ) from error
    return LakeTable.existing(table.path)


def _add_comments(columns: Mapping[str, Any], options: TableOptions, name: str) -> None:
    by_name = {field["name"]: field for field in columns["fields"]}
    for column, comment in options.column_comments.items():
        if column not in by_name:
            raise LakeError(
                f"table {name!r}: column_comments= names {column!r}, which is no column of it",
                fix=f"use one of {', '.join(by_name)}",
            )
        by_name[column]["metadata"] = {"comment": comment}


def ensure_letters(path: str, table: str) -> LakeTable:
    """Create the dead-letter table of a table, or find it.

    Raises:
        LakeError: The path cannot be written.
    """
    properties = {"kafka_assets.table": table, "kafka_assets.layer": "dlq", **PROPERTIES}
    comment = f"Rows that did not make it into {table}, with their raw bytes and the reason."
    return LakeTable.open(path) or _create(
        path, LETTERS, properties, comment, f"the table of dead letters of {table!r}"
    )


def ensure_bookkeeping(path: str, fields: Iterable[tuple[str, str]]) -> LakeTable:
    """Create a table of our own records about tables, or find it.

    Args:
        path: Where it lies.
        fields: Name and type of each column: `string`, `long` or `timestamp`.

    Raises:
        LakeError: The path cannot be written.
    """
    columns = _struct(*[(name, kind, "") for name, kind in fields])
    return LakeTable.open(path) or _create(path, columns, {}, None, "our table")


def _create(
    path: str,
    columns: Mapping[str, Any],
    properties: Mapping[str, str],
    comment: str | None,
    what: str,
    partition_by: tuple[str, ...] = (),
) -> LakeTable:
    try:
        DeltaTable.create(
            path,
            Schema.from_json(json.dumps(columns)),
            # Somebody else may make it at this moment.
            mode="ignore",
            partition_by=list(partition_by) or None,
            description=comment,
            configuration=dict(properties),
            # Delta's own readers know more properties than deltalake does.
            raise_if_key_not_exists=False,
        )
    except Exception as error:
        raise LakeError(
            f"{what} cannot be created at {path}: {first_line(error)}",
            fix="make the lake writable, or set KAFKA_ASSETS_LAKE to a place that is",
        ) from error
    return LakeTable.existing(path)


def _plain(kind: Any) -> Any:
    """A type without what Spark knows about nulls and adds about columns: comments alone stay."""
    if isinstance(kind, list):
        return [_plain(one) for one in kind]
    if not isinstance(kind, dict):
        return kind
    plain = {key: _plain(value) for key, value in kind.items() if key != "metadata"}
    for nullable in ("nullable", "containsNull", "valueContainsNull"):
        if nullable in plain:
            plain[nullable] = True
    if "nullable" in plain:
        about = (kind.get("metadata") or {}).get("comment")
        plain["metadata"] = {"comment": about} if about else {}
    return plain


def _widen(session: SparkSession, table: LakeTable, schema: StructType, name: str) -> LakeTable:
    has = {column.lower(): kind for column, kind in table.columns.items()}
    new = [f for f in schema.fields if f.name.lower() not in has]
    for f in schema.fields:
        before = has.get(f.name.lower(), f.dataType.simpleString())
        if before != f.dataType.simpleString():
            raise LakeError(
                f"table {name!r} at {table.path} has {f.name} {before}, its function now returns "
                f"{f.name} {f.dataType.simpleString()}; nothing was changed",
                fix="cast the column back, or give it another name",
            )
    if not new:
        return table
    columns = ", ".join(_column(f) for f in new)
    session.sql(f"ALTER TABLE delta.`{_escaped(table.path)}` ADD COLUMNS ({columns})")
    return LakeTable.existing(table.path)


def _column(field: Any) -> str:
    comment = (field.metadata or {}).get("comment")
    about = f" COMMENT {sql_text(comment)}" if comment else ""
    return f"`{_escaped(field.name)}` {_type(field.dataType)}{about}"


def _type(kind: Any) -> str:
    """A type in SQL; its fields may have any name."""
    match kind.typeName():
        case "struct":
            fields = [f"`{_escaped(f.name)}`: {_type(f.dataType)}" for f in kind.fields]
            return f"STRUCT<{', '.join(fields)}>"
        case "array":
            return f"ARRAY<{_type(kind.elementType)}>"
        case "map":
            return f"MAP<{_type(kind.keyType)}, {_type(kind.valueType)}>"
    return str(kind.simpleString())


def _escaped(name: str) -> str:
    return name.replace("`", "``")
