"""Events get old without a run: `expect_fresh` fails when its time is over, also on an idle topic.

A run says what the newest event is; that it is too old by now needs no run, and no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import dagster as dg

from kafka_assets.graph import Node
from kafka_assets.orchestration.checks import NEWEST, table_rule_result
from kafka_assets.orchestration.names import table_key
from kafka_assets.streaming.table_rules import aged


def grown_old(
    instance: dg.DagsterInstance, nodes: Iterable[Node], now: float
) -> Iterator[dg.AssetCheckEvaluation]:
    """A failed result for each check that passed, and whose newest event is too old by now.

    Args:
        instance: Has the last results.
        nodes: The tables.
        now: Seconds since 1970-01-01 UTC.
    """
    rules = {
        dg.AssetCheckKey(table_key(node), rule.name): (node, rule)
        for node in nodes
        for rule in node.table.table_expectations
        if rule.rule == "fresh"
    }
    if not rules:
        return
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(rules))
    for key, (node, rule) in rules.items():
        record = records.get(key)
        last = None if record is None else record.evaluation
        if not isinstance(last, dg.AssetCheckEvaluation) or not last.passed:
            continue
        newest = last.metadata.get(NEWEST)
        if not isinstance(newest, dg.TimestampMetadataValue):
            continue
        found = table_rule_result(node, aged(rule, int(newest.value), now))
        if not found.passed:
            yield dg.AssetCheckEvaluation(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=False,
                metadata=found.metadata,
                severity=found.severity,
                description=found.description,
                blocking=last.blocking,
            )
