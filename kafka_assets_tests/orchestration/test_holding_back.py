"""What waits keeps waiting, and what may go on does: turns, refusals, repairs and resets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin

import kafka_assets as ka
from kafka_assets.errors import (
    DeadShareExceeded,
    FenceRefused,
    RunFailed,
)
from kafka_assets.operations.replay import ReplayReport
from kafka_assets.orchestration import jobs
from kafka_assets.orchestration.history import failures_of, keys_in_flight, latest, repository_of
from kafka_assets.orchestration.names import (
    CHAIN,
    EMPTIED,
    HEARTBEAT,
    REPOSITORY,
    STARTED_BY,
    chains_of,
    table_key,
)
from kafka_assets.settings import DeadLetterSettings, SensorSettings, Settings
from kafka_assets_tests.helpers import module_of
from kafka_assets_tests.orchestration.harness import Harness, frozen, pipeline

SILVER = ["silver", "events_silver"]


@dataclass
class Table:
    """Stands for a table of the lake that a job opens."""

    path: str
    table_id: str = "id"
    version: int = 7
    data_version: str = "id:7"

    @classmethod
    def open(cls, path: str) -> Table:
        return cls(path)


def do(harness: Harness, job: str, **config: Any) -> None:
    """Run an operation's job, as a person does in the UI."""
    harness.wait(seconds=1)
    with frozen(harness.now):
        found = harness.defs.resolve_job_def(job)
        (step,) = found.nodes
        done = found.execute_in_process(
            run_config={"ops": {step.name: {"config": config}}}, instance=harness.instance
        )
    harness.wait(seconds=1)
    assert done.success


def two_topics() -> ModuleType:
    """Two topics with a bronze table each, and one table that reads both."""
    busy, quiet = ka.kafka_topic("busy"), ka.kafka_topic("quiet")

    @ka.streaming_table(layer="bronze")
    def many(busy): ...

    @ka.streaming_table(layer="bronze")
    def few(quiet): ...

    @ka.materialized_view(layer="gold")
    def both(many, few): ...

    return module_of(busy, quiet, many, few, both)


def test_of_two_topics_that_feed_one_table_the_busier_does_not_starve_the_other():
    with Harness(two_topics()) as harness:
        harness.world.ends = {"busy": [1], "quiet": [1]}
        started = []
        for _ in range(2):
            (run,) = harness.tick(seconds=15)
            started.append(run.dagster_run.tags[CHAIN])
            harness.world.ends["busy"][0] += 1
        assert started == ["busy", "quiet"]


def test_records_below_the_threshold_do_not_start_a_table_that_reads_more_than_the_topic():
    topic, other = ka.kafka_topic("events"), ka.kafka_topic("others")

    @ka.streaming_table(layer="bronze")
    def raw(others): ...

    @ka.streaming_table(layer="silver", reads={"raw": "static"})
    def joined(events, raw): ...

    module = module_of(topic, other, raw, joined)
    with Harness(module, sensor=SensorSettings(min_records=100)) as harness:
        harness.world.ends = {"events": [100], "others": [100]}
        for _ in range(3):
            harness.tick(seconds=15)
        harness.world.ends["events"] = [103]
        assert harness.tick(seconds=15) == []
        assert harness.materialize("raw")
        assert harness.tick(seconds=15) == []
        # Its table above still starts it, when a person brought that up to date.
        harness.world.ends["others"] = [103]
        assert harness.materialize("raw")
        assert len(harness.tick(seconds=15)) == 1


def over_a_view() -> ModuleType:
    """A table that reads another and a topic through temporary views."""
    topic, other = ka.kafka_topic("events"), ka.kafka_topic("others")

    @ka.streaming_table(layer="bronze")
    def raw(events): ...

    @ka.temporary_view()
    def shown(raw): ...

    @ka.temporary_view()
    def heard(others): ...

    @ka.streaming_table(layer="silver")
    def told(shown, heard): ...

    return module_of(topic, other, raw, shown, heard, told)


def test_a_table_over_views_goes_on_when_a_person_brought_the_table_above_up_to_date():
    with Harness(over_a_view()) as harness:
        harness.world.ends["events"] = [5]
        harness.tick()
        harness.tick(seconds=15)
        harness.world.ends["events"] = [6]
        assert harness.materialize("raw")
        assert harness.automation_tick() == {"told"}


def test_a_table_over_a_view_waits_after_a_failure_as_any_other():
    with Harness(over_a_view()) as harness:
        harness.world.ends["events"] = [5]
        harness.tick()
        harness.tick(seconds=15)
        harness.world.ends["events"] = [6]
        harness.world.broken["told"] = FenceRefused("gone", "gone", fix="repair")
        assert len(harness.tick(seconds=15)) == 1
        for _ in range(3):
            assert harness.tick(seconds=15) == []


def with_folder() -> ModuleType:
    """A pipeline whose silver table reads a folder, too."""
    arrived = ka.file_source("arrived", "landing", format="text")
    events = ka.kafka_topic("events")

    @ka.streaming_table(layer="bronze")
    def raw(events): ...

    @ka.streaming_table(layer="silver", freshness=timedelta(minutes=10))
    def mixed(raw, arrived): ...

    return module_of(arrived, events, raw, mixed)


@pytest.mark.parametrize("state", ["idle", "failed", "running"])
def test_a_table_is_renewed_only_when_its_folder_has_nothing_for_it(state):
    with Harness(with_folder()) as harness:
        harness.world.ends["events"] = [5]
        harness.tick()
        harness.tick(seconds=15)
        node = harness.graph.tables["mixed"]
        tags = {CHAIN: "arrived", STARTED_BY: "new_files"}
        if state == "failed":
            harness.world.broken["mixed"] = RunFailed("the engine stopped")
            harness.execute([table_key(node)], tags)
        if state == "running":
            harness.leave_running([table_key(node)], tags)
        harness.wait(minutes=6)
        harness.lag_tick()
        newest, *_ = harness.events(["silver", "mixed"])
        renewed = HEARTBEAT in (newest.tags or {})
        assert renewed == (state == "idle")


def test_a_failure_is_remembered_however_many_other_tables_ran_since():
    with Harness(pipeline(), pipeline("others")) as harness:
        harness.world.ends |= {"events": [5], "others": [5]}
        harness.tick()
        harness.world.broken["events_silver"] = FenceRefused("gone", "gone", fix="repair")
        assert not harness.materialize("events_silver", tags={STARTED_BY: "freshness"})
        with frozen(harness.now):
            key = dg.AssetKey(["bronze", "others_bronze"])
            job = harness.defs.resolve_implicit_global_asset_job_def()
            other = job.get_subset(asset_selection={key})
            for _ in range(40):
                harness.instance.create_run_for_job(
                    other,
                    status=dg.DagsterRunStatus.SUCCESS,
                    tags={STARTED_BY: "freshness"},
                    asset_selection=frozenset({key}),
                )
        harness.world.ends["events"] = [6]
        assert harness.lag_tick() == []
        assert "fence refused in events_silver: waits" in (harness.skipped or "")


def test_a_run_of_a_table_below_does_not_make_up_for_a_failure_above(built):
    built.world.ends["events"] = [9]
    built.world.broken["events_silver"] = FenceRefused("gone", "gone", fix="repair")
    built.tick(seconds=15)
    assert built.materialize("events_gold", tags={STARTED_BY: "freshness"})
    assert built.tick(seconds=15) == []
    assert "fence refused in events_silver: waits" in (built.skipped or "")


@pytest.mark.parametrize("where", ["declaration", "setting", "path"])
def test_a_refused_chain_goes_on_when_what_the_message_asks_for_was_changed(built, where):
    built.world.ends["events"] = [9]
    built.world.broken["events_silver"] = DeadShareExceeded("too many", fix="max_dead_share=")
    built.tick(seconds=15)
    assert built.tick(seconds=15) == []
    before = built.graph.tables["events_silver"].code_version
    if where == "setting":
        built.settings = Settings(lake="/lake", dead_letters=DeadLetterSettings(max_share=0.9))
    changed: dict[str, dict[str, Any]] = {
        "declaration": {"max_dead_share": 0.9},
        "path": {"path": "elsewhere"},
    }
    built.load(pipeline(**changed.get(where, {})))
    assert built.graph.tables["events_silver"].code_version == before
    del built.world.broken["events_silver"]
    assert len(built.tick(seconds=15)) == 1
    assert built.world.data["events_gold"] == 9


@pytest.mark.parametrize("job", ["repair", "accept_loss"])
def test_a_repair_lets_a_chain_go_on_that_the_fence_refused_once(built, job, monkeypatch):
    monkeypatch.setattr(jobs, "repair", lambda *_, **__: "mended")
    monkeypatch.setattr(jobs, "accept_loss", lambda *_, **__: ())
    built.world.ends["events"] = [9]
    built.world.broken["events_bronze"] = FenceRefused("source_recreated", "gone", fix=job)
    built.tick(seconds=15)
    assert built.tick(seconds=15) == []
    do(built, job, table="events_bronze")
    assert len(built.tick(seconds=15)) == 1
    assert built.tick(seconds=15) == []
    del built.world.broken["events_bronze"]
    do(built, job, table="events_bronze")
    assert len(built.tick(seconds=15)) == 1
    assert built.world.data["events_gold"] == 9


def test_a_table_below_bronze_that_was_reset_is_filled_again_and_not_renewed(built, monkeypatch):
    class Report:
        tables = ("events_silver",)
        phrase = None

    monkeypatch.setattr(jobs, "reset", lambda *_, **__: Report())
    monkeypatch.setattr(jobs, "LakeTable", Table)
    do(built, "reset", table="events_silver")
    assert EMPTIED in built.events(SILVER)[0].tags
    built.wait(minutes=6)
    (request,) = built.lag_tick()
    assert request.tags["kafka_assets/reason"] == "events_silver was reset"
    assert HEARTBEAT not in built.events(SILVER)[0].tags
    assert built.execute(request.asset_selection, request.tags)
    assert built.tick(seconds=15) == []


def test_a_replay_does_not_hold_back_what_is_below(built, monkeypatch):
    """A blocking check without a result for the newest materialization counts as not passed."""
    report = ReplayReport("events_silver", "replay", 2, 2, {}, 2)
    monkeypatch.setattr(jobs, "replay", lambda *_, **__: report)
    monkeypatch.setattr(jobs, "LakeTable", Table)
    built.automation_tick()
    do(built, "dead_letters_replay", table="events_silver")
    assert built.events(SILVER)[0].metadata["replayed"].value == 2
    assert built.automation_tick() == {"events_gold"}


def test_runs_of_other_code_locations_hold_nothing_back_and_fail_nothing(built):
    (chain,) = chains_of(built.graph)
    here, there = "__repository__@here", "__repository__@there"
    for label, status in ((there, "STARTED"), (there, "FAILURE")):
        built.instance.create_run_for_job(
            built.defs.resolve_job_def("repair"),
            run_config={"ops": {"repair_checkpoint": {"config": {"table": "events_bronze"}}}},
            status=dg.DagsterRunStatus[status],
            tags={REPOSITORY: label, CHAIN: "events"},
        )
    last = latest(built.instance, chain.keys)
    assert keys_in_flight(built.instance, here) == []
    assert failures_of(built.instance, chain, last, here).count == 0
    assert keys_in_flight(built.instance, there) == [None]
    assert failures_of(built.instance, chain, last, there).count == 1


def test_a_sensor_knows_its_repository_by_the_label_of_its_runs():
    origin = RegisteredCodeLocationOrigin("here")
    context = dg.SensorEvaluationContext(
        instance_ref=None,
        last_tick_completion_time=None,
        last_run_key=None,
        cursor=None,
        repository_name="__repository__",
        code_location_origin=origin,
    )
    assert repository_of(context) == "__repository__@here"
