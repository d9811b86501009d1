"""The `kafka_lag` sensor: asks the broker how far topics reach, and starts their chains.

It never consumes and never starts Spark. What it knows of runs comes from the instance; its cursor
holds only what it said last of each topic. What holds a chain back, and how one is asked for, is
in `verdicts`. When a table starts for another reason is in `automation`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import dagster as dg

from kafka_assets.errors import SourceError
from kafka_assets.graph import Graph, Node
from kafka_assets.orchestration import ageing, heartbeat, metadata
from kafka_assets.orchestration.history import (
    Failures,
    Materialization,
    failures_of,
    keys_in_flight,
    latest,
    repository_of,
)
from kafka_assets.orchestration.names import (
    LAG_SENSOR,
    Chain,
    TopicChain,
    chains_of,
    folder_chains_of,
    table_key,
    topic_key,
)
from kafka_assets.orchestration.verdicts import (
    Busy,
    Done,
    Last,
    Verdict,
    done_by_hand,
    emptied,
    held_back,
    in_flight,
    in_turn,
    run_request,
    said_before,
)
from kafka_assets.settings import KafkaSettings, SensorSettings, Settings
from kafka_assets.sources.kafka import KafkaAdmin, TopicState

SAME_OFFSETS_SECONDS = 600.0
"""How long a chain is not started again for end offsets that a good run was started for before."""

FailuresOf = Callable[[Chain], Failures]
Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation


class Admin(Protocol):
    """What the sensor asks of a broker."""

    def describe(self, topics: Iterable[str]) -> dict[str, TopicState]:
        """State of topics."""

    def waiting_since(self, offsets: Mapping[tuple[str, int], int], before_ms: int) -> set[str]:
        """Topics with a record at or beyond offsets that is older than a time."""


@dataclass
class Tick:
    """What one evaluation of the sensor knows.

    Attributes:
        now: Seconds since 1970-01-01 UTC.
        settings: The thresholds and pauses.
        graph: The tables.
        states: Name at the broker -> what the topic holds, for topics that could be described.
        aged: Names at the broker of topics whose oldest waiting record is too old.
        last: Newest materializations.
        busy: Keys of the runs in flight; None stands for a run that may do all.
        done: What people did to tables.
        said: What the cursor holds, by the topic's name in the graph.
    """

    now: float
    settings: Settings
    graph: Graph
    states: Mapping[str, TopicState]
    aged: frozenset[str]
    last: Last
    busy: Busy
    done: Done
    said: dict[str, dict[str, Any]] = field(default_factory=dict)


def kafka_lag_sensor(
    graph: Graph,
    settings: Settings,
    *,
    admin: Callable[[KafkaSettings], Admin] = KafkaAdmin,
    clock: Callable[[], float] = time.time,
) -> dg.SensorDefinition:
    """The sensor for all topics; on by default.

    Args:
        graph: The topics and tables.
        settings: How the broker is reached, and when a chain starts.
        admin: Makes what asks the broker.
        clock: Seconds since 1970-01-01 UTC.
    """
    chains = chains_of(graph)
    targets = [table_key(node) for node in graph.tables.values()]

    @dg.sensor(
        name=LAG_SENSOR,
        target=dg.AssetSelection.assets(*sorted({k for c in chains for k in c.keys})),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=settings.sensor.interval_seconds,
        description="Starts a topic's tables when records wait, and keeps idle ones fresh.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        asked = admin(settings.kafka)
        try:
            states, problems = _describe(asked, [t.topic for t in graph.topics.values()])
            last = latest(context.instance, targets)
            aged = _aged(asked, chains, states, last, settings.sensor, clock())
        except SourceError as error:
            return dg.SkipReason(str(error))
        said = said_before(context.cursor)
        here = repository_of(context)
        busy = keys_in_flight(context.instance, here)
        now = clock()
        done = done_by_hand(settings, now)
        tick = Tick(now, settings, graph, states, aged, last, busy, done or {}, said)

        def failures(chain: Chain) -> Failures:
            return failures_of(context.instance, chain, last, here)

        verdicts = {
            chain.name: verdict(tick, chain, failures(chain))
            for chain in chains
            if chain.topic.topic in states
        }
        requests = _requests(tick, chains, verdicts)
        events: list[Event] = [*_moved_topics(tick)]
        # A lake that cannot be read may have been reset: nothing of it is called fresh.
        idle = [] if done is None else _idle_tables(tick, verdicts, chains, failures)
        for node in idle:
            events += heartbeat.renewal(context.instance, node, last[table_key(node)])
        events += ageing.grown_old(context.instance, graph.tables.values(), now)
        notes = [*problems, *(f"{name}: {v.why}" for name, v in verdicts.items())]
        return dg.SensorResult(
            run_requests=requests,
            asset_events=events,
            cursor=json.dumps(tick.said, sort_keys=True),
            skip_reason=None if requests else "; ".join(notes) or "no topics",
        )

    return evaluate


def verdict(tick: Tick, chain: TopicChain, failures: Failures) -> Verdict:
    """Whether a chain starts now, and why."""
    held = held_back(chain, tick.busy, failures, tick.graph, tick.settings, tick.now, tick.done)
    if held is not None:
        return held
    empty = emptied(chain, tick.last, tick.done)
    if empty is not None:
        return Verdict(True, f"{empty.name} was reset")
    never_built = [n for n in chain.tables if table_key(n) not in tick.last]
    if never_built and any(table_key(n) in tick.last for n in chain.readers):
        return Verdict(True, f"{never_built[0].name} was never built")
    state = tick.states[chain.topic.topic]
    lag = lag_of(chain, state, tick.last)
    if lag == 0:
        return Verdict(False, "no lag", healthy=True)
    said = tick.said.get(chain.name, {})
    asked_before = said.get("started") == version_of(state)
    if asked_before and tick.now - said.get("at", 0.0) < SAME_OFFSETS_SECONDS:
        return Verdict(
            False, f"lag {lag}, which the last run could not read (an open transaction?)"
        )
    if lag < 0:
        return Verdict(True, "the topic's offsets went back")
    if lag >= tick.settings.sensor.min_records:
        return Verdict(True, f"lag {lag}")
    if chain.topic.topic in tick.aged:
        return Verdict(True, f"lag {lag}, some of it too old")
    return Verdict(False, f"lag {lag}, below {tick.settings.sensor.min_records}")


def lag_of(chain: TopicChain, state: TopicState, last: Last) -> int:
    """Records that wait for the slowest reader of a topic; negative when offsets went back."""
    lags = []
    for node in chain.readers:
        saved = _saved(node, state, last)
        if any(state.end[p] < saved[p] for p in state.end):
            return -1
        lags.append(sum(state.end[p] - saved[p] for p in state.end))
    return max(lags, default=0)


def version_of(state: TopicState) -> str:
    """Names what a topic holds; it changes when a record arrives."""
    text = f"{state.topic_id} {sorted(state.end.items())}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _describe(admin: Admin, topics: list[str]) -> tuple[dict[str, TopicState], list[str]]:
    """What topics hold, and what is wrong with those that cannot be described."""
    try:
        return admin.describe(topics), []
    except SourceError as error:
        if error.transient:
            raise
    # One of them is missing or forbidden; the others must not wait for it.
    states: dict[str, TopicState] = {}
    problems = []
    for topic in topics:
        try:
            states |= admin.describe([topic])
        except SourceError as error:
            if error.transient:
                raise
            problems.append(str(error).replace("\n", " "))
    return states, problems


def _aged(
    admin: Admin,
    chains: Iterable[TopicChain],
    states: Mapping[str, TopicState],
    last: Last,
    settings: SensorSettings,
    now: float,
) -> frozenset[str]:
    if settings.max_age_seconds is None:
        return frozenset()
    offsets: dict[tuple[str, int], int] = {}
    for chain in chains:
        state = states.get(chain.topic.topic)
        if state is not None and 0 < lag_of(chain, state, last) < settings.min_records:
            for node in chain.readers:
                for partition, saved in _saved(node, state, last).items():
                    where = (state.topic, partition)
                    offsets[where] = min(saved, offsets.get(where, saved))
    if not offsets:
        return frozenset()
    before = now - settings.max_age_seconds
    return frozenset(admin.waiting_since(offsets, int(before * 1000)))


def _saved(node: Node, state: TopicState, last: Last) -> dict[int, int]:
    """The offset at which a table goes on, for each partition."""
    found = last.get(table_key(node))
    known = {} if found is None or found.position is None else found.position.offsets
    return {p: known.get(f"{state.topic}/{p}", state.earliest.get(p, 0)) for p in state.end}


def _requests(
    tick: Tick, chains: Iterable[TopicChain], verdicts: Mapping[str, Verdict]
) -> list[dg.RunRequest]:
    requests = []
    started: set[dg.AssetKey] = set()
    for chain in in_turn(chains, tick.said):
        found = verdicts.get(chain.name)
        # A table of two chains: the second chain has its turn at a later tick.
        if found is None or not found.start or started & chain.keys:
            continue
        started |= chain.keys
        said = tick.said.setdefault(chain.name, {})
        said["started"] = version_of(tick.states[chain.topic.topic])
        said["at"] = tick.now
        requests.append(run_request(chain, found, LAG_SENSOR))
    return requests


def _moved_topics(tick: Tick) -> list[dg.AssetMaterialization]:
    events = []
    chains = {chain.name: chain for chain in chains_of(tick.graph)}
    for name, topic in tick.graph.topics.items():
        state = tick.states.get(topic.topic)
        said = tick.said.setdefault(name, {})
        if state is None or said.get("version") == version_of(state):
            continue
        said["version"] = version_of(state)
        lag = lag_of(chains[name], state, tick.last) if name in chains else None
        events.append(
            dg.AssetMaterialization(
                topic_key(topic),
                description="The topic's offsets moved.",
                metadata=metadata.topic_state(state, lag),
                tags={"dagster/data_version": version_of(state)},
            )
        )
    return events


def _idle_tables(
    tick: Tick,
    verdicts: Mapping[str, Verdict],
    chains: Iterable[TopicChain],
    failures: FailuresOf,
) -> list[Node]:
    """Tables to renew: all their chains are healthy, and their topics without lag."""
    may: set[str] = set()
    must_not: set[str] = set()
    for chain in chains:
        found = verdicts.get(chain.name)
        names = {node.name for node in chain.tables}
        if found is None or not found.healthy:
            must_not |= names
            continue
        due = {n.name for n in chain.tables if heartbeat.due(n, _of(tick, n), tick.now)}
        if due:
            may |= due
            must_not |= failures(chain).unfinished
    for folder in folder_chains_of(tick.graph):
        names = {node.name for node in folder.tables}
        # What is not due anyway is not worth a question to the instance.
        if may & names:
            must_not |= _not_of_folder(tick, folder, names, failures)
    return [node for name, node in tick.graph.tables.items() if name in may - must_not]


def _not_of_folder(
    tick: Tick, chain: Chain, names: set[str], failures: FailuresOf
) -> set[str] | frozenset[str]:
    """Tables of a folder's chain that are behind the folder, so that nothing may renew them."""
    if in_flight(chain, tick.busy):
        return names
    found = failures(chain)
    return names if found.count and not found.repaired else found.unfinished


def _of(tick: Tick, node: Node) -> Materialization | None:
    return tick.last.get(table_key(node))
