"""When Dagster starts a table by itself, beside what `kafka_lag` and `new_files` start.

Conditions are small named functions with a variable for each clause. They are built from Dagster's
own operators, so that the automation tab of an asset shows why it ran or did not. What depends on
the broker is decided in `sensors`, and on folders in `folders`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from typing import Any

import dagster as dg

from kafka_assets.declarations import Topic
from kafka_assets.graph import Files, Graph, Input, Node, Outside, Source
from kafka_assets.orchestration.names import (
    AUTOMATION_SENSOR,
    STARTED_BY,
    table_key,
    upstream_key,
)

AC = dg.AutomationCondition
Condition = dg.AutomationCondition[Any]


def table_condition(node: Node, graph: Graph) -> Condition | None:
    """When a table starts by itself; None when nothing but a sensor or a person starts it."""
    moved_by = [one.source for one in node.inputs if not _is_looked_up(node, one)]
    clauses = []
    if any(isinstance(source, Node | Outside) for source in moved_by):
        clauses.append(on_new_data(moved_by_sensors(node), made_elsewhere(node)))
    if any(other.table.freshness is not None for other in _below(node, graph)):
        clauses.append(on_late_table(node, graph))
    return reduce(dg.AutomationCondition.__or__, clauses) if clauses else None


def on_new_data(
    of_sensors: Collection[dg.AssetKey] = (), elsewhere: Collection[dg.AssetKey] = ()
) -> Condition:
    """A table above holds new data that no sensor's run is bringing down.

    This is how a table goes on that a blocking check held back, once a person repaired the table
    above it. Compares data versions, so that compaction, heartbeats and runs that found nothing
    start nothing. A run that a sensor started has all tables below in it; when it fails half-way,
    `kafka_lag` repeats it with pauses, so its updates do not count here.

    Args:
        of_sensors: Topics and folders above. What they hold is the sensors' to act on, who know
            of thresholds and pauses.
        elsewhere: Tables above that another code location makes. Its runs do not have the tables
            of this one in them, whoever started them.
    """
    brought_down = AC.any_new_update_has_run_tags(tag_keys={STARTED_BY})
    updated = AC.data_version_changed()
    new_dep = AC.any_deps_match((updated & ~brought_down) | AC.will_be_requested())
    missing = AC.any_deps_missing()
    if of_sensors:
        missing = missing.ignore(dg.AssetSelection.assets(*of_sensors))
    not_own = (*of_sensors, *elsewhere)
    new_above: Condition = (
        new_dep.ignore(dg.AssetSelection.assets(*not_own)) if not_own else new_dep
    )
    if elsewhere:
        new_above |= AC.any_deps_match(updated).allow(dg.AssetSelection.assets(*elsewhere))
    checks_passed = AC.all_deps_blocking_checks_passed()
    above_ready = ~missing & ~AC.any_deps_in_progress()
    not_running = ~AC.in_progress()
    ready = checks_passed & above_ready & not_running
    return (new_above.since_last_handled() & ready).with_label("new data above")


def moved_by_sensors(node: Node) -> tuple[dg.AssetKey, ...]:
    """Upstreams of a table whose new data a sensor acts on: topics, folders, and views of such.

    So that a folder that a stream only looks things up in starts nothing, either.
    """
    return _keys(upstream for upstream in _named(node) if _is_of_sensors(upstream))


def made_elsewhere(node: Node) -> tuple[dg.AssetKey, ...]:
    """Upstreams of a table that something outside this code location makes."""
    return _keys(upstream for upstream in _named(node) if isinstance(upstream, Outside))


def _is_of_sensors(upstream: Source) -> bool:
    if isinstance(upstream, Node) and upstream.is_view:
        return all(_is_of_sensors(one.source) for one in upstream.inputs)
    return isinstance(upstream, Topic | Files)


def _named(node: Node) -> Iterator[Source]:
    """What its declaration names as upstream, views as such, flows included."""
    return (upstream for part in node.parts for upstream in part.upstreams.values())


def _keys(upstreams: Iterable[Source]) -> tuple[dg.AssetKey, ...]:
    return tuple(dict.fromkeys(upstream_key(upstream) for upstream in upstreams))


def _is_looked_up(node: Node, one: Input) -> bool:
    return isinstance(one.source, Files) and one.read == "static" and bool(node.streams)


def on_late_table(node: Node, graph: Graph) -> Condition:
    """This table, or one below it, is later than its freshness allows.

    The tables above a late one start with it, because its rows may wait in the topic below
    `kafka_lag`'s thresholds. Freshness is a level that stays up until the daemon looks again, and
    would start a run on every tick: only its rise counts, once, and only while it lasts. A chain
    that failed is left to `kafka_lag`, which repeats it with pauses; an idle one never gets late,
    because `kafka_lag` renews it.
    """
    below = _below(node, graph)
    fresh = [table_key(n) for n in below if n.table.freshness is not None]
    late = _any_of(AC.freshness_warned() | AC.freshness_failed(), fresh)
    newly_late = late.newly_true().since_last_handled()
    family = [*below, *_above(node)]
    failed = _any_of(AC.execution_failed(), [table_key(n) for n in family])
    not_running = ~AC.in_progress()
    return (newly_late & late & ~failed & not_running).with_label("later than its freshness allows")


def automation_sensor(keys: Iterable[dg.AssetKey]) -> dg.AutomationConditionSensorDefinition:
    """The sensor that evaluates the conditions; on by default."""
    return dg.AutomationConditionSensorDefinition(
        AUTOMATION_SENSOR,
        target=dg.AssetSelection.assets(*keys),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=15,
        run_tags={STARTED_BY: "freshness"},
        description="Starts tables that are late, and tables below one that was repaired.",
    )


def _any_of(condition: Condition, keys: Iterable[dg.AssetKey]) -> Condition:
    return reduce(dg.AutomationCondition.__or__, [AC.asset_matches(key, condition) for key in keys])


def _below(node: Node, graph: Graph) -> tuple[Node, ...]:
    return (node, *graph.downstream_of(node.name))


def _above(node: Node) -> list[Node]:
    above = [one.source for one in node.inputs if isinstance(one.source, Node)]
    return [n for upstream in above for n in (upstream, *_above(upstream))]
