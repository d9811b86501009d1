"""The lease of a table on a lake that is no local folder."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

import kafka_assets as ka
from kafka_assets.errors import LakeError, LeaseHeld
from kafka_assets.graph import Node
from kafka_assets.settings import Settings
from kafka_assets.streaming import lease_object
from kafka_assets.streaming.lease import lease
from kafka_assets_tests.helpers import graph_of

LocalFileSystem: Any = type(UPath("local:///").fs)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_object, "BEAT", 0.05)
    monkeypatch.setattr(lease_object, "LAPSED", 0.2)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Settings:
    """A lake behind a file system that the product does not know as a folder of this machine."""
    settings = Settings(lake=f"local://{tmp_path}/lake")
    assert settings.local_lake is None
    return settings


def table(settings: Settings) -> Node:
    events = ka.kafka_topic("events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events

    return graph_of(settings, events, raw).tables["raw"]


def lease_file(settings: Settings) -> UPath:
    return UPath(settings.lake) / "_leases/raw.json"


def test_a_second_run_is_told_who_holds_the_table_for_as_long_as_it_lasts(
    elsewhere: Settings,
) -> None:
    node = table(elsewhere)
    with lease(node, elsewhere, "the-first"):
        for _ in range(2):
            with (
                pytest.raises(LeaseHeld, match="by another run: run the-first, pid"),
                lease(node, elsewhere, "the-second"),
            ):
                raise AssertionError("two hold it")
            # Much longer than one that nobody writes would last.
            time.sleep(0.5)
    with lease(node, elsewhere, "the-second"):
        pass
    assert not lease_file(elsewhere).exists()


def _hold_and_die(path: str) -> None:
    import os

    lease_object.BEAT = 0.05
    with lease_object.hold(UPath(path), {"run_id": "dead"}):
        os._exit(9)


def test_the_lease_of_a_process_that_was_killed_is_taken_over(elsewhere: Settings) -> None:
    path = lease_file(elsewhere)
    process = multiprocessing.get_context("spawn").Process(target=_hold_and_die, args=(str(path),))
    process.start()
    process.join(30)
    assert b'"dead"' in path.read_bytes()
    time.sleep(lease_object.LAPSED)
    with lease(table(elsewhere), elsewhere, "alive"):
        assert b'"alive"' in path.read_bytes()


def test_a_holder_whose_clock_is_late_is_not_taken_for_dead(
    elsewhere: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = table(elsewhere)
    with lease(node, elsewhere, "late"):
        # By the clock of this machine its last write is always too old.
        monkeypatch.setattr(lease_object, "LAPSED", -1)
        with pytest.raises(LeaseHeld, match="run late"), lease(node, elsewhere, "second"):
            raise AssertionError("two hold it")


def test_one_that_lost_its_lease_leaves_that_of_the_next(elsewhere: Settings) -> None:
    path = lease_file(elsewhere)
    with lease(table(elsewhere), elsewhere, "slow"):
        path.write_bytes(b'{"run_id": "next", "token": "other"}')
        time.sleep(0.2)
    assert b'"next"' in path.read_bytes()


def test_a_store_that_creates_over_what_is_there_does_not_take_a_lease_away(
    elsewhere: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = LocalFileSystem.pipe_file

    def pipe_file(self: Any, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        whole(self, path, value)

    monkeypatch.setattr(LocalFileSystem, "pipe_file", pipe_file)
    node = table(elsewhere)
    with (
        lease(node, elsewhere, "first"),
        pytest.raises(LeaseHeld, match="run first"),
        lease(node, elsewhere, "second"),
    ):
        raise AssertionError("two hold it")


def test_a_fault_of_the_store_neither_ends_a_lease_nor_the_run(
    elsewhere: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, whole = table(elsewhere), LocalFileSystem.pipe_file
    faults = [ConnectionError("gone"), ValueError("an error of the store's own")]

    def pipe_file(self: Any, path: str, value: bytes, **more: Any) -> None:
        if faults and path.endswith("raw.json") and lease_file(elsewhere).exists():
            raise faults.pop()
        whole(self, path, value, **more)

    monkeypatch.setattr(LocalFileSystem, "pipe_file", pipe_file)
    with lease(node, elsewhere, "first"):
        before = lease_file(elsewhere).read_bytes()
        time.sleep(0.5)
        assert not faults
        assert lease_file(elsewhere).read_bytes() != before
        monkeypatch.setattr(lease_object, "_read", _fails)


def _fails(_path: UPath) -> dict[str, Any]:
    raise ConnectionError("gone")


def test_a_lake_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = Settings(lake=f"local://{tmp_path}/file/lake")
    told = r"its lease .*file/lake/_leases/raw.json cannot be written"
    with pytest.raises(LakeError, match=told), lease(table(settings), settings, "run"):
        raise AssertionError("nothing is held")
