"""What a table is that changes were applied to: its present rows, or all their states.

`fold` is a pure function from all changes of some keys to the rows that follow from them, whatever
the order in which they came; `run_changes` is the micro-batch that applies it. Sent by value to
Spark Connect servers, as `batch` is, and under the same rules.

The columns `__START_AT` and `__END_AT`, and what a delete and a truncate do, follow Databricks'
documentation of AUTO CDC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kafka_assets.streaming import batch
from kafka_assets.streaming.expectations import checked
from kafka_assets.streaming.merge import REMOVE, comparable, merge, same
from kafka_assets.streaming.spec import BatchSpec, Through

START, END = "__START_AT", "__END_AT"
UNSEQUENCED = "unsequenced"
"""What a commit calls the number of changes that were passed over: their sequence value is null."""
OWN = ("_source", "_key", "_headers", "_tombstone")
"""Columns that say where a change came from; a target has them only when they are asked for."""


@dataclass(frozen=True)
class Folding:
    """How changes are applied; the attributes are those of `declarations.Changes`."""

    keys: tuple[str, ...]
    sequence_by: str
    deletes: str | None
    truncates: str | None
    columns: tuple[str, ...] | None
    except_columns: tuple[str, ...]
    ignore_nulls: bool
    scd_type: int
    track: tuple[str, ...] | None
    track_except: tuple[str, ...]

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that say which row of the target is meant."""
        return self.keys if self.scd_type == 1 else (*self.keys, START)


@dataclass(frozen=True)
class ChangesSpec:
    """What a batch of a table with changes needs beside the table's own `BatchSpec`.

    Attributes:
        table: How and where results are written.
        source_path: The Delta table that has the changes.
        folding: How they are applied.
        through: The views that the source is read through.
    """

    table: BatchSpec
    source_path: str
    folding: Folding
    through: Through = field(default_factory=Through)


def run_changes(spec: ChangesSpec, frame: DataFrame, batch_id: int) -> None:
    """Work out the rows of the keys that a batch touches, and write those that differ.

    Args:
        spec: The table.
        frame: The batch's new changes.
        batch_id: Number of the batch in its checkpoint.

    Raises:
        batch.BatchRefused: A fail rule is broken; nothing was committed.
    """
    if batch_id <= spec.table.committed:
        return
    session, how = frame.sparkSession, spec.folding
    who = batch.identity(session, spec.table.checkpoint, batch_id)
    version = batch.latest_version(session, spec.source_path)
    source = session.read.format("delta").option("versionAsOf", version).load(spec.source_path)
    every = spec.through(source)
    there = session.read.format("delta").load(spec.table.path)
    touched = _touched(frame, how).persist()
    try:
        unsequenced = touched.agg(F.sum(UNSEQUENCED)).collect()[0][0] or 0
        clears = how.truncates is not None and not frame.filter(F.expr(how.truncates)).isEmpty()
        if not clears:
            every = _of_keys(every, touched, how).unionByName(_clearing(every, touched, how))
            there = _of_keys(there, touched, how)
        batch.write_batch(
            spec.table,
            checked(spec.table, fold(every, how)),
            who,
            extra={"upstream_version": version, UNSEQUENCED: unsequenced},
            write=partial(_write, spec, there),
        )
    finally:
        touched.unpersist()


def _touched(frame: DataFrame, how: Folding) -> DataFrame:
    """The keys of a batch, with how many changes of each have no place in the order."""
    keys = [F.col(f"`{key}`") for key in how.keys]
    lost = F.expr(how.sequence_by).isNull().cast("bigint").alias(UNSEQUENCED)
    return frame.select(*keys, lost).groupBy(*keys).agg(F.sum(UNSEQUENCED).alias(UNSEQUENCED))


def _of_keys(rows: DataFrame, touched: DataFrame, how: Folding) -> DataFrame:
    keys = touched.alias("t")
    return rows.alias("r").join(keys, same("r", "t", how.keys), "left_semi")


def _clearing(every: DataFrame, touched: DataFrame, how: Folding) -> DataFrame:
    """Earlier changes of other keys that cleared the table: they concern these keys too."""
    if how.truncates is None:
        return every.limit(0)
    clears = every.filter(F.coalesce(F.expr(how.truncates), F.lit(False)))
    keys = touched.alias("t")
    return clears.alias("r").join(keys, same("r", "t", how.keys), "left_anti")


def _write(spec: ChangesSpec, there: DataFrame, rows: DataFrame, commit: dict[str, Any]) -> None:
    how = spec.folding
    columns = tuple(spec.table.columns)
    new = rows.select(*[F.col(f"`{c}`") for c in columns])
    unchanged = there.select(*[F.col(f"`{c}`") for c in columns])
    types = {field.name: field.dataType for field in new.schema.fields}
    equal = same("n", "o", columns, types)
    differing = new.alias("n").join(unchanged.alias("o"), equal, "left_anti")
    gone = unchanged.alias("o").join(new.alias("n"), same("o", "n", how.identity), "left_anti")
    changed = differing.withColumn(REMOVE, F.lit(False)).unionByName(
        gone.withColumn(REMOVE, F.lit(True))
    )
    changed = changed.persist()
    try:
        found = {row[REMOVE]: row["count"] for row in changed.groupBy(REMOVE).count().collect()}
        counts = commit["counts"]
        counts["unchanged"] = counts["returned"] - found.get(False, 0)
        counts["removed"] = found.get(True, 0)
        merge(spec.table.path, changed, how.identity, commit)
    finally:
        changed.unpersist()


def fold(changes: DataFrame, how: Folding) -> DataFrame:
    """The rows that follow from changes, in whatever order they came.

    Args:
        changes: All changes of some keys, and all that clear the table.
        how: How they are applied.

    Returns:
        For type 1 one row a key, for type 2 one row a state, with `__START_AT` and `__END_AT`.
    """
    kept = [name for name in changes.columns if name in _target_columns(changes, how)]
    values = [name for name in kept if name not in how.keys]
    ordered = _ordered(changes, how)
    if how.scd_type == 1:
        return _present(ordered, how, kept, values)
    return _states(ordered, how, kept, values)


def _target_columns(changes: DataFrame, how: Folding) -> set[str]:
    if how.columns is not None:
        return {*how.columns, *how.keys}
    return {
        name
        for name in changes.columns
        if name in how.keys or (name not in how.except_columns and name not in OWN)
    }


def _ordered(changes: DataFrame, how: Folding) -> DataFrame:
    """Add `_seq`, `_at` (a total order), `_gone`, and leave out changes without a sequence."""
    columns = changes.columns
    if "_source" in columns:
        tie = F.struct("_source.topic", "_source.partition", "_source.offset")
    elif {"topic", "partition", "offset"} <= set(columns):
        tie = F.struct("topic", "partition", "offset")
    else:
        kinds = {f.name: f.dataType for f in changes.schema.fields if f.name not in OWN}
        tie = F.struct(F.xxhash64(*[comparable(F.col(f"`{c}`"), t) for c, t in kinds.items()]))
    gone = F.lit(False) if how.deletes is None else F.coalesce(F.expr(how.deletes), F.lit(False))
    rows = changes.withColumn("_seq", F.expr(how.sequence_by)).filter("_seq IS NOT NULL")
    rows = rows.withColumn("_at", F.struct("_seq", tie)).withColumn("_gone", gone)
    if how.truncates is None:
        return rows.withColumn("_cleared", F.lit(None).cast(rows.schema["_at"].dataType))
    clears = F.coalesce(F.expr(how.truncates), F.lit(False))
    rows = rows.withColumn("_clears", clears)
    last = rows.filter("_clears").agg(F.max("_at").alias("_cleared"))
    return rows.filter("NOT _clears").drop("_clears").crossJoin(last)


def _present(rows: DataFrame, how: Folding, kept: list[str], values: list[str]) -> DataFrame:
    keys = [F.col(f"`{key}`") for key in how.keys]
    by_key = Window.partitionBy(*keys)
    removed = F.max(F.when(F.col("_gone"), F.col("_at"))).over(by_key)
    alive = (
        rows.withColumn("_removed", removed)
        .filter("NOT _gone AND (_removed IS NULL OR _at > _removed)")
        .filter("_cleared IS NULL OR _at > _cleared")
    )
    if not how.ignore_nulls:
        latest = F.max_by(F.struct(*[F.col(f"`{c}`") for c in kept]), F.col("_at"))
        return alive.groupBy(*keys).agg(latest.alias("_row")).select("_row.*")
    latest_values = [
        F.max_by(F.col(f"`{c}`"), F.when(F.col(f"`{c}`").isNotNull(), F.col("_at"))).alias(c)
        for c in values
    ]
    if not latest_values:
        return alive.select(*keys).distinct()
    return alive.groupBy(*keys).agg(*latest_values).select(*[F.col(f"`{c}`") for c in kept])


def _states(rows: DataFrame, how: Folding, kept: list[str], values: list[str]) -> DataFrame:
    keys = [F.col(f"`{key}`") for key in how.keys]
    # Of changes with one sequence value the last counts.
    ties = Window.partitionBy(*keys, "_seq").orderBy(F.col("_at").desc())
    rows = rows.withColumn("_n", F.row_number().over(ties)).filter("_n = 1").drop("_n")
    order = Window.partitionBy(*keys).orderBy("_seq")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.withColumn("_next", F.lead("_seq").over(order)).withColumn(
        "_life", F.sum(F.col("_gone").cast("int")).over(so_far)
    )
    rows = rows.filter("NOT _gone")
    life = Window.partitionBy(*keys, "_life").orderBy("_seq")
    in_life = life.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    if how.ignore_nulls:
        for name in values:
            column = F.col(f"`{name}`")
            rows = rows.withColumn(name, F.last(column, ignorenulls=True).over(in_life))
    tracked = _tracked(how, values)
    values_of = [comparable(F.col(f"`{c}`"), rows.schema[c].dataType) for c in tracked]
    differs = [~value.eqNullSafe(F.lag(value).over(life)) for value in values_of]
    first = F.row_number().over(life) == 1
    begins = reduce(Column.__or__, differs, first)
    rows = rows.withColumn("_begins", begins.cast("int"))
    rows = rows.withColumn("_state", F.sum("_begins").over(in_life))
    latest = F.max_by(F.struct(*[F.col(f"`{c}`") for c in kept]), F.col("_seq"))
    states = rows.groupBy(*keys, "_life", "_state").agg(
        latest.alias("_row"),
        F.min("_seq").alias(START),
        F.max_by(F.col("_next"), F.col("_seq")).alias(END),
    )
    return states.select("_row.*", START, END)


def _tracked(how: Folding, values: list[str]) -> list[str]:
    """The columns whose change begins a new state: not those that only say when."""
    if how.track is not None:
        return [name for name in values if name in how.track]
    sequence = how.sequence_by.replace("`", "").strip()
    return [name for name in values if name not in how.track_except and name != sequence]
