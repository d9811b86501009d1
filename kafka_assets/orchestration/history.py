"""What the Dagster instance remembers of tables and chains: the only state that decisions use.

Reading only. Nothing is kept in a process, so that a restarted daemon decides as the old one would
have. What follows from the state is decided in `sensors` and `heartbeat`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import dagster as dg

from kafka_assets.graph import Node
from kafka_assets.orchestration.names import (
    CHAIN,
    EMPTIED,
    FAILED_TABLE,
    FAILURE,
    HEARTBEAT,
    POSITION,
    REPAIRED,
    REPOSITORY,
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
"""Failures in a row that are counted; more than the longest pause needs."""

PAGE = 32
"""Records that are asked for at once."""

MOST_LOOKED_AT = 1000
"""Runs looked at for those of one chain, which may be rare among those of the others."""

REPAIRABLE = "fence_refused"
"""The kind of failure after which a person mends the table's checkpoint, not its code."""


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
        emptied: It says that the table was reset, to be filled anew.
    """

    timestamp: float
    run_id: str
    data_version: str | None
    position: Position | None
    heartbeat: bool
    emptied: bool = False


@dataclass(frozen=True)
class Failures:
    """The failures of a chain since its last success.

    Attributes:
        count: How many runs failed in a row; 0 for a healthy chain.
        ended: When the last of them ended.
        tags: Tags of the last of them.
        unfinished: Tables that it should have brought up to date and that nothing has since.
        released: A person repaired the checkpoint of the table that failed, since.
    """

    count: int = 0
    ended: float = 0.0
    tags: Mapping[str, str] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()
    released: bool = False

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
                emptied=EMPTIED in (event.tags or {}),
            )
    return found


def repository_of(context: dg.SensorEvaluationContext) -> str | None:
    """The repository and code location of a sensor, as runs are tagged; None where it has none."""
    origin = context.code_location_origin
    if origin is None or context.repository_name is None:
        return None
    return f"{context.repository_name}@{origin.location_name}"


def keys_in_flight(
    instance: dg.DagsterInstance, here: str | None = None
) -> list[frozenset[dg.AssetKey] | None]:
    """For each run that has not ended the keys it materializes; None for one that may do all.

    Args:
        instance: The instance.
        here: The repository (`repository_of`); runs of others do not count.
    """
    runs = instance.get_runs(dg.RunsFilter(statuses=list(IN_FLIGHT)))
    return [
        None if run.asset_selection is None else frozenset(run.asset_selection)
        for run in runs
        if _is_of(run, here)
    ]


def failures_of(
    instance: dg.DagsterInstance,
    chain: Chain,
    last: Mapping[dg.AssetKey, Materialization],
    here: str | None = None,
) -> Failures:
    """The failures in a row of the runs that the sensors started for a chain."""
    failed = _failed(_runs_of(instance, chain, here), chain)
    if not failed:
        return Failures()
    run = failed[0]
    ended = run.end_time or run.update_timestamp.timestamp()
    tags = run.dagster_run.tags
    table = {node.name: node for node in chain.tables}.get(tags.get(FAILED_TABLE, ""))
    mendable = table is not None and tags.get(FAILURE) == REPAIRABLE
    return Failures(
        count=len(failed),
        ended=ended,
        tags=tags,
        unfinished=frozenset(
            node.name for node in chain.tables if _unfinished(node, run, last.get(table_key(node)))
        ),
        released=mendable and _was_repaired(instance, table, ended),
    )


def _failed(runs: Iterable[dg.RunRecord], chain: Chain) -> list[dg.RunRecord]:
    """Of a chain's runs, newest first, those that failed and that no success made up for."""
    failed: list[dg.RunRecord] = []
    since: frozenset[dg.AssetKey] = frozenset()
    for record in runs:
        run = record.dagster_run
        selected = frozenset(run.asset_selection or chain.keys)
        if run.status != dg.DagsterRunStatus.SUCCESS:
            if not selected & chain.keys <= since:
                failed.append(record)
        elif CHAIN in run.tags or chain.keys <= selected:
            break
        else:
            # The automation sensor starts single tables too; that mends nothing above them.
            since |= selected
        if len(failed) == MOST_RUNS:
            break
    return failed


def _runs_of(
    instance: dg.DagsterInstance, chain: Chain, here: str | None
) -> Iterator[dg.RunRecord]:
    """The ended runs that the sensors started for a chain, newest first, asked for in pages."""
    own = _newest_first(instance, {CHAIN: chain.name})
    # The automation sensor starts what is late, of whichever chain.
    others = _newest_first(instance, {STARTED_BY: "freshness"})
    both = heapq.merge(own, others, key=lambda r: r.create_timestamp, reverse=True)
    for record in islice(both, MOST_LOOKED_AT):
        run = record.dagster_run
        if chain.keys & (run.asset_selection or chain.keys) and _is_of(run, here):
            yield record


def _newest_first(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> Iterator[dg.RunRecord]:
    cursor = None
    while True:
        page = instance.get_run_records(
            dg.RunsFilter(tags=tags, statuses=list(ENDED)), limit=PAGE, cursor=cursor
        )
        yield from page
        if len(page) < PAGE:
            return
        cursor = page[-1].dagster_run.run_id


def _is_of(run: dg.DagsterRun, here: str | None) -> bool:
    """Whether a run is of a repository; one that does not say may be of any."""
    origin = run.remote_job_origin
    label = run.tags.get(REPOSITORY) if origin is None else origin.repository_origin.get_label()
    return here is None or label is None or label == here


def _was_repaired(instance: dg.DagsterInstance, node: Node | None, after: float) -> bool:
    if node is None:
        return False
    since = dg.AssetRecordsFilter(table_key(node), after_timestamp=after)
    seen = instance.fetch_observations(since, limit=PAGE).records
    events = [record.asset_observation for record in seen]
    return any(event is not None and REPAIRED in event.tags for event in events)


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
