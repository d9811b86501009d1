"""Which rows break which rules, and how many.

It runs where the engine runs the batch, and is sent there by value: it imports only pyspark, the
standard library, and modules of the same kind.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_assets.streaming.spec import BatchSpec


def checked(spec: BatchSpec, returned: DataFrame) -> DataFrame:
    """Add `_broken_<i>` for each rule, and `_dead`: whether the row goes to the dead letters.

    Args:
        spec: The rules.
        returned: What the author's function returned.
    """
    # Null in rows from before the column, and of flows without it: those are no tombstones.
    tombstone = F.coalesce(F.col("_tombstone"), F.lit(False))
    looked_at = ~tombstone if "_tombstone" in returned.columns else F.lit(True)
    broken = [
        (rule.broken() & looked_at).alias(f"_broken_{i}") for i, rule in enumerate(spec.rules)
    ]
    dies = [F.col(f"_broken_{i}") for i, rule in enumerate(spec.rules) if rule.action == "drop"]
    with_rules = returned.select("*", *broken)
    return with_rules.withColumn("_dead", reduce(Column.__or__, dies, F.lit(False)))


def count(
    spec: BatchSpec,
    decoded: DataFrame | None,
    rows: DataFrame,
    replaced: str | None,
    *,
    raised: int = 0,
) -> dict[str, Any]:
    """Count rows, dead rows, and each rule's broken rows.

    The input is counted first and on its own: two aggregates at once over a batch that is not yet
    in memory would wait for each other.

    Args:
        spec: The table and its rules.
        decoded: What the function was given, undecodable rows included; None for a table that
            does not decode.
        rows: What the function returned, from `checked`.
        replaced: The condition that all rows must meet; None for any.
        raised: Rows that the function was not given.

    Returns:
        Figures by name, with `rules` (name -> broken rows) and `dead_offsets` (lowest and highest
        offset of a dead row).
    """
    given: dict[str, Any] = {}
    if decoded is not None:
        undecodable = F.col("_undecodable")
        given = _figures(
            decoded,
            F.count("*").alias("read"),
            F.count_if(undecodable).alias("undecodable"),
            F.count_if(~undecodable).alias("decoded"),
        )
        given["decoded"] -= raised
    if decoded is not None or raised:
        given["raised"] = raised
    offset = F.when(F.col("_dead"), _offset(spec))
    found = _figures(
        rows,
        F.count("*").alias("returned"),
        F.count_if("_dead").alias("dead"),
        F.min(offset).alias("first_dead"),
        F.max(offset).alias("last_dead"),
        F.count_if(~F.coalesce(F.expr(replaced or "true"), F.lit(False))).alias("outside"),
        *[F.count_if(f"_broken_{i}").alias(f"broken_{i}") for i in range(len(spec.rules))],
    )
    rules = {
        rule.name: {"broken": found.pop(f"broken_{i}"), "first": None}
        for i, rule in enumerate(spec.rules)
    }
    offsets = [found.pop("first_dead"), found.pop("last_dead")]
    return {**given, **found, "dead_offsets": offsets, "rules": rules}


def broken_rows(spec: BatchSpec, rows: DataFrame) -> DataFrame:
    """The rows that break any rule."""
    broken = [F.col(f"_broken_{i}") for i in range(len(spec.rules))]
    return rows.filter(reduce(Column.__or__, broken, F.lit(False)))


def first_broken(spec: BatchSpec, broken: DataFrame) -> list[dict[str, Any] | None]:
    """For each rule topic, partition and offset of the first row that breaks it.

    Args:
        spec: The rules.
        broken: From `broken_rows`.
    """
    if not spec.has_source:
        return [None] * len(spec.rules)
    at = F.struct(*[F.col(f"_source.{name}") for name in ("topic", "partition", "offset")])
    firsts = [
        F.min(F.when(F.col(f"_broken_{i}"), at)).alias(str(i)) for i in range(len(spec.rules))
    ]
    return list(_figures(broken, *firsts).values())


def _figures(frame: DataFrame, *figures: Column) -> dict[str, Any]:
    return frame.agg(*figures).collect()[0].asDict(recursive=True)


def _offset(spec: BatchSpec) -> Column:
    return F.col("_source.offset") if spec.has_source else F.lit(None).cast("bigint")
