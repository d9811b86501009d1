"""What a run of a table tells Dagster, above all when it fails."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import pytest

import kafka_assets as ka
from kafka_assets.errors import (
    ExpectationFailed,
    FenceRefused,
    KafkaAssetsError,
    LakeError,
    LeaseHeld,
    PlanError,
    RunFailed,
    SourceError,
)
from kafka_assets.orchestration import assets
from kafka_assets.orchestration.names import FAILED_TABLE, FAILURE, lineage_version
from kafka_assets_tests.orchestration.harness import Harness, pipeline

SILVER = dg.AssetKey(["silver", "events_silver"])
SANE = dg.AssetCheckKey(SILVER, "sane")

REFUSED = ExpectationFailed(
    "a batch of 'events_silver' broke sane",
    rules={"sane": {"broken": 3, "first": {"topic": "events", "partition": 0, "offset": 7}}},
    fix="mend the producer",
)


@pytest.fixture
def harness(monkeypatch):
    monkeypatch.setattr(assets, "RETRIES", dg.RetryPolicy(max_retries=2))
    with Harness(pipeline()) as made:
        made.world.ends["events"] = [5]
        yield made


def failure_of(harness: Harness) -> str:
    (record, *_) = harness.runs()
    run_id = record.dagster_run.run_id
    (failure,) = harness.instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    assert failure.dagster_event is not None
    error = failure.dagster_event.step_failure_data.error
    assert error is not None
    return error.message


def attempts_of(harness: Harness) -> int:
    (record, *_) = harness.runs()
    restarted = dg.DagsterEventType.STEP_RESTARTED
    return 1 + len(harness.instance.all_logs(record.dagster_run.run_id, of_type=restarted))


def run_with(harness: Harness, error: KafkaAssetsError) -> None:
    harness.world.broken["events_silver"] = error
    assert not harness.materialize("events_bronze", "events_silver", "events_gold")


def test_a_stopped_batch_fails_its_check_and_claims_no_materialization(harness):
    run_with(harness, REFUSED)
    storage = harness.instance.event_log_storage
    (check,) = storage.get_asset_check_execution_history(SANE, limit=5)
    assert check.status.value == "FAILED"
    assert check.evaluation.metadata["first"].value == "events/0 offset 7"
    assert harness.events(list(SILVER.path)) == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (REFUSED, "expectation_failed"),
        (FenceRefused("source_recreated", "the topic was made anew", fix="move"), "fence_refused"),
        (LeaseHeld("held by pid 7"), "lease_held"),
        (LakeError("the disk is full"), "lake_error"),
        (PlanError("no column x"), "plan_error"),
        (RunFailed("the engine stopped"), "run_failed"),
        (SourceError("no such topic"), "source_error"),
    ],
)
def test_an_error_is_told_in_its_own_words_and_not_retried(harness, error, kind):
    run_with(harness, error)
    assert f"silver/events_silver: {error}" in failure_of(harness)
    tags = harness.runs()[0].dagster_run.tags
    assert tags[FAILURE] == kind
    assert tags[FAILED_TABLE] == "events_silver"
    assert attempts_of(harness) == 1


def test_a_broker_that_is_away_for_a_moment_is_tried_again(harness):
    run_with(harness, SourceError("cannot be reached", transient=True))
    assert attempts_of(harness) == 3


def test_commits_of_a_run_that_died_before_its_report_are_reported_by_the_next(harness):
    asked = []
    run = harness.world.run

    def spy(*args, **kwargs):
        asked.append(kwargs["reported_version"])
        return run(*args, **kwargs)

    harness.world.run = spy
    harness.load()
    harness.materialize("events_bronze")
    harness.world.ends["events"] = [6]
    harness.materialize("events_bronze")
    harness.materialize("events_bronze")
    assert asked == [0, 1, 2]


def test_a_materialization_reported_by_hand_does_not_hide_the_position(harness):
    harness.materialize("events_bronze")
    harness.instance.report_runless_asset_event(
        dg.AssetMaterialization(["bronze", "events_bronze"])
    )
    assert harness.lag_tick()[0].tags["kafka_assets/reason"] == "events_silver was never built"
    harness.materialize("events_bronze", "events_silver", "events_gold")
    harness.instance.report_runless_asset_event(
        dg.AssetMaterialization(["bronze", "events_bronze"])
    )
    assert harness.lag_tick() == []
    assert harness.skipped == "events: no lag"


def test_dead_letters_are_reported_only_when_they_changed(harness):
    run = harness.world.run
    letters = {"events_silver": "dead:1"}

    def with_letters(node, *args, **kwargs):
        report = run(node, *args, **kwargs)
        return replace(report, dead_letters_version=letters.get(node.name))

    harness.world.run = with_letters
    harness.load()
    for _ in range(3):
        harness.materialize("events_bronze", "events_silver")
    assert len(harness.events(["dlq", "events_silver"])) == 1
    letters["events_silver"] = "dead:2"
    harness.materialize("events_silver")
    assert len(harness.events(["dlq", "events_silver"])) == 2
    assert len(harness.events(["silver", "events_silver"])) == 4


def test_the_version_of_the_code_above_counts_too():
    with Harness(pipeline()) as before, Harness(_other_bronze()) as after:
        old, new = (h.graph.tables["events_silver"] for h in (before, after))
        assert old.code_version == new.code_version
        assert lineage_version(old) != lineage_version(new)


def _other_bronze():
    module = pipeline()
    module.events_bronze = ka.expect("read", "offset >= 0")(module.events_bronze)
    return module
