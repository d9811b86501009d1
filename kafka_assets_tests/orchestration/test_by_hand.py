"""What happens outside of Dagster: people use commands, the lake is gone, events get old."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

import kafka_assets as ka
from kafka_assets.errors import (
    ExpectationFailed,
    FenceRefused,
    LakeError,
)
from kafka_assets.operations import audit
from kafka_assets.orchestration.names import (
    HEARTBEAT,
)
from kafka_assets.settings import Settings
from kafka_assets_tests.helpers import module_of
from kafka_assets_tests.orchestration.harness import Harness

SILVER = ["silver", "events_silver"]


@pytest.fixture
def lake(built, tmp_path):
    """The same on a lake that is there, in which people do things by commands."""
    built.settings = Settings(lake=str(tmp_path))
    built.load()

    def done(operation: str, table: str) -> None:
        at = datetime.fromtimestamp(built.now, UTC)
        audit.write(built.settings, [audit.Entry(operation, table)], at=at)

    return done


@pytest.mark.parametrize("command", ["repair", "accept_loss", "reset", "move"])
def test_a_command_lets_a_chain_go_on_that_the_fence_refused(built, lake, command):
    built.world.ends["events"] = [9]
    lake(command, "events_bronze")
    built.wait(seconds=5)
    built.world.broken["events_bronze"] = FenceRefused("source_recreated", "gone", fix=command)
    built.tick(seconds=15)
    assert built.tick(seconds=15) == [], "what was done before it was refused does not count"
    lake(command, "events_silver")
    assert built.tick(seconds=15) == [], "something was done to another table"
    built.wait(seconds=5)
    lake(command, "events_bronze")
    del built.world.broken["events_bronze"]
    assert len(built.tick(seconds=15)) == 1
    assert built.world.data["events_gold"] == 9


@pytest.mark.parametrize("command", ["repair", "reset"])
def test_of_all_commands_a_reset_alone_mends_a_table_whose_rows_break_a_rule(built, lake, command):
    built.world.ends["events"] = [9]
    rows: Any = {"sane": {"broken": 1, "first": None}}
    built.world.broken["events_silver"] = ExpectationFailed("sane", rules=rows, fix="-")
    built.tick(seconds=15)
    assert built.tick(seconds=15) == []
    built.wait(seconds=5)
    lake(command, "events_silver")
    del built.world.broken["events_silver"]
    assert len(built.tick(seconds=15)) == (command == "reset")


def test_what_a_clock_that_is_ahead_wrote_counts_when_its_time_has_come(built, lake):
    built.wait(minutes=5)
    lake("reset", "events_silver")
    built.wait(minutes=-2)
    assert built.lag_tick() == []
    built.wait(minutes=3)
    assert len(built.lag_tick()) == 1


def test_nothing_is_called_fresh_while_the_lake_cannot_be_read(built, lake, monkeypatch):
    def unreadable(*_: object) -> None:
        raise LakeError("gone")

    monkeypatch.setattr(audit, "read", unreadable)
    built.wait(minutes=6)
    built.lag_tick()
    assert HEARTBEAT not in built.events(SILVER)[0].tags


def test_a_table_that_was_reset_by_a_command_is_filled_again_once(built, lake):
    built.wait(minutes=6)
    lake("reset", "events_silver")
    (request,) = built.lag_tick()
    assert request.tags["kafka_assets/reason"] == "events_silver was reset"
    assert HEARTBEAT not in built.events(SILVER)[0].tags
    built.wait(seconds=5)
    assert built.execute(request.asset_selection, request.tags)
    assert built.tick(seconds=15) == []


def test_events_that_get_too_old_fail_their_check_once_and_without_a_run():
    topic = ka.kafka_topic("events")

    @ka.streaming_table(layer="bronze")
    @ka.expect_fresh("recent", "at", within=timedelta(hours=1))
    def raw(events): ...

    with Harness(module_of(topic, raw)) as harness:
        harness.world.ends["events"] = [5]
        harness.tick(seconds=15)
        key = dg.AssetCheckKey(dg.AssetKey(["bronze", "raw"]), "recent")

        def results() -> list[bool]:
            storage = harness.instance.event_log_storage
            found = storage.get_asset_check_execution_history(key, limit=9)
            return [one.evaluation.passed for one in found if one.evaluation]

        harness.wait(minutes=50)
        assert harness.lag_tick() == []
        assert results() == [True]
        harness.wait(minutes=20)
        for _ in range(2):
            assert harness.lag_tick() == []
            assert results() == [False, True]
