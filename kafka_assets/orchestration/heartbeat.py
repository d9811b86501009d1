"""Heartbeats: an idle topic must not make its tables late.

Freshness counts materializations, so a healthy table without lag is materialized again without a
run: same data version, same position, no figures. Which chains are healthy is `sensors`' to say.
"""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from kafka_assets.graph import Node
from kafka_assets.orchestration.checks import check_specs
from kafka_assets.orchestration.history import Materialization
from kafka_assets.orchestration.names import HEARTBEAT, POSITION, table_key


def due(node: Node, last: Materialization | None, now: float) -> bool:
    """True when half of the time that the table may go without an update is over."""
    if node.table.freshness is None or last is None:
        return False
    return now - last.timestamp >= node.table.freshness.total_seconds() / 2


def renewal(
    instance: dg.DagsterInstance, node: Node, last: Materialization
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """The events that renew a table, in the order in which they must be reported."""
    tags = {HEARTBEAT: "true"}
    if last.data_version is not None:
        tags["dagster/data_version"] = last.data_version
    yield dg.AssetMaterialization(
        table_key(node),
        description="No new records: renewed without a run.",
        metadata={} if last.position is None else {POSITION: last.position.as_metadata()},
        tags=tags,
    )
    yield from checks_again(instance, node)


def checks_again(instance: dg.DagsterInstance, node: Node) -> Iterator[dg.AssetCheckEvaluation]:
    """The last result of each check, for a materialization that checked nothing to follow it.

    A check without a result for the newest materialization counts as not passed, and would hold
    back the tables below.
    """
    keys = [spec.key for spec in check_specs(node)]
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    for key in keys:
        record = records.get(key)
        result = None if record is None else record.evaluation
        if isinstance(result, dg.AssetCheckEvaluation):
            yield dg.AssetCheckEvaluation(
                asset_key=result.asset_key,
                check_name=result.check_name,
                passed=result.passed,
                metadata=result.metadata,
                severity=result.severity,
                description=result.description,
                blocking=result.blocking,
            )
