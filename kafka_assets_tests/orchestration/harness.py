"""Dagster's daemons in small steps, on a real instance and a clock that the test moves.

Only the ends are stand-ins: a topic is a number per partition, and a run of a table copies numbers.
Sensors, conditions, freshness, runs and checks are Dagster's and the product's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from types import ModuleType
from typing import Any
from unittest.mock import patch

import dagster as dg
from dagster._core.definitions.freshness import (
    FreshnessState,
    FreshnessStateChange,
    FreshnessStateRecord,
)
from dagster._core.definitions.freshness_evaluator import TimeWindowFreshnessPolicyEvaluator
from dagster._core.loader import LoadingContextForTest
from dagster._core.test_utils import get_freezable_log_manager
from dagster_pyspark import LazyPySparkResource

import kafka_assets as ka
from kafka_assets.declarations import Topic
from kafka_assets.errors import KafkaAssetsError, SourceError
from kafka_assets.graph import Graph, Node, build_graph
from kafka_assets.orchestration.build import graph_defs
from kafka_assets.orchestration.names import AUTOMATION_SENSOR, LAG_SENSOR, STARTED_BY
from kafka_assets.settings import Settings
from kafka_assets.sources.kafka import TopicState
from kafka_assets.streaming.report import Conservation, RuleResult, RunReport, TableRuleResult
from kafka_assets.streaming.table_rules import aged

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()

LOG_MANAGER = get_freezable_log_manager()


@contextmanager
def frozen(now: float) -> Iterator[None]:
    """Stop Dagster's clock.

    Dagster's own `freeze_time` puts mocks there, which record each of some hundred thousand looks
    at the clock.
    """
    moment = datetime.fromtimestamp(now, UTC)
    with (
        patch("dagster._time._mockable_get_current_datetime", lambda: moment),
        patch("dagster._time._mockable_get_current_timestamp", moment.timestamp),
        patch("dagster._core.log_manager.DagsterLogManager", LOG_MANAGER),
    ):
        yield


class NoSpark(LazyPySparkResource):
    """Stands where nothing may start a JVM."""

    spark_config: dict[str, Any] = {}  # noqa: RUF012

    @property
    def spark_session(self) -> Any:
        return None


def pipeline(name: str = "events", **silver: Any) -> Any:
    """A topic with bronze, silver (late after ten minutes) and gold."""
    silver = {"freshness": timedelta(minutes=10), **silver}
    topic = ka.kafka_topic(name)

    def bronze(frame): ...
    def cleaned(frame): ...
    def summed(frame): ...

    for function, called, upstream in (
        (bronze, f"{name}_bronze", name),
        (cleaned, f"{name}_silver", f"{name}_bronze"),
        (summed, f"{name}_gold", f"{name}_silver"),
    ):
        function.__name__ = called
        function.__signature__ = _signature(upstream)  # type: ignore[attr-defined]
    module = ModuleType(name)
    rules = ka.expect_or_fail("sane", "amount < 1000000")
    for declared in (
        topic,
        ka.streaming_table(layer="bronze")(bronze),
        ka.streaming_table(layer="silver", **silver)(
            rules(ka.expect_or_drop("positive", "amount > 0")(cleaned))
        ),
        ka.materialized_view(layer="gold")(summed),
    ):
        setattr(module, declared.name, declared)
    return module


def _signature(parameter: str) -> Any:
    import inspect

    return inspect.Signature(
        [inspect.Parameter(parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    )


@dataclass
class World:
    """What is outside Dagster: topics, tables, and what is wrong with them.

    Attributes:
        ends: Topic -> end offset of each partition.
        missing: Topics that do not exist.
        down: The broker does not answer.
        broken: Table -> the error of its next runs.
        data: Table -> rows it took from upstream.
        version: Table -> its Delta version.
        aged: Topics whose waiting records are old.
    """

    ends: dict[str, list[int]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    down: bool = False
    broken: dict[str, KafkaAssetsError] = field(default_factory=dict)
    unaccounted: set[str] = field(default_factory=set)
    data: dict[str, int] = field(default_factory=dict)
    version: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    aged: set[str] = field(default_factory=set)
    asked: list[list[str]] = field(default_factory=list)

    def describe(self, topics: Iterable[str]) -> dict[str, TopicState]:
        names = list(topics)
        self.asked.append(names)
        if self.down:
            raise SourceError("the broker at here:9092 cannot be reached", transient=True)
        for name in names:
            if name in self.missing:
                raise SourceError(f"the topic {name!r} does not exist")
        return {
            name: TopicState(
                name, f"id-{name}", dict.fromkeys(range(len(e)), 0), dict(enumerate(e))
            )
            for name, e in ((name, self.ends.get(name, [0])) for name in names)
        }

    def waiting_since(self, offsets: Mapping[tuple[str, int], int], before_ms: int) -> set[str]:
        return {topic for topic, _ in offsets} & self.aged

    def compact(self, table: str) -> None:
        """What OPTIMIZE does: a new Delta version with the same rows."""
        self.version[table] += 1

    def run(
        self, node: Node, session: Any, settings: Settings, *, run_id: str, reported_version: Any
    ) -> RunReport:
        """Take what the upstream holds, or fail as told."""
        if node.name in self.broken:
            raise self.broken[node.name]
        upstream = node.inputs[0].source
        offsets: dict[str, tuple[int, int]] = {}
        had = self.data.get(node.name, 0)
        if isinstance(upstream, Topic):
            ends = self.ends[upstream.topic]
            has = sum(ends)
            if has != had:
                offsets = {f"{upstream.topic}/{p}": (0, end) for p, end in enumerate(ends)}
        else:
            has = self.data.get(upstream.name, 0)
        before = self.version.get(node.name, 0)
        if has != had or node.name not in self.version:
            self.version[node.name] = before + 1
            self.changed[node.name] = before + 1
        self.data[node.name] = has
        return report_of(
            node,
            run_id=run_id,
            kept=has - had,
            version_from=before,
            version_to=self.version[node.name],
            data_version=f"id-{node.name}:{self.changed[node.name]}",
            offsets=offsets,
            lost=node.name in self.unaccounted,
        )


def report_of(
    node: Node,
    *,
    run_id: str = "run",
    kept: int = 0,
    broken: Mapping[str, int] | None = None,
    lost: bool = False,
    **values: Any,
) -> RunReport:
    """A report of a table, with figures that agree unless rows are said to be lost."""
    broken = broken or {}
    dead = sum(broken.get(e.name, 0) for e in node.table.expectations_that("drop"))
    rules = tuple(
        RuleResult(
            e.name,
            e.action,
            e.text,
            broken.get(e.name, 0),
            {"topic": "events", "partition": 0, "offset": 7} if broken.get(e.name) else None,
        )
        for e in node.table.expectations
    )
    returned = kept + dead
    equality = Conservation(
        "rows_returned", returned + lost, returned, {"kept": kept, "dead": dead}
    )
    given: dict[str, Any] = {
        "table": node.name,
        "run_id": run_id,
        "started": datetime(2026, 3, 1, tzinfo=UTC),
        "seconds": 1.5,
        "batches": 1 if kept else 0,
        "returned": returned,
        "kept": kept,
        "dead": dead,
        "rules": rules,
        "conservation": (equality,),
        "version_from": 1,
        "version_to": 2,
        "data_version": "id:2",
        "bytes_written": 100,
        "schema": {"amount": "bigint"},
        "table_rules": tuple(
            aged(r, int(START), START)
            if r.rule == "fresh"
            else TableRuleResult(r.name, r.blocking, True, "kept")
            for r in node.table.table_expectations
        ),
    }
    return RunReport(**{**given, **values})


class Harness(AbstractContextManager["Harness"]):
    """A code location on an instance, with time standing still between steps."""

    def __init__(self, *modules: ModuleType, **settings: Any) -> None:
        self.settings = Settings(lake="/lake", **settings)
        self.graph: Graph = build_graph(modules, self.settings)
        self.world = World(ends={t.topic: [0] for t in self.graph.topics.values()})
        self.now = START
        self.instance = dg.DagsterInstance.ephemeral().__enter__()
        # Dagster reads the columns of this table of its own anew for every question about an asset.
        events: Any = self.instance.event_log_storage
        events.has_asset_key_col = cache(events.has_asset_key_col)
        self.cursor: str | None = None
        self._conditions: Any = None
        self.skipped: str | None = None
        self.load()

    def load(self, *modules: ModuleType) -> None:
        """Load the definitions, anew when modules are given."""
        if modules:
            self.graph = build_graph(modules, self.settings)
        self.defs = graph_defs(
            self.graph,
            self.settings,
            run=self.world.run,
            spark=NoSpark(),
            admin=lambda settings: self.world,
            clock=lambda: self.now,
        )

    def go_on_from(self, other: Harness) -> None:
        """Take over everything that happened to another harness of the same definitions."""
        for storage in ("run_storage", "event_log_storage"):
            source, target = (
                getattr(instance, storage)._held_conn.connection.driver_connection
                for instance in (other.instance, self.instance)
            )
            source.backup(target)
        for one in fields(World):
            setattr(self.world, one.name, deepcopy(getattr(other.world, one.name)))
        self.now, self.cursor, self.skipped = other.now, other.cursor, other.skipped
        self._conditions = other._conditions

    def __exit__(self, *error: object) -> None:
        self.instance.__exit__(*error)  # type: ignore[arg-type]

    def wait(self, **time: float) -> None:
        """Let time pass."""
        self.now += timedelta(**time).total_seconds()

    def lag_tick(self) -> list[dg.RunRequest]:
        """Evaluate `kafka_lag`; report its events, as the daemon does; start nothing."""
        with frozen(self.now):
            sensor = self.defs.get_sensor_def(LAG_SENSOR)
            context = dg.build_sensor_context(
                instance=self.instance, cursor=self.cursor, definitions=self.defs
            )
            tick = sensor.evaluate_tick(context)
            self.cursor = tick.cursor
            self.skipped = tick.skip_message
            for event in tick.asset_events:
                self.instance.report_runless_asset_event(event)
        return list(tick.run_requests or [])

    def automation_tick(self) -> set[str]:
        """Evaluate the conditions; the names of the tables that they ask for."""
        with frozen(self.now):
            evaluated = dg.evaluate_automation_conditions(
                defs=self.defs, instance=self.instance, cursor=self._conditions
            )
        self._conditions = evaluated.cursor
        return {r.key.path[-1] for r in evaluated.results if r.true_subset.size}

    def freshness_tick(self) -> None:
        """Do what the freshness daemon does every 30 seconds."""
        import asyncio

        async def evaluate() -> None:
            context = LoadingContextForTest(self.instance)
            nodes = self.defs.resolve_asset_graph()
            for key in nodes.materializable_asset_keys:
                node = nodes.get(key)
                if node.freshness_policy is None:
                    continue
                new = await TimeWindowFreshnessPolicyEvaluator().evaluate_freshness(context, node)
                record = await FreshnessStateRecord.gen(context, key)
                old = record.freshness_state if record else FreshnessState.UNKNOWN
                if record is None or new != old:
                    self.instance.report_runless_asset_event(
                        FreshnessStateChange(
                            key=key,
                            previous_state=old,
                            new_state=new,
                            state_change_timestamp=self.now,
                        )
                    )

        with frozen(self.now):
            asyncio.run(evaluate())

    def tick(self, **time: float) -> list[dg.RunRecord]:
        """Let all daemons look once, run what they start, and answer the runs."""
        self.wait(**time)
        before = set(self.instance.get_run_ids())
        requests = self.lag_tick()
        for request in requests:
            self.execute(request.asset_selection or [], request.tags)
        self.freshness_tick()
        late = self.automation_tick()
        if late:
            self.materialize(*late, tags={STARTED_BY: "freshness"})
        new = set(self.instance.get_run_ids()) - before
        return [r for r in self.runs() if r.dagster_run.run_id in new] if new else []

    def materialize(self, *names: str, tags: Mapping[str, str] | None = None) -> bool:
        """Run tables by name, as a person does in the UI; True when the run succeeded."""
        job = self.defs.resolve_implicit_global_asset_job_def()
        keys = [k for k in job.asset_layer.selected_asset_keys if k.path[-1] in names]
        return self.execute(keys, tags or {})

    def execute(self, keys: Iterable[dg.AssetKey], tags: Mapping[str, str]) -> bool:
        """Run assets in this process."""
        self.wait(seconds=1)
        with frozen(self.now):
            job = self.defs.resolve_implicit_global_asset_job_def()
            result = job.execute_in_process(
                instance=self.instance,
                asset_selection=list(keys),
                tags=dict(tags),
                raise_on_error=False,
            )
        self.wait(seconds=1)
        return result.success

    def leave_running(self, keys: Iterable[dg.AssetKey], tags: Mapping[str, str]) -> dg.DagsterRun:
        """A run that goes on for ever."""
        job = self.defs.resolve_implicit_global_asset_job_def().get_subset(
            asset_selection=set(keys)
        )
        return self.instance.create_run_for_job(
            job,
            status=dg.DagsterRunStatus.STARTED,
            tags=dict(tags),
            asset_selection=frozenset(keys),
        )

    def runs(self) -> list[dg.RunRecord]:
        """All runs, newest first."""
        return list(self.instance.get_run_records())

    def state(self, key: list[str]) -> FreshnessState:
        """What the freshness daemon said last of an asset."""
        record = self.instance.get_freshness_state_records([dg.AssetKey(key)])
        return record[dg.AssetKey(key)].freshness_state

    def events(self, key: list[str]) -> list[dg.AssetMaterialization]:
        """Materializations of an asset, newest first."""
        found = self.instance.fetch_materializations(dg.AssetKey(key), limit=100).records
        return [r.asset_materialization for r in found if r.asset_materialization is not None]


__all__ = ["AUTOMATION_SENSOR", "Harness", "World", "pipeline", "report_of"]
