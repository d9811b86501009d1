"""Whether a table as a whole keeps its expectations, looked at after a run.

Rules on rows are `expectations`', which stop or sort out rows before they are committed; these here
look at what was committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafka_assets.declarations import TableExpectation
from kafka_assets.graph import Node
from kafka_assets.streaming.report import TableRuleResult
from kafka_assets.streaming.tables import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE = 5
"""Examples of what breaks a rule that are shown with a result."""


def look_at(
    node: Node, session: SparkSession, table: LakeTable, *, new_rows: int, batches: int
) -> tuple[TableRuleResult, ...]:
    """Look at each expectation on a table as a whole, in declared order.

    Args:
        node: The table.
        session: Where the table is read.
        table: The table as the run left it.
        new_rows: Rows that the run added or replaced.
        batches: Batches of the run; 0 when it found nothing new.
    """
    results = []
    for rule in node.table.table_expectations:
        if rule.rule == "row_count":
            results.append(_bounds(rule, table.rows, "rows"))
        elif rule.rule == "new_rows":
            found = _bounds(rule, new_rows, "new rows")
            results.append(found if batches else _kept(rule, "Nothing new.", None))
        else:
            frame = session.read.format("delta").option("versionAsOf", table.version)
            rows = frame.load(table.path)
            results.append(_LOOK[rule.rule](rule, rows, node.lookups))
    return tuple(results)


def _bounds(rule: TableExpectation, found: int, what: str) -> TableRuleResult:
    bounds = [
        f"{words} {bound}"
        for words, bound in (("at least", rule.least), ("at most", rule.most))
        if bound is not None
    ]
    holds = (rule.least is None or found >= rule.least) and (
        rule.most is None or found <= rule.most
    )
    sentence = f"{found} {what}; expected {' and '.join(bounds)}."
    return TableRuleResult(rule.name, rule.blocking, holds, sentence, found)


def _unique(rule: TableExpectation, rows: DataFrame, lookups: Mapping[str, str]) -> TableRuleResult:
    doubled = rows.groupBy(*[f"`{c}`" for c in rule.columns]).count().filter("count > 1")
    found = doubled.count()
    if not found:
        return _kept(rule, f"{', '.join(rule.columns)}: all values are unique.", 0)
    sample = [row.asDict() for row in doubled.limit(SAMPLE).collect()]
    sentence = f"{found} values of {', '.join(rule.columns)} stand in more than one row."
    return TableRuleResult(rule.name, rule.blocking, False, sentence, found, _texts(sample))


def _values_in(
    rule: TableExpectation, rows: DataFrame, lookups: Mapping[str, str]
) -> TableRuleResult:
    from pyspark.sql import functions as F

    (column,) = rule.columns
    table, other = rule.other or ("", "")
    if LakeTable.open(lookups[table]) is None:
        return TableRuleResult(
            rule.name, rule.blocking, False, f"The table {table} does not exist yet.", None
        )
    allowed = rows.sparkSession.read.format("delta").load(lookups[table])
    wrong = (
        rows.select(F.col(f"`{column}`").alias("value"))
        .filter("value IS NOT NULL")
        .distinct()
        .join(allowed.select(F.col(f"`{other}`").alias("value")).distinct(), "value", "left_anti")
    )
    found = wrong.count()
    if not found:
        return _kept(rule, f"All values of {column} stand in {table}.{other}.", 0)
    sample = [row.asDict() for row in wrong.limit(SAMPLE).collect()]
    sentence = f"{found} values of {column} do not stand in {table}.{other}."
    return TableRuleResult(rule.name, rule.blocking, False, sentence, found, _texts(sample))


def _fresh(rule: TableExpectation, rows: DataFrame, lookups: Mapping[str, str]) -> TableRuleResult:
    from pyspark.sql import functions as F

    (column,) = rule.columns
    seconds = rows.agg(F.max(F.unix_seconds(F.col(f"`{column}`").cast("timestamp")))).collect()
    newest = seconds[0][0]
    if newest is None:
        return _kept(rule, f"There is no {column} yet.", None)
    return aged(rule, int(newest), datetime.now(UTC).timestamp())


def aged(rule: TableExpectation, newest: int, now: float) -> TableRuleResult:
    """What `expect_fresh` says of the newest event at some time; no run is needed to know it.

    Args:
        rule: The expectation.
        newest: The time of the newest event, in seconds since 1970-01-01 UTC.
        now: The present, likewise.
    """
    age = int(now) - newest
    limit = int(rule.within.total_seconds()) if rule.within is not None else 0
    sentence = f"The newest {rule.columns[0]} is {age} s old; expected at most {limit} s."
    holds = age <= limit
    return TableRuleResult(rule.name, rule.blocking, holds, sentence, age, newest=newest)


def _kept(rule: TableExpectation, sentence: str, found: int | None) -> TableRuleResult:
    return TableRuleResult(rule.name, rule.blocking, True, sentence, found)


def _texts(sample: list[dict[str, Any]]) -> tuple[Mapping[str, str], ...]:
    return tuple({name: str(value) for name, value in row.items()} for row in sample)


_LOOK = {"unique": _unique, "values_in": _values_in, "fresh": _fresh}
