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
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_assets.streaming.dead_letters import write_dead_letters
from kafka_assets.streaming.expectations import broken_rows, checked, count, first_broken
from kafka_assets.streaming.spec import MARK, SMALL_BATCH, BatchSpec


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
    decoded = frame.persist()
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
    with ExitStack() as held:
        if decoded is None:
            held.callback(rows.persist().unpersist)
        counts = count(spec, decoded, rows, replace)
        broken = _look_at_broken(spec, rows, counts, held)
        _refuse(spec, who, counts)
        commit = {
            **who,
            "run_id": spec.run_id,
            "code_version": spec.code_version,
            "counts": counts,
            **(extra or {}),
        }
        if spec.dead_letters_path is not None:
            write_dead_letters(spec, decoded, broken, counts, commit)
        _write_table(spec, rows, replace, counts, commit)


def identity(session: SparkSession, checkpoint: str, batch_id: int) -> dict[str, Any]:
    """Which batch this is: the id of its query, its number, its end offsets.

    The query's id names all its batches' commits; the offsets are one value for each source.
    """
    return {
        "query_id": str(json.loads(_lines(session, f"{checkpoint}/metadata")[0])["id"]),
        "batch_id": batch_id,
        "offsets": [
            json.loads(end) for end in _lines(session, f"{checkpoint}/offsets/{batch_id}")[2:]
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
    fatal = [rule.name for rule in spec.rules if rule.action == "fail"]
    broken = {name: counts["rules"][name] for name in fatal if counts["rules"][name]["broken"]}
    if broken:
        raise BatchRefused("expect_or_fail", {**about, "rules": broken, "rows": counts["returned"]})
    if counts["outside"]:
        raise BatchRefused("outside_window", {**about, "rows": counts["outside"]})


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
