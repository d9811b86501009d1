"""When runs start and when they do not, as behaviour over many ticks."""

from __future__ import annotations

import itertools

import dagster as dg
from dagster._core.definitions.freshness import FreshnessState

from kafka_assets.errors import ExpectationFailed, FenceRefused, RunFailed
from kafka_assets.orchestration.names import CHAIN, HEARTBEAT, STARTED_BY
from kafka_assets.settings import SensorSettings
from kafka_assets_tests.orchestration.harness import Harness, pipeline

SILVER = ["silver", "events_silver"]
TABLES = {"events_bronze", "events_silver", "events_gold"}

REFUSED = ExpectationFailed(
    "3 rows break sane",
    rules={"sane": {"broken": 3, "first": {"topic": "events", "partition": 0, "offset": 7}}},
    fix="mend the producer",
)


def tables_of(record: dg.RunRecord) -> set[str]:
    keys = record.dagster_run.asset_selection or set()
    return {key.path[-1] for key in keys if key.path[0] != "dlq"}


def test_new_data_starts_one_run_of_the_whole_chain():
    with Harness(pipeline()) as harness:
        assert harness.tick() == []
        harness.world.ends["events"] = [5]
        (run,) = harness.tick(seconds=15)
        assert tables_of(run) == TABLES
        assert run.dagster_run.status == dg.DagsterRunStatus.SUCCESS
        assert run.dagster_run.tags[CHAIN] == "events"
        assert harness.world.data == dict.fromkeys(TABLES, 5)
        for _ in range(10):
            assert harness.tick(seconds=15) == []


def test_each_arrival_of_data_starts_its_own_run(built):
    for end in (6, 7, 8):
        built.world.ends["events"] = [end]
        assert len(built.tick(seconds=15)) == 1
        assert built.tick(seconds=15) == []
    assert built.world.data["events_gold"] == 8


def test_a_run_that_has_not_ended_is_not_requested_again(built):
    built.world.ends["events"] = [6]
    (request,) = built.lag_tick()
    built.leave_running(request.asset_selection, request.tags)
    for _ in range(10):
        built.wait(seconds=15)
        assert built.lag_tick() == []
        assert built.automation_tick() == set()
    assert built.skipped == "events: a run is in flight"


def test_a_run_that_a_person_started_is_not_doubled(built):
    built.world.ends["events"] = [6]
    keys = [dg.AssetKey(["bronze", "events_bronze"])]
    built.leave_running(keys, {})
    built.wait(seconds=15)
    assert built.lag_tick() == []


def test_an_idle_topic_starts_nothing_and_does_not_go_stale(built):
    for _ in range(60):
        assert built.tick(seconds=30) == []
        assert built.state(SILVER) == FreshnessState.PASS


def test_a_heartbeat_keeps_the_data_version_and_is_marked(built):
    (real,) = built.events(SILVER)
    built.tick(minutes=6)
    beat, _ = built.events(SILVER)
    assert beat.tags[HEARTBEAT] == "true"
    assert beat.tags["dagster/data_version"] == real.tags["dagster/data_version"]
    assert "kept" not in beat.metadata


def test_heartbeats_stay_rare(built):
    for _ in range(20):
        built.tick(seconds=30)
    assert len(built.events(SILVER)) == 1 + 2


def test_a_heartbeat_does_not_hold_back_what_is_below(built):
    """A blocking check without a result for the newest materialization counts as not passed."""
    built.world.ends["events"] = [9]
    assert built.materialize("events_bronze", "events_silver")
    built.wait(minutes=6)
    assert built.lag_tick() == []
    assert HEARTBEAT in built.events(SILVER)[0].tags
    assert built.automation_tick() == {"events_gold"}


def test_repair_by_hand_after_heartbeats_goes_on_to_gold(built):
    for _ in range(12):
        built.tick(minutes=1)
    built.world.ends["events"] = [9]
    built.world.broken["events_silver"] = REFUSED
    (failed,) = built.tick(seconds=15)
    assert failed.dagster_run.status == dg.DagsterRunStatus.FAILURE
    for _ in range(30):
        assert built.tick(minutes=1) == []
    assert built.world.data["events_gold"] == 5
    del built.world.broken["events_silver"]
    assert built.materialize("events_silver")
    (run,) = built.tick(seconds=15)
    assert tables_of(run) == {"events_gold"}
    assert built.world.data["events_gold"] == 9
    for _ in range(10):
        assert built.tick(seconds=15) == []


def test_a_failed_blocking_check_holds_back_what_is_below_in_the_same_run(built):
    built.world.ends["events"] = [9]
    built.world.broken["events_silver"] = REFUSED
    built.tick(seconds=15)
    assert built.world.data["events_bronze"] == 9
    assert built.world.data["events_gold"] == 5
    assert len(built.events(SILVER)) == 1


def test_rows_that_are_unaccounted_for_hold_back_gold_and_the_next_try_recovers(built):
    built.world.ends["events"] = [9]
    built.world.unaccounted.add("events_silver")
    (failed,) = built.tick(seconds=15)
    assert failed.dagster_run.status == dg.DagsterRunStatus.FAILURE
    assert built.world.data["events_gold"] == 5
    assert built.tick(seconds=15) == []
    built.world.unaccounted.clear()
    (run,) = built.tick(seconds=60)
    assert run.dagster_run.status == dg.DagsterRunStatus.SUCCESS
    assert built.world.data["events_gold"] == 9


def test_a_failed_blocking_check_of_a_manual_run_holds_back_gold_until_it_passes(built):
    built.world.ends["events"] = [9]
    built.world.unaccounted.add("events_silver")
    assert not built.materialize("events_bronze", "events_silver")
    for _ in range(10):
        assert built.tick(seconds=15) == []
    built.world.unaccounted.clear()
    assert built.materialize("events_silver")
    (run,) = built.tick(seconds=15)
    assert tables_of(run) == {"events_gold"}


def test_a_failed_expectation_waits_for_changed_code(built):
    built.world.ends["events"] = [9]
    built.world.broken["events_silver"] = REFUSED
    built.tick(seconds=15)
    for _ in range(20):
        assert built.tick(minutes=10) == []
        built.world.ends["events"][0] += 1
    assert "waits for changed code" in (built.skipped or "")
    built.load(pipeline(comment="other text, same code"))
    assert built.tick(minutes=1) == []
    del built.world.broken["events_silver"]
    built.load(_with_other_rule())
    (run,) = built.tick(seconds=15)
    assert run.dagster_run.status == dg.DagsterRunStatus.SUCCESS
    assert tables_of(run) == TABLES


def _with_other_rule():
    import kafka_assets as ka

    module = pipeline()
    module.events_silver = ka.expect("whole", "amount = 1")(module.events_silver)
    return module


def test_a_fence_refusal_waits_until_a_manual_run_succeeds(built):
    built.world.ends["events"] = [9]
    built.world.broken["events_bronze"] = FenceRefused("source_recreated", "gone", fix="repair")
    built.tick(seconds=15)
    for _ in range(20):
        assert built.tick(minutes=10) == []
    del built.world.broken["events_bronze"]
    assert built.materialize("events_bronze")
    runs = [run for _ in range(5) for run in built.tick(seconds=15)]
    assert len(runs) == 1
    assert built.world.data["events_gold"] == 9


def test_a_chain_that_fails_backs_off_doubling_to_an_hour(built):
    built.world.ends["events"] = [9]
    built.world.broken["events_silver"] = RunFailed("the engine stopped")
    starts = []
    for _ in range(2 * 60 + 5):
        starts += [built.now for _ in built.tick(minutes=1)]
    pauses = [round((later - earlier) / 60) for earlier, later in itertools.pairwise(starts)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60]


def test_a_success_ends_the_back_off(built):
    built.world.ends["events"] = [9]
    built.world.broken["events_silver"] = RunFailed("the engine stopped")
    for _ in range(40):
        built.tick(seconds=15)
    built.world.broken.clear()
    for _ in range(40):
        built.tick(seconds=15)
    assert built.world.data["events_gold"] == 9
    built.world.ends["events"] = [10]
    assert len(built.tick(seconds=15)) == 1
    built.world.broken["events_silver"] = RunFailed("the engine stopped")
    built.world.ends["events"] = [11]
    assert len(built.tick(seconds=15)) == 1
    assert built.tick(seconds=15) == []
    assert "1 in a row" in (built.skipped or "")


def test_a_failed_chain_is_never_renewed(built):
    built.world.ends["events"] = [9]
    built.world.broken["events_silver"] = REFUSED
    built.tick(seconds=15)
    for _ in range(25):
        built.tick(minutes=1)
    assert built.state(SILVER) == FreshnessState.FAIL
    assert len(built.events(SILVER)) == 1


def test_a_failing_chain_does_not_hold_up_another():
    with Harness(pipeline(), pipeline("others")) as harness:
        harness.world.broken["events_bronze"] = RunFailed("the engine stopped")
        harness.world.ends |= {"events": [3], "others": [3]}
        assert len(harness.tick()) == 2
        harness.world.ends["others"] = [4]
        (run,) = harness.tick(seconds=15)
        assert run.dagster_run.tags[CHAIN] == "others"


def test_rows_below_the_threshold_wait_until_freshness_starts_exactly_one_run():
    settings = {"sensor": SensorSettings(min_records=100)}
    with Harness(pipeline(), **settings) as harness:
        harness.world.ends["events"] = [100]
        assert len(harness.tick()) == 1
        harness.tick(seconds=15)
        harness.world.ends["events"] = [103]
        assert [r for _ in range(9) for r in harness.tick(minutes=1)] == []
        (run,) = [r for _ in range(10) for r in harness.tick(seconds=30)]
        assert run.dagster_run.tags[STARTED_BY] == "freshness"
        assert tables_of(run) == TABLES
        assert harness.world.data["events_gold"] == 103


def test_each_time_a_table_gets_late_starts_exactly_one_run():
    settings = {"sensor": SensorSettings(min_records=100)}
    with Harness(pipeline(), **settings) as harness:
        harness.world.ends["events"] = [100]
        harness.tick()
        harness.tick(seconds=15)
        for end in (103, 106, 109):
            harness.world.ends["events"] = [end]
            assert len([r for _ in range(22) for r in harness.tick(seconds=30)]) == 1
            assert harness.world.data["events_gold"] == end


def test_a_late_table_is_asked_for_once_although_the_daemon_has_not_looked_again(built):
    built.world.down = True
    built.wait(minutes=11)
    built.freshness_tick()
    assert built.automation_tick() == TABLES
    assert built.materialize(*TABLES, tags={STARTED_BY: "freshness"})
    assert built.state(SILVER) == FreshnessState.WARN
    for _ in range(3):
        built.wait(seconds=15)
        assert built.automation_tick() == set()


def test_a_late_table_that_is_being_run_is_not_asked_for(built):
    built.world.ends["events"] = [6]
    (request,) = built.lag_tick()
    built.leave_running(request.asset_selection, request.tags)
    built.wait(minutes=11)
    built.freshness_tick()
    assert built.state(SILVER) == FreshnessState.WARN
    assert built.automation_tick() == set()


def test_a_failed_run_of_a_late_table_is_tried_again_after_a_pause():
    settings = {"sensor": SensorSettings(min_records=100)}
    with Harness(pipeline(), **settings) as harness:
        harness.world.ends["events"] = [100]
        harness.tick()
        harness.tick(seconds=15)
        harness.world.ends["events"] = [103]
        harness.world.broken["events_bronze"] = RunFailed("the engine stopped")
        failed = next(r for _ in range(15) for r in harness.tick(minutes=1))
        assert failed.dagster_run.tags[STARTED_BY] == "freshness"
        harness.world.broken.clear()
        assert harness.tick(seconds=15) == []
        (again,) = harness.tick(minutes=1)
        assert again.dagster_run.tags[STARTED_BY] == "kafka_lag"
        assert harness.world.data["events_gold"] == 103


def test_an_old_record_starts_the_chain_below_the_threshold():
    settings = {"sensor": SensorSettings(min_records=100, max_age_seconds=30)}
    with Harness(pipeline(), **settings) as harness:
        harness.world.ends["events"] = [3]
        assert harness.tick() == []
        assert harness.skipped == "events: lag 3, below 100"
        harness.world.aged.add("events")
        assert len(harness.tick(seconds=15)) == 1


def test_compaction_starts_nothing(built):
    for table in TABLES:
        built.world.compact(table)
    assert built.materialize("events_bronze")
    assert built.materialize("events_silver")
    for _ in range(10):
        assert built.tick(seconds=15) == []


def test_a_broker_that_is_down_is_a_skip_with_its_name(built):
    built.world.down = True
    assert built.lag_tick() == []
    assert "here:9092" in (built.skipped or "")


def test_nothing_is_lost_when_the_broker_comes_back(built):
    built.world.down = True
    built.world.ends["events"] = [9]
    built.tick(seconds=15)
    built.world.down = False
    assert len(built.tick(seconds=15)) == 1


def test_a_missing_topic_does_not_hold_up_the_others():
    with Harness(pipeline(), pipeline("others")) as harness:
        harness.world.missing.add("events")
        assert harness.tick() == []
        assert "the topic 'events' does not exist" in (harness.skipped or "")
        harness.world.ends["others"] = [4]
        (run,) = harness.tick(seconds=15)
        assert run.dagster_run.tags[CHAIN] == "others"


def test_all_topics_are_asked_for_at_once():
    with Harness(pipeline(), pipeline("others")) as harness:
        harness.tick()
        assert harness.world.asked == [["events", "others"]]


def test_a_topic_is_reported_only_when_its_offsets_moved(built):
    before = len(built.events(["kafka", "events"]))
    for _ in range(10):
        built.tick(seconds=15)
    assert len(built.events(["kafka", "events"])) == before
    built.world.ends["events"] = [6]
    built.tick(seconds=15)
    reported = built.events(["kafka", "events"])
    assert len(reported) == before + 1
    assert reported[0].metadata["lag"].value == 1
    assert reported[0].metadata["records"].value == 6


def test_records_that_no_run_can_read_do_not_start_runs_for_ever(built):
    """An open transaction moves the end offset, and a committed read stops before it."""
    built.world.ends["events"] = [6]
    built.world.data["events_bronze"] = 6
    assert len(built.tick(seconds=15)) == 1
    assert [r for _ in range(20) for r in built.tick(seconds=15)] == []
    assert (
        built.skipped == "events: lag 1, which the last run could not read (an open transaction?)"
    )


def test_a_new_table_below_a_quiet_topic_is_built(built):
    import kafka_assets as ka

    module = pipeline()

    @ka.materialized_view(layer="gold")
    def events_daily(events_silver): ...

    module.events_daily = events_daily
    built.load(module)
    (run,) = built.tick(seconds=15)
    assert "events_daily" in tables_of(run)
    assert built.tick(seconds=15) == []


def test_a_cursor_that_somebody_changed_does_no_harm(built):
    built.cursor = "not json"
    assert built.tick(seconds=15) == []
    built.world.ends["events"] = [6]
    assert len(built.tick(seconds=15)) == 1
