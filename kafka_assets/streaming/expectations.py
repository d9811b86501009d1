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
    broken = [rule.broken().alias(f"_broken_{i}") for i, rule in enumerate(spec.rules)]
    dies = [F.col(f"_broken_{i}") for i, rule in enumerate(spec.rules) if rule.action == "drop"]
    with_rules = returned.select("*", *broken)
    return with_rules.withColumn("_dead", reduce(Column.__or__, dies, F.lit(False)))


def count(
    spec: BatchSpec, decoded: DataFrame | None, rows: DataFrame, replace: str | None
) -> dict[str, Any]:
    """Count rows, dead rows, and each rule's broken rows, in one pass.

    Args:
        spec: The table and its rules.
        decoded: What the function was given, undecodable rows included; None for a table that
            does not decode.
        rows: What the function returned, from `checked`.
        replace: The condition that all rows must meet; None for any.

    Returns:
        Figures by name, with `rules` (name -> broken rows and the first one's coordinates) and
        `dead_offsets` (lowest and highest offset of a dead row).
    """
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
