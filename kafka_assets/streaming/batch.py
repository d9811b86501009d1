"""One micro-batch of a table with rules or decoding, where the engine runs it.

On Spark Connect this code runs on the server, where the package is not importable: the module is
sent by value. So it imports only pyspark and the standard library, takes everything in one frozen
`BatchSpec`, and has two ways out: the commits it makes, and the message of the exception it raises.

The order of writing is what makes a batch exactly once. Dead letters go first, the table last, and
the table's commit decides the batch: a replayed batch that the table already has is left alone, one
that it does not have replaces its own dead letters and is then written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

MARK = "KAFKA_ASSETS_BATCH_REFUSED"
"""Stands before the JSON in the message of an exception that stops a batch on purpose."""

SMALL_BATCH = 200_000
"""Batches up to this many rows are written as one file; larger ones keep their parallelism."""

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


@dataclass(frozen=True)
class Rule:
    """An expectation as the batch needs it: SQL text, or a function that returns a Column."""

    name: str
    action: str
    condition: str | Callable[[], Column]

    @property
    def text(self) -> str:
        """The rule as a person reads it."""
        if isinstance(self.condition, str):
            return self.condition
        return f"{self.condition.__name__}()"

    def broken(self) -> Column:
        """True for a row that breaks the rule; NULL counts as broken."""
        kept = F.expr(self.condition) if isinstance(self.condition, str) else self.condition()
        return ~F.coalesce(kept, F.lit(False))


@dataclass(frozen=True)
class BatchSpec:
    """All that a batch needs to know.

    Attributes:
        table: The table's name.
        path: Where the Delta table lies.
        dead_letters_path: Where its dead letters lie; None when no row can die.
        checkpoint: Where the stream's checkpoint lies.
        run_id: Id of the run.
        code_version: Names the code that writes.
        fingerprint: Names the payload's schema; None when the table does not decode.
        rules: The expectations.
        columns: The table's columns, in order.
        decodes: The frame carries `_undecodable` and `_raw` beside the decoded columns.
        function: The author's function, when it has to run here: after undecodable rows left.
        raw_path: Bronze table that has the raw bytes of rows that die by a rule; None when the
            frame itself carries them in `_raw`, or when rows have no `_source`.
        has_source: Rows of the function's result carry `_source`.
        replayed: The batch that an earlier run began and did not finish, or -1.
        committed: The last batch that the table has, or -1.
        explain: Payload -> why it does not decode.
    """

    table: str
    path: str
    dead_letters_path: str | None
    checkpoint: str
    run_id: str
    code_version: str
    fingerprint: str | None
    rules: tuple[Rule, ...]
    columns: tuple[str, ...]
    decodes: bool
    function: Callable[[DataFrame], DataFrame] | None
    raw_path: str | None
    has_source: bool
    replayed: int = -1
    committed: int = -1
    explain: Callable[[bytes | None], str | None] | None = field(default=None, compare=False)


class BatchRefused(Exception):
    """A batch stopped before anything of it was committed."""

    def __init__(self, reason: str, details: dict[str, Any]) -> None:
        super().__init__(f"{MARK}{json.dumps({'reason': reason, **details})}{MARK}")


def run_batch(spec: BatchSpec, frame: DataFrame, batch_id: int) -> None:
    """Write one micro-batch: count, refuse or not, dead letters, table.

    Args:
        spec: The table and its rules.
        frame: The batch's rows.
        batch_id: Number of the batch in its checkpoint.

    Raises:
        BatchRefused: An `expect_or_fail` rule is broken; nothing of the batch was committed.
    """
    if batch_id <= spec.committed:
        return
    session = frame.sparkSession
    who = identity(session, spec.checkpoint, batch_id)
    if not spec.decodes:
        write_batch(spec, checked(spec, frame), who)
        return
    decoded = _narrow(spec, frame).persist()
    try:
        good = decoded.filter(~F.col("_undecodable")).drop("_undecodable", "_raw")
        returned = spec.function(good) if spec.function is not None else good
        write_batch(spec, checked(spec, returned), who, decoded=decoded)
    finally:
        decoded.unpersist()


def write_batch(
    spec: BatchSpec,
    rows: DataFrame,
    who: dict[str, Any],
    *,
    decoded: DataFrame | None = None,
    replace: str | None = None,
    extra: dict[str, Any] | None = None,
) -> None:
    """Count rows, refuse them or not, then write the dead letters and, last, the table.

    Args:
        spec: The table and its rules.
        rows: What the function returned, from `checked`.
        who: The batch's identity: query_id, batch_id, offsets.
        decoded: The persisted rows that the function was given, with `_undecodable` and `_raw`;
            None for a table that does not decode.
        replace: A SQL condition: the rows replace those of the table for which it is true. None
            appends.
        extra: Further figures for the commit.

    Raises:
        BatchRefused: A fail rule is broken, or rows lie outside of `replace`; nothing of the batch
            was committed.
    """
    persisted = rows.persist() if decoded is None else None
    try:
        counts = _count(spec, decoded, rows, replace)
        _refuse(spec, who, counts)
        commit = {
            **who,
            "run_id": spec.run_id,
            "code_version": spec.code_version,
            "counts": counts,
            **(extra or {}),
        }
        if spec.dead_letters_path is not None:
            _write_dead_letters(spec, decoded, rows, counts, commit)
        _write_table(spec, rows, replace, counts, commit)
    finally:
        if persisted is not None:
            persisted.unpersist()


def checked(spec: BatchSpec, returned: DataFrame) -> DataFrame:
    """Add `_broken_<i>` for each rule, and `_dead`: whether the row goes to the dead letters."""
    broken = [rule.broken().alias(f"_broken_{i}") for i, rule in enumerate(spec.rules)]
    dies = [F.col(f"_broken_{i}") for i, rule in enumerate(spec.rules) if rule.action == "drop"]
    with_rules = returned.select("*", *broken)
    return with_rules.withColumn("_dead", reduce(Column.__or__, dies, F.lit(False)))


def identity(session: SparkSession, checkpoint: str, batch_id: int) -> dict[str, Any]:
    """Which batch this is: the id of its query, its number, its end offsets.

    The query's id names all its batches' commits; the offsets are one value for each source.
    """
    return {
        "query_id": str(json.loads(_lines(session, f"{checkpoint}/metadata")[0])["id"]),
        "batch_id": batch_id,
        "offsets": [json.loads(end) for end in _lines(session, f"{checkpoint}/offsets/{batch_id}")[2:]],
    }


def _lines(session: SparkSession, path: str) -> list[str]:
    if "://" not in path:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    return [row.value for row in session.read.text(path).collect()]


def _narrow(spec: BatchSpec, frame: DataFrame) -> DataFrame:
    # Raw bytes are the bulk of a row; only undecodable rows need theirs where bronze has the rest.
    if spec.raw_path is None:
        return frame
    return frame.withColumn("_raw", F.when(F.col("_undecodable"), F.col("_raw")))


def _count(
    spec: BatchSpec, decoded: DataFrame | None, rows: DataFrame, replace: str | None
) -> dict[str, Any]:
    source = _coordinates("_source") if spec.has_source else F.lit(None)
    figures = [
        F.count("*").alias("returned"),
        F.count_if("_dead").alias("dead"),
        F.min(F.when(F.col("_dead"), _offset(spec))).alias("first_dead"),
        F.max(F.when(F.col("_dead"), _offset(spec))).alias("last_dead"),
        F.count_if(~F.coalesce(F.expr(replace or "true"), F.lit(False))).alias("outside"),
    ]
    for i in range(len(spec.rules)):
        broken = F.col(f"_broken_{i}")
        figures.append(F.count_if(broken).alias(f"broken_{i}"))
        figures.append(F.min(F.when(broken, source)).alias(f"first_{i}"))
    counted = rows.agg(*figures)
    if decoded is not None:
        undecodable = F.col("_undecodable")
        counted = counted.crossJoin(
            decoded.agg(
                F.count("*").alias("read"),
                F.count_if(undecodable).alias("undecodable"),
                F.count_if(~undecodable).alias("decoded"),
            )
        )
    row = counted.collect()[0].asDict(recursive=True)
    rules = {
        rule.name: {"broken": row[f"broken_{i}"], "first": row[f"first_{i}"]}
        for i, rule in enumerate(spec.rules)
    }
    kept = {k: v for k, v in row.items() if not k.startswith(("broken_", "first_", "last_"))}
    return {**kept, "dead_offsets": [row["first_dead"], row["last_dead"]], "rules": rules}


def _coordinates(source: str) -> Column:
    return F.struct(*[F.col(f"{source}.{name}") for name in ("topic", "partition", "offset")])


def _offset(spec: BatchSpec) -> Column:
    return F.col("_source.offset") if spec.has_source else F.lit(None).cast("bigint")


def _refuse(spec: BatchSpec, who: dict[str, Any], counts: dict[str, Any]) -> None:
    about = {"table": spec.table, "batch_id": who["batch_id"], "offsets": who["offsets"]}
    fatal = [rule.name for rule in spec.rules if rule.action == "fail"]
    broken = {name: counts["rules"][name] for name in fatal if counts["rules"][name]["broken"]}
    if broken:
        raise BatchRefused("expect_or_fail", {**about, "rules": broken, "rows": counts["returned"]})
    if counts["outside"]:
        raise BatchRefused("outside_window", {**about, "rows": counts["outside"]})


def _write_dead_letters(
    spec: BatchSpec,
    decoded: DataFrame | None,
    rows: DataFrame,
    counts: dict[str, Any],
    commit: dict[str, Any],
) -> None:
    own = f"query_id = '{commit['query_id']}' AND batch_id = {commit['batch_id']}"
    letters = []
    if decoded is not None and counts["undecodable"]:
        letters.append(_undecodable_letters(spec, decoded))
    if counts["dead"]:
        letters.append(_rule_letters(spec, decoded, rows, counts))
    if not letters:
        if commit["batch_id"] == spec.replayed:
            rows.sparkSession.sql(f"DELETE FROM delta.`{spec.dead_letters_path}` WHERE {own}")
        return
    stamped = reduce(DataFrame.unionByName, letters).select(
        "*",
        F.lit(json.dumps(commit["offsets"])).alias("batch_offsets"),
        F.lit(commit["query_id"]).alias("query_id"),
        F.lit(commit["batch_id"]).cast("bigint").alias("batch_id"),
        F.lit(spec.run_id).alias("run_id"),
        F.lit(spec.fingerprint).cast("string").alias("schema_fingerprint"),
        F.current_timestamp().alias("died_at"),
    )
    if counts["dead"] + counts.get("undecodable", 0) <= SMALL_BATCH:
        stamped = stamped.coalesce(1)
    writer = stamped.write.format("delta").option("userMetadata", json.dumps(commit))
    if commit["batch_id"] == spec.replayed:
        writer = writer.mode("overwrite").option("replaceWhere", own)
    else:
        writer = writer.mode("append")
    writer.save(spec.dead_letters_path)


def _undecodable_letters(spec: BatchSpec, decoded: DataFrame) -> DataFrame:
    explain = F.udf(spec.explain, "string")
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


def _rule_letters(
    spec: BatchSpec, decoded: DataFrame | None, rows: DataFrame, counts: dict[str, Any]
) -> DataFrame:
    drops = [(i, rule) for i, rule in enumerate(spec.rules) if rule.action == "drop"]
    names = [F.when(F.col(f"_broken_{i}"), F.lit(rule.name)) for i, rule in drops]
    why = [F.when(F.col(f"_broken_{i}"), F.lit(f"{rule.name}: {rule.text}")) for i, rule in drops]
    dead = rows.filter("_dead").select(
        *(["_source"] if spec.has_source else []),
        F.array_compact(F.array(*names)).alias("failed_rules"),
        F.concat_ws("; ", *why).alias("reason"),
        F.to_json(F.struct(*[F.col(f"`{c}`") for c in spec.columns])).alias("row"),
    )
    if not spec.has_source:
        return dead.select("*", *[F.lit(None).cast(t).alias(c) for c, t in RECORD.items()])
    return _with_record(spec, decoded, dead, counts)


def _with_record(
    spec: BatchSpec, decoded: DataFrame | None, dead: DataFrame, counts: dict[str, Any]
) -> DataFrame:
    at = ["topic", "partition", "offset"]
    placed = dead.select("_source.*", "failed_rules", "reason", "row")
    if spec.raw_path is None and decoded is not None:
        raw = decoded.select(
            *[f"_source.{name}" for name in at],
            F.col("_key").alias("key"),
            F.col("_raw").alias("value"),
            F.col("_headers").alias("headers"),
        )
    else:
        first, last = counts["dead_offsets"]
        bronze = dead.sparkSession.read.format("delta").load(spec.raw_path)
        near = bronze.filter(F.col("offset").between(first, last))
        raw = near.select(*at, "key", "value", "headers")
    if counts["dead"] <= SMALL_BATCH:
        raw = F.broadcast(raw.join(F.broadcast(placed.select(*at).distinct()), at, "left_semi"))
    return placed.join(raw, at, "left")


def _write_table(
    spec: BatchSpec,
    rows: DataFrame,
    replace: str | None,
    counts: dict[str, Any],
    commit: dict[str, Any],
) -> None:
    kept = rows.filter(~F.col("_dead")).select(*[F.col(f"`{c}`") for c in spec.columns])
    if counts["returned"] <= SMALL_BATCH:
        kept = kept.coalesce(1)
    writer = kept.write.format("delta").option("userMetadata", json.dumps(commit))
    writer = writer.option("txnAppId", commit["query_id"]).option("txnVersion", commit["batch_id"])
    if replace is None:
        writer = writer.mode("append")
    else:
        writer = writer.mode("overwrite").option("replaceWhere", replace)
    writer.save(spec.path)
