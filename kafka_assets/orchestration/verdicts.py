"""Whether a chain starts now: what holds it back, how it is asked for, and whose turn it is.

What topics and folders have in common; what waits in them is `sensors` and `folders` to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import dagster as dg

from kafka_assets.errors import LakeError
from kafka_assets.graph import Graph, Node
from kafka_assets.operations import audit
from kafka_assets.orchestration.history import Failures, Materialization
from kafka_assets.orchestration.names import (
    CHAIN,
    FAILED_CODE,
    FAILED_TABLE,
    FAILURE,
    REASON,
    STARTED_BY,
    Chain,
    asked_version,
    table_key,
)
from kafka_assets.settings import SensorSettings, Settings

WAITS_FOR_PEOPLE = ("expectation_failed", "fence_refused", "dead_share_exceeded", "place_changed")
"""Kinds of failure that a retry cannot mend."""

MENDED_BY_HAND = ("fence_refused", "place_changed")
"""Kinds of failure that any operation on the table can mend; the others, a reset alone."""

Last = Mapping[dg.AssetKey, Materialization]
Done = Mapping[str, Mapping[str, float]]
"""Table -> operation -> when it was last done, in seconds since 1970-01-01 UTC."""
Busy = list[frozenset[dg.AssetKey] | None]
AnyChain = TypeVar("AnyChain", bound=Chain)


@dataclass(frozen=True)
class Verdict:
    """Whether a chain starts now.

    Attributes:
        start: True to start it.
        why: The reason, for people.
        healthy: Its idle tables may be renewed.
    """

    start: bool
    why: str
    healthy: bool = False


def pause_after(failures: int, settings: SensorSettings) -> float:
    """Seconds between the end of a chain's last failure in a row and its next try."""
    # The exponent is bounded only so that it cannot overflow.
    doubled = settings.backoff_first_seconds * 2.0 ** min(failures - 1, 32)
    return min(doubled, settings.backoff_most_seconds)


def in_flight(chain: Chain, busy: Busy) -> bool:
    """Whether a run that has not ended may write a table of a chain."""
    return any(keys is None or keys & chain.keys for keys in busy)


def done_by_hand(settings: Settings, now: float) -> Done | None:
    """What people did to tables, also by commands, of which Dagster knows nothing.

    Args:
        settings: The lake.
        now: Seconds since 1970-01-01 UTC; what a clock that is ahead wrote counts when it is time.

    Returns:
        None where the lake cannot be read, which fails the runs, and these say so.
    """
    try:
        found = audit.newest(settings)
    except (LakeError, OSError):
        return None
    return {
        table: {operation: at for operation, at in did.items() if at <= now}
        for table, did in found.items()
    }


def held_back(
    chain: Chain,
    busy: Busy,
    failures: Failures,
    graph: Graph,
    settings: Settings,
    now: float,
    done: Done,
) -> Verdict | None:
    """The verdict over a chain that is running or has failed; None where its source decides.

    Args:
        chain: The chain.
        busy: Keys of the runs in flight.
        failures: Those of the chain.
        graph: The tables.
        settings: The pauses.
        now: Seconds since 1970-01-01 UTC.
        done: From `done_by_hand`.
    """
    if in_flight(chain, busy):
        return Verdict(False, "a run is in flight")
    if failures.count and not failures.repaired:
        return after_failure(failures, graph, settings, now, done)
    return None


def emptied(chain: Chain, last: Last, done: Done) -> Node | None:
    """A table that was reset and not filled since, whatever waits in the chain's source."""
    for node in chain.tables:
        newest = last.get(table_key(node))
        reset = done.get(node.name, {}).get("reset", 0.0)
        if newest is not None and (newest.emptied or reset > newest.timestamp):
            return node
    return None


def in_turn(chains: Iterable[AnyChain], said: Mapping[str, Mapping[str, Any]]) -> list[AnyChain]:
    """Chains in the order in which they may start: the one that waited longest comes first.

    Of chains that share a table one starts at a time; a source that always holds something new
    must not keep the others from their turn.
    """
    return sorted(chains, key=lambda chain: said.get(chain.name, {}).get("at", 0.0))


def run_request(chain: Chain, found: Verdict, sensor: str) -> dg.RunRequest:
    """Ask for a run of a chain's tables, saying who asks and why."""
    return dg.RunRequest(
        asset_selection=sorted(chain.keys),
        tags={CHAIN: chain.name, STARTED_BY: sensor, REASON: found.why},
    )


def after_failure(
    failures: Failures, graph: Graph, settings: Settings, now: float, done: Done
) -> Verdict:
    """Whether a chain that failed starts again now, and why."""
    kind, table = failures.tags.get(FAILURE, "run_failed"), failures.tags.get(FAILED_TABLE, "")
    what = f"{kind.replace('_', ' ')} in {table}" if table else kind.replace("_", " ")
    if kind in WAITS_FOR_PEOPLE:
        did = done.get(table, {})
        mends = [at for name, at in did.items() if kind in MENDED_BY_HAND or name == "reset"]
        if failures.released or max(mends, default=0.0) > failures.ended:
            return Verdict(True, f"{table} was repaired after {what}")
        node = graph.tables.get(table)
        if node is not None and failures.tags.get(FAILED_CODE) == asked_version(node, settings):
            return Verdict(
                False,
                f"{what}: waits for changed code or settings, for a job or command that repairs "
                f"or resets it, or for a manual run of {table} to succeed",
            )
        return Verdict(True, f"code or settings changed after {what}")
    again = failures.ended + pause_after(failures.count, settings.sensor)
    if now < again:
        at = datetime.fromtimestamp(again, UTC).strftime("%H:%M:%S UTC")
        return Verdict(False, f"{what}, {failures.count} in a row: next try at {at}")
    return Verdict(True, f"try again after {failures.count} failures")


def said_before(cursor: str | None) -> dict[str, dict[str, Any]]:
    """What a sensor's cursor holds, by the source's name in the graph."""
    try:
        said = json.loads(cursor or "{}")
    except json.JSONDecodeError:
        return {}
    # A cursor that a person typed into the UI is as good as none.
    if not isinstance(said, dict) or not all(isinstance(v, dict) for v in said.values()):
        return {}
    return said
