"""What the Dagster instance remembers of tables and chains: the only state that decisions use.

Reading only. Nothing is kept in a process, so that a restarted daemon decides as the old one would
have. What follows from the state is decided in `sensors` and `heartbeat`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from kafka_assets.graph import Node
from kafka_assets.orchestration.names import (
    CHAIN,
    FAILED_TABLE,
    HEARTBEAT,
    POSITION,
    STARTED_BY,
    Chain,
    keys_of,
    table_key,
)

IN_FLIGHT = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.SUSPENDED,
    dg.DagsterRunStatus.CANCELING,
)
ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)

MOST_RUNS = 16
"""Runs looked at to count failures in a row; more than the longest pause needs."""


@dataclass(frozen=True)
class Position:
    """How far a table's reported commits reach.

    Attributes:
        table: Id of the Delta table; a table made anew has another one.
        version: Delta version of the last reported commit.
        offsets: `topic/partition` -> the offset after the last one read.
    """

    table: str = ""
    version: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)

    def as_metadata(self) -> dg.MetadataValue[Any]:
        """As the value of `names.POSITION`; JSON, so that the UI draws no plot of it."""
        return dg.MetadataValue.json(
            {"table": self.table, "version": self.version, "offsets": dict(self.offsets)}
        )


@dataclass(frozen=True)
class Materialization:
    """The newest materialization of a table or topic.

    Attributes:
        timestamp: When, in seconds since 1970-01-01 UTC.
        run_id: The run; empty for one that was reported without a run.
        data_version: Names the content.
        position: How far the table's reported commits reach.
        heartbeat: It renewed an idle table.
    """

    timestamp: float
    run_id: str
    data_version: str | None
    position: Position | None
    heartbeat: bool


@dataclass(frozen=True)
class Failures:
    """The failures of a chain since its last success.

    Attributes:
        count: How many runs failed in a row; 0 for a healthy chain.
        ended: When the last of them ended.
        tags: Tags of the last of them.
        unfinished: Tables that it should have brought up to date and that nothing has since.
    """

    count: int = 0
    ended: float = 0.0
    tags: Mapping[str, str] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()

    @property
    def repaired(self) -> bool:
        """True when the table that failed was brought up to date since, by a run of a person."""
        table = self.tags.get(FAILED_TABLE)
        return table not in self.unfinished if table is not None else not self.unfinished


def latest(
    instance: dg.DagsterInstance, keys: Iterable[dg.AssetKey]
) -> dict[dg.AssetKey, Materialization]:
    """The newest materialization of each key that has one."""
    found = {}
    for record in instance.get_asset_records(list(keys)):
        key = record.asset_entry.asset_key
        entry = record.asset_entry.last_materialization
        if entry is not None and entry.asset_materialization is not None:
            event = entry.asset_materialization
            found[key] = Materialization(
                timestamp=entry.timestamp,
                run_id=entry.run_id,
                data_version=(event.tags or {}).get("dagster/data_version"),
                position=_position(event) or _older_position(instance, key),
                heartbeat=HEARTBEAT in (event.tags or {}),
            )
    return found


def keys_in_flight(instance: dg.DagsterInstance) -> list[frozenset[dg.AssetKey] | None]:
    """For each run that has not ended the keys it materializes; None for one that may do all."""
    runs = instance.get_runs(dg.RunsFilter(statuses=list(IN_FLIGHT)))
    return [None if run.asset_selection is None else frozenset(run.asset_selection) for run in runs]


def failures_of(
    instance: dg.DagsterInstance, chain: Chain, last: Mapping[dg.AssetKey, Materialization]
) -> Failures:
    """The failures in a row of the runs that the sensors started for a chain."""
    failed: list[dg.RunRecord] = []
    for record in _runs_of(instance, chain):
        if record.dagster_run.status == dg.DagsterRunStatus.SUCCESS:
            break
        failed.append(record)
    if not failed:
        return Failures()
    run = failed[0]
    return Failures(
        count=len(failed),
        ended=run.end_time or run.update_timestamp.timestamp(),
        tags=run.dagster_run.tags,
        unfinished=frozenset(
            node.name for node in chain.tables if _unfinished(node, run, last.get(table_key(node)))
        ),
    )


def _runs_of(instance: dg.DagsterInstance, chain: Chain) -> list[dg.RunRecord]:
    own = instance.get_run_records(
        dg.RunsFilter(tags={CHAIN: chain.name}, statuses=list(ENDED)), limit=MOST_RUNS
    )
    # The automation sensor starts what is late, of whichever chain.
    others = instance.get_run_records(
        dg.RunsFilter(tags={STARTED_BY: "freshness"}, statuses=list(ENDED)), limit=MOST_RUNS
    )
    mine = [r for r in others if chain.keys & (r.dagster_run.asset_selection or chain.keys)]
    return sorted([*own, *mine], key=lambda r: r.create_timestamp, reverse=True)


def _unfinished(node: Node, run: dg.RunRecord, last: Materialization | None) -> bool:
    selected = run.dagster_run.asset_selection
    if selected is not None and not selected & set(keys_of(node)):
        return False
    began = run.start_time or run.create_timestamp.timestamp()
    if last is None or last.timestamp < began:
        return True
    # A table whose blocking check failed was materialized by the run that failed.
    failed = run.dagster_run.tags.get(FAILED_TABLE) == node.name
    return failed and last.run_id == run.dagster_run.run_id


def _position(event: dg.AssetMaterialization) -> Position | None:
    value = event.metadata.get(POSITION)
    if not isinstance(value, dg.JsonMetadataValue) or not isinstance(value.data, dict):
        return None
    data = value.data
    return Position(str(data["table"]), int(data["version"]), dict(data["offsets"]))


def _older_position(instance: dg.DagsterInstance, key: dg.AssetKey) -> Position | None:
    # A materialization that a person reported by hand has none: look behind it.
    cursor = None
    while True:
        page = instance.fetch_materializations(key, limit=50, cursor=cursor)
        for record in page.records:
            event = record.asset_materialization
            position = None if event is None else _position(event)
            if position is not None:
                return position
        if not page.has_more:
            return None
        cursor = page.cursor
