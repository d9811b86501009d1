"""Updating and removing rows of a table by key, where the engine runs a batch.

Sent by value to Spark Connect servers, as `batch` is, and under the same rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

TXN_APP = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

REMOVE = "__remove"
"""Column of what is merged: the row of these keys is to be removed."""


def merge(path: str, rows: DataFrame, keys: tuple[str, ...], commit: dict[str, Any]) -> None:
    """Commit rows by key: those that are there are replaced, others are added.

    Args:
        path: Where the Delta table lies.
        rows: The rows, no two with the same keys, and a condition `__remove`.
        keys: The columns that say which row is meant; nulls are equal to each other.
        commit: What the commit carries, with `query_id` and `batch_id`, under which Delta knows
            whether it has the batch.
    """
    session = rows.sparkSession
    columns = [name for name in rows.columns if name != REMOVE]
    view = f"kafka_assets_merge_{commit['query_id']}_{commit['batch_id']}".replace("-", "_")
    on = " AND ".join(f"t.{_quoted(key)} <=> s.{_quoted(key)}" for key in keys)
    sets = ", ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in columns)
    names = ", ".join(_quoted(name) for name in columns)
    values = ", ".join(f"s.{_quoted(name)}" for name in columns)
    rows.createOrReplaceTempView(view)
    try:
        with _committing(session, commit):
            session.sql(_statement(path, view, on, sets, names, values))
    finally:
        session.catalog.dropTempView(view)


def same(
    left: str, right: str, names: tuple[str, ...], types: Mapping[str, DataType] | None = None
) -> Column:
    """Whether two aliased frames agree in columns; nulls are equal to each other.

    Args:
        left: The alias of one.
        right: The alias of the other.
        names: The columns.
        types: Types of columns that may hold maps.
    """
    equal = F.lit(True)
    for name in names:
        quoted, kind = _quoted(name), (types or {}).get(name)
        one, other = (comparable(F.col(f"{side}.{quoted}"), kind) for side in (left, right))
        equal = equal & one.eqNullSafe(other)
    return equal


def comparable(value: Column, kind: DataType | None) -> Column:
    """A value that is equal to another's when they are: Spark does not compare maps.

    Args:
        value: The value.
        kind: Its type; None when it holds no map.
    """
    if kind is None or not _holds_map(kind):
        return value
    if isinstance(kind, MapType):
        of = kind.valueType
        pairs = F.transform(
            F.map_entries(value),
            lambda pair: F.struct(pair["key"], comparable(pair["value"], of)),
        )
        return F.array_sort(pairs)
    if isinstance(kind, ArrayType):
        of = kind.elementType
        return F.transform(value, lambda element: comparable(element, of))
    fields = kind.fields if isinstance(kind, StructType) else []
    whole = F.struct(*[comparable(value[f.name], f.dataType).alias(f.name) for f in fields])
    return F.when(value.isNotNull(), whole)


def _holds_map(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _holds_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_holds_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType)


def _statement(path: str, view: str, on: str, sets: str, names: str, values: str) -> str:
    # Every name in it is quoted, and the view is ours.
    quoted = path.replace("`", "``")
    return (
        f"MERGE INTO delta.`{quoted}` t USING {view} s ON {on} "  # noqa: S608
        f"WHEN MATCHED AND s.{REMOVE} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND NOT s.{REMOVE} THEN INSERT ({names}) VALUES ({values})"
    )


@contextmanager
def _committing(session: SparkSession, commit: dict[str, Any]) -> Iterator[None]:
    """Let the next commit carry what identifies the batch: SQL takes it from the session."""
    confs = {
        TXN_APP: str(commit["query_id"]),
        TXN_VERSION: str(commit["batch_id"]),
        USER_METADATA: json.dumps(commit),
    }
    for name, value in confs.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in confs:
            session.conf.unset(name)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
