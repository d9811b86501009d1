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
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_assets.streaming.dead_letters import write_dead_letters
from kafka_assets.streaming.expectations import broken_rows, checked, count, first_broken
from kafka_assets.streaming.isolation import LeftOut, is_about_rows, raising_rows, within
from kafka_assets.streaming.merge import REMOVE, merge
from kafka_assets.streaming.spec import MARK, SMALL_BATCH, BatchSpec, Replaced, Rule


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
        BatchRefused: An `expect_or_fail` rule is broken, or too many rows would die; nothing of
            the batch was committed.
    """
    if batch_id <= spec.committed:
        return
    session = frame.sparkSession
    who = identity(session, spec.checkpoint, batch_id)
    if not spec.decodes and spec.function is None:
        # The function is a part of the query, and the frame is its result.
        write_batch(spec, checked(spec, frame), who)
        return
    given = frame.persist()
    try:
        if spec.decodes:
            good = given.filter(~F.col("_undecodable"))
            _write_returned(spec, good, who, decoded=given)
        else:
            _write_returned(replace(spec, given=given), given, who)
    finally:
        given.unpersist()


def _write_returned(
    spec: BatchSpec, given: DataFrame, who: dict[str, Any], decoded: DataFrame | None = None
) -> None:
    """Write what the function makes of rows; those on which it raises become dead letters."""
    function = spec.function or _as_they_are

    def returned(rows: DataFrame) -> DataFrame:
        if decoded is not None:
            rows = rows.drop("_undecodable", "_raw")
        return checked(spec, function(rows))

    try:
        write_batch(spec, returned(given), who, decoded=decoded)
    except BatchRefused:
        raise
    except Exception as error:
        raising = raising_rows(given, returned, spec.at) if is_about_rows(error) else ()
        if not raising:
            raise
        raises = within([r.record for r in raising], spec.at)
        out = given.filter(raises)
        # The dead letters may be committed already, and are then to be replaced.
        again = replace(spec, replayed=who["batch_id"], again=True)
        write_batch(
            again,
            returned(given.filter(~raises)),
            who,
            decoded=decoded,
            left_out=LeftOut(out, out.count(), raising),
        )


def _as_they_are(rows: DataFrame) -> DataFrame:
    return rows


def write_batch(
    spec: BatchSpec,
    rows: DataFrame,
    who: dict[str, Any],
    *,
    decoded: DataFrame | None = None,
    left_out: LeftOut | None = None,
    replaced: Replaced | None = None,
    extra: dict[str, Any] | None = None,
    write: Callable[[DataFrame, dict[str, Any]], None] | None = None,
) -> None:
    """Count rows, refuse them or not, then write the dead letters and, last, the table.

    Args:
        spec: The table and its rules.
        rows: What the function returned, from `checked`.
        who: The batch's identity: query_id, batch_id, offsets.
        decoded: The persisted rows that the function was given, with `_undecodable` and `_raw`;
            None for a table that does not decode.
        left_out: Rows that the function was not given, because it raises on them.
        replaced: What the table had of these rows, and goes with this batch. None appends.
        extra: Further figures for the commit.
        write: Commits the rows that live, given them and what the commit carries; by default they
            are appended, or replace others.

    Raises:
        BatchRefused: A fail rule is broken, too many rows would die, or rows lie outside of
            `replaced`; nothing of the batch was committed.
    """
    with ExitStack() as held:
        if decoded is None or spec.varies:
            # Else each step would decide for itself which rows die, and one could fall between.
            held.callback(rows.persist().unpersist)
        within_rows = None if replaced is None else replaced.rows
        raised = left_out.count if left_out else 0
        counts = count(spec, decoded, rows, within_rows, raised=raised)
        broken = _look_at_broken(spec, rows, counts, held)
        _refuse(spec, who, counts)
        commit = {
            **who,
            "run_id": spec.run_id,
            "code_version": spec.code_version,
            "counts": counts,
            **({"sources": dict(spec.sources)} if spec.sources else {}),
            **(extra or {}),
        }
        if spec.dead_letters_path is not None:
            write_dead_letters(spec, decoded, broken, left_out, counts, commit, replaced)
        if write is not None:
            write(rows.filter(~F.col("_dead")), commit)
        else:
            _write_table(spec, rows, within_rows, counts, commit)


def run_keyed(spec: BatchSpec, frame: DataFrame, batch_id: int) -> None:
    """Write one micro-batch of an aggregate: its rows replace those with the same keys.

    Args:
        spec: The table, its rules and its keys.
        frame: The rows of the groups that the batch changed.
        batch_id: Number of the batch in its checkpoint.

    Raises:
        BatchRefused: As `run_batch`.
    """
    if batch_id <= spec.committed:
        return
    who = identity(frame.sparkSession, spec.checkpoint, batch_id)
    write_batch(spec, checked(spec, frame), who, write=partial(_merge_rows, spec))


def _refuse_doubled_keys(spec: BatchSpec, rows: DataFrame, commit: dict[str, Any]) -> None:
    """A MERGE adds every new row: two with one key would both be in the table."""
    doubled = rows.groupBy(*[F.col(f"`{key}`") for key in spec.keys]).count().filter("count > 1")
    first = doubled.limit(1).collect()
    if first:
        key = {name: str(first[0][name]) for name in spec.keys}
        about = {"table": spec.table, "batch_id": commit["batch_id"]}
        raise BatchRefused("doubled_keys", {**about, "key": key, "rows": first[0]["count"]})


def _merge_rows(spec: BatchSpec, rows: DataFrame, commit: dict[str, Any]) -> None:
    _refuse_doubled_keys(spec, rows, commit)
    kept = rows.select(*[F.col(f"`{c}`") for c in spec.columns])
    merge(spec.path, kept.withColumn(REMOVE, F.lit(False)), spec.keys, commit)


def identity(session: SparkSession, checkpoint: str, batch_id: int) -> dict[str, Any]:
    """Which batch this is: the id of its query, its number, its end offsets.

    The query's id names all its batches' commits; the offsets are one value for each source.
    """
    return {
        "query_id": str(json.loads(_lines(session, f"{checkpoint}/metadata")[0])["id"]),
        "batch_id": batch_id,
        "offsets": [
            # Spark writes - for a source that has nothing yet.
            {} if end == "-" else json.loads(end)
            for end in _lines(session, f"{checkpoint}/offsets/{batch_id}")[2:]
        ],
    }


def _lines(session: SparkSession, path: str) -> list[str]:
    if "://" not in path:
        return Path(path).read_text(encoding="utf-8").splitlines()
    return [row.value for row in session.read.text(path).collect()]


def _look_at_broken(
    spec: BatchSpec, rows: DataFrame, counts: dict[str, Any], held: ExitStack
) -> DataFrame:
    """The rows that break a rule, kept at hand, with the first of each written to the counts."""
    broken = broken_rows(spec, rows)
    found = [counts["rules"][rule.name] for rule in spec.rules]
    if any(figures["broken"] for figures in found):
        if sum(figures["broken"] for figures in found) <= SMALL_BATCH:
            held.callback(broken.persist().unpersist)
        for figures, first in zip(found, first_broken(spec, broken), strict=True):
            figures["first"] = first
    return broken


def _refuse(spec: BatchSpec, who: dict[str, Any], counts: dict[str, Any]) -> None:
    about = {"table": spec.table, "batch_id": who["batch_id"], "offsets": who["offsets"]}
    fatal = [rule.name for rule in spec.rules if rule.action == "fail" and _too_many(rule, counts)]
    broken = {name: counts["rules"][name] for name in fatal}
    if broken:
        raise BatchRefused("expect_or_fail", {**about, "rules": broken, "rows": counts["returned"]})
    raised = counts.get("raised", 0)
    dead = counts["dead"] + counts.get("undecodable", 0) + raised
    seen = counts.get("read", counts["returned"] + raised)
    if seen >= spec.guarded and dead > spec.most_dead * seen:
        raise BatchRefused(
            "dead_share", {**about, "counts": counts, "dead": dead, "most": spec.most_dead}
        )
    if counts["outside"]:
        raise BatchRefused("outside_window", {**about, "rows": counts["outside"]})


def _too_many(rule: Rule, counts: dict[str, Any]) -> bool:
    allowed = rule.above * counts["returned"] if rule.above < 1 else rule.above
    return bool(counts["rules"][rule.name]["broken"] > allowed)


def latest_version(session: SparkSession, path: str) -> int:
    """The newest version of a Delta table."""
    quoted = path.replace("`", "``")
    return int(session.sql(f"DESCRIBE HISTORY delta.`{quoted}` LIMIT 1").collect()[0].version)


def _write_table(
    spec: BatchSpec,
    rows: DataFrame,
    replaced: str | None,
    counts: dict[str, Any],
    commit: dict[str, Any],
) -> None:
    kept = rows.filter(~F.col("_dead")).select(*[F.col(f"`{c}`") for c in spec.columns])
    if spec.sink is not None:
        kept.write.format("kafka").options(**spec.sink).save()
        kept = kept.limit(0)
    if counts["returned"] <= SMALL_BATCH:
        kept = kept.coalesce(1)
    writer = kept.write.format("delta").option("userMetadata", json.dumps(commit))
    writer = writer.option("txnAppId", commit["query_id"]).option("txnVersion", commit["batch_id"])
    if replaced is None:
        writer = writer.mode("append")
    else:
        writer = writer.mode("overwrite").option("replaceWhere", replaced)
    writer.save(spec.path)
