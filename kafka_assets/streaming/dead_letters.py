"""Rows that do not make it into a table: which, why, and with which raw bytes.

It runs where the engine runs the batch, and is sent there by value: it imports only pyspark, the
standard library, and modules of the same kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_assets.streaming.isolation import LeftOut
from kafka_assets.streaming.spec import SMALL_BATCH, BatchSpec, Replaced

RECORD = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Columns of a dead letter that say which Kafka record it was; null when rows have no `_source`."""

AT = ["topic", "partition", "offset"]
RAW_COLUMNS = ["key", "value", "headers"]
PLACE = [*AT, "timestamp"]
IDENTITY = ["query_id", "batch_id", "topic", "partition", "offset", "row"]
"""What a letter is named after: a batch that is run again gives its letters the same names."""


def write_dead_letters(
    spec: BatchSpec,
    decoded: DataFrame | None,
    rows: DataFrame,
    left_out: LeftOut | None,
    counts: dict[str, Any],
    commit: dict[str, Any],
    replaced: Replaced | None = None,
) -> None:
    """Write the dead letters of a batch; a replayed batch replaces its own.

    Rows that are computed anew take the letters along that they had before.

    Args:
        spec: The table.
        decoded: Persisted rows with `_undecodable` and `_raw`; None for a table that does not
            decode.
        rows: What the function returned and breaks a rule, with `_dead` and `_broken_<i>`.
        left_out: Rows on which the function raises.
        counts: From `expectations.count`.
        commit: What the commit carries.
        replaced: Which letters the rows had before.
    """
    own = f"query_id = '{commit['query_id']}' AND batch_id = {commit['batch_id']}"
    gone = own if commit["batch_id"] == spec.replayed else None
    if replaced is not None and not _letters(spec, rows).filter(replaced.letters).isEmpty():
        gone = f"({own}) OR {replaced.letters}"
    if not letters_of(counts):
        if gone is not None:
            _commit(spec, _letters(spec, rows).limit(0), gone, commit)
        return
    with ExitStack() as held:
        letters = []
        if decoded is not None and counts["undecodable"]:
            letters.append(_undecodable_letters(spec, decoded))
        if counts["dead"]:
            letters.append(_rule_letters(spec, decoded, rows, counts, held))
        if left_out is not None:
            letters.append(_raising_letters(spec, left_out))
        stamped = _stamped(spec, reduce(DataFrame.unionByName, letters), commit)
        if replaced is not None and gone is not None:
            there = _letters(spec, rows).filter(replaced.letters)
            stamped = _with_names_of(there, stamped)
        if letters_of(counts) <= SMALL_BATCH:
            # A shuffle of few rows; coalesce would let one task look through the whole batch.
            stamped = stamped.repartition(1)
        _commit(spec, stamped, gone, commit)


def letters_of(counts: Mapping[str, Any]) -> int:
    """How many dead letters a batch with these counts has."""
    return int(counts["dead"]) + sum(int(counts.get(k) or 0) for k in ("undecodable", "raised"))


def letters_app_id(query_id: str) -> str:
    """The application id of the commits of a query's dead letters."""
    return f"{query_id}-letters"


def _letters(spec: BatchSpec, rows: DataFrame) -> DataFrame:
    """The letters that the table has."""
    return rows.sparkSession.read.format("delta").load(spec.dead_letters_path)


def _with_names_of(there: DataFrame, letters: DataFrame) -> DataFrame:
    """Letters of rows that were computed anew and came out the same keep their names.

    What was decided on one of them then holds, until the row is another or breaks other rules.
    """
    same = ["row", "failed_rules"]
    named = there.select(*same, F.col("letter_id").alias("named")).dropDuplicates(same)
    joined = letters.join(F.broadcast(named), same, "left")
    return joined.withColumn("letter_id", F.coalesce("named", "letter_id")).drop("named")


def _stamped(spec: BatchSpec, letters: DataFrame, commit: dict[str, Any]) -> DataFrame:
    """Letters with what they share: their batch, run, schema and name."""
    return letters.select(
        "*",
        F.lit(json.dumps(commit["offsets"])).alias("batch_offsets"),
        F.lit(commit["query_id"]).alias("query_id"),
        _constant(F.lit(commit["batch_id"]).cast("bigint")).alias("batch_id"),
        F.lit(spec.run_id).alias("run_id"),
        F.lit(spec.fingerprint).cast("string").alias("schema_fingerprint"),
        _constant(F.current_timestamp()).alias("died_at"),
    ).withColumn("letter_id", F.substring(F.sha2(F.concat_ws("|", *IDENTITY), 256), 1, 16))


def _constant(value: Column) -> Column:
    """A value that is the same for all rows of a batch and another in the next one.

    Out of an array, because Spark writes a number that stands alone into the code which it
    generates, and would compile that code anew for each batch.
    """
    return F.get(F.array(value), (F.spark_partition_id() < 0).cast("int"))


def _commit(spec: BatchSpec, letters: DataFrame, gone: str | None, commit: dict[str, Any]) -> None:
    """Add letters, in place of those for which a condition is true."""
    # Two versions for each batch: the second is for rows that turned out to raise.
    attempt = 2 * (commit["batch_id"] - spec.committed) + int(spec.again)
    writer = (
        letters.write.format("delta")
        .option("userMetadata", json.dumps(commit))
        .option("txnAppId", letters_app_id(commit["query_id"]))
        .option("txnVersion", spec.letters_version + attempt)
    )
    if gone is not None:
        writer = writer.mode("overwrite").option("replaceWhere", gone)
    else:
        writer = writer.mode("append")
    writer.save(spec.dead_letters_path)


def _undecodable_letters(spec: BatchSpec, decoded: DataFrame) -> DataFrame:
    explain = F.udf(spec.explain or _unexplained, "string")
    why = F.coalesce(explain(F.col("_raw")), F.lit("the payload does not decode"))
    return decoded.filter("_undecodable").select(
        F.col("_key").alias("key"),
        F.col("_raw").alias("value"),
        F.col("_headers").alias("headers"),
        F.col("_source.topic").alias("topic"),
        F.col("_source.partition").alias("partition"),
        F.col("_source.offset").alias("offset"),
        F.col("_source.timestamp").alias("timestamp"),
        F.array().cast("array<string>").alias("failed_rules"),
        why.alias("reason"),
        F.lit(None).cast("string").alias("row"),
    )


def _unexplained(_payload: bytes | None) -> None:
    """No reason is known."""


def _raising_letters(spec: BatchSpec, left_out: LeftOut) -> DataFrame:
    why = F.lit(None).cast("string")
    for one in left_out.why:
        told = F.lit(f"the function raised: {one.reason}")
        why = F.when(one.record.holds(spec.at), told).otherwise(why)
    carried = _carried(spec, left_out.rows)
    placed = left_out.rows.select(
        *[F.col(f"{spec.at}{name}").cast(RECORD[name]).alias(name) for name in (*AT, "timestamp")],
        F.array().cast("array<string>").alias("failed_rules"),
        why.alias("reason"),
        F.lit(None).cast("string").alias("row"),
        *[F.col(name).cast(RECORD[column]).alias(column) for column, name in carried.items()],
    )
    if carried:
        return placed
    offsets = [one.record.first for one in left_out.why]
    near = {"dead_offsets": [min(offsets), max(offsets)]}
    return _from_bronze(spec, placed, near, few=True)


def _carried(spec: BatchSpec, rows: DataFrame) -> dict[str, str]:
    """Columns in which given rows carry their record's bytes; none where bronze has them."""
    if spec.decodes:
        raw = {"key": "_key", "value": "_raw", "headers": "_headers"}
        return raw if spec.raw_path is None else {}
    are_records = not spec.at and set(RAW_COLUMNS) <= set(rows.columns)
    return {name: name for name in RAW_COLUMNS} if are_records else {}


def _rule_letters(
    spec: BatchSpec,
    decoded: DataFrame | None,
    rows: DataFrame,
    counts: dict[str, Any],
    held: ExitStack,
) -> DataFrame:
    drops = [(i, rule) for i, rule in enumerate(spec.rules) if rule.action == "drop"]
    names = [F.when(F.col(f"_broken_{i}"), F.lit(rule.name)) for i, rule in drops]
    why = [F.when(F.col(f"_broken_{i}"), F.lit(f"{rule.name}: {rule.text}")) for i, rule in drops]
    # The rows of a topic may be the records themselves.
    are_records = spec.keeps_records
    by_source = spec.has_source and not are_records
    dead = rows.filter("_dead").select(
        *(["_source.*"] if by_source else _columns(spec, RECORD if are_records else PLACE)),
        F.array_compact(F.array(*names)).alias("failed_rules"),
        F.concat_ws("; ", *why).alias("reason"),
        F.to_json(F.struct(*[F.col(f"`{c}`") for c in spec.columns])).alias("row"),
    )
    return dead if are_records else _with_record(spec, decoded, dead, counts, held)


def _columns(spec: BatchSpec, names: Iterable[str]) -> list[Column]:
    """Columns of a letter that say which record it was; null for rows that are no records.

    Results of an aggregate may have columns of these names as well.
    """
    needed = AT if spec.given is not None else RECORD
    known = set(spec.columns) if set(needed) <= set(spec.columns) else set()
    return [
        (F.col(name) if name in known else F.lit(None)).cast(RECORD[name]).alias(name)
        for name in names
    ]


def _with_record(
    spec: BatchSpec,
    decoded: DataFrame | None,
    placed: DataFrame,
    counts: dict[str, Any],
    held: ExitStack,
) -> DataFrame:
    """Add the raw record: from the batch where it has it, else from bronze by coordinates."""
    few = counts["dead"] <= SMALL_BATCH
    given, in_bronze = spec.given, spec.has_source and spec.raw_path is not None
    if given is not None and not in_bronze and _carried(spec, given):
        wanted = placed.select(*AT).distinct()
        records = given.join(F.broadcast(wanted) if few else wanted, AT, "left_semi")
        # A table upstream may have several rows of a record.
        return _joined(placed.drop("timestamp"), records.dropDuplicates(AT), few)
    if decoded is None:
        return _from_bronze(spec, placed, counts, few)
    carried = decoded.filter("_raw IS NOT NULL AND NOT _undecodable").select(
        *[f"_source.{name}" for name in AT],
        F.col("_key").alias("key"),
        F.col("_raw").alias("value"),
        F.col("_headers").alias("headers"),
    )
    found = placed.join(F.broadcast(carried) if few else carried, AT, "left")
    if spec.raw_path is None:
        return found
    found = found.persist()
    held.callback(found.unpersist)
    missing = found.filter("value IS NULL").drop(*RAW_COLUMNS)
    if missing.isEmpty():
        return found
    return found.filter("value IS NOT NULL").unionByName(_from_bronze(spec, missing, counts, few))


def _from_bronze(
    spec: BatchSpec, placed: DataFrame, counts: dict[str, Any], few: bool
) -> DataFrame:
    first, last = counts["dead_offsets"]
    if spec.raw_path is None or first is None:
        return placed.select("*", *[F.lit(None).cast(RECORD[c]).alias(c) for c in RAW_COLUMNS])
    bronze = placed.sparkSession.read.format("delta").load(spec.raw_path)
    near = bronze.filter(F.col("offset").between(first, last))
    if few:
        near = near.join(F.broadcast(placed.select(*AT).distinct()), AT, "left_semi")
    return _joined(placed, near, few)


def _joined(placed: DataFrame, records: DataFrame, few: bool) -> DataFrame:
    """Letters with what they do not have yet of their records, which they name by `AT`."""
    more = [name for name in RECORD if name not in placed.columns]
    raw = records.select(*AT, *[F.col(name).cast(RECORD[name]).alias(name) for name in more])
    return placed.join(F.broadcast(raw) if few else raw, AT, "left")
