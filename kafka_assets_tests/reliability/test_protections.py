"""The judge turns red when a protection is switched off: the other tests here can fail."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_assets.demo.broker import Broker
from kafka_assets_tests.reliability.judge import judge
from kafka_assets_tests.reliability.pair import Pair
from kafka_assets_tests.reliability.siege import Siege
from kafka_assets_tests.reliability.windows import AFTER_DELTA, AFTER_OFFSETS
from kafka_assets_tests.reliability.workers import Setup

# Tests of the tests: they show that the others can fail, and need not be shown each time.
pytestmark = [pytest.mark.spark, pytest.mark.verify, pytest.mark.timeout(1800)]

TRIES = 4
"""A kill may come too late for its window on a busy machine; so often it is aimed again."""


@pytest.fixture
def setup(tmp_path: Path, broker: Broker, topic_name: str) -> Setup:
    return Setup(tmp_path / "lake", broker.bootstrap, topic_name)


def test_without_transaction_ids_a_kill_after_the_commit_doubles_rows(setup: Setup) -> None:
    folder, off = setup.lake.parent, ("transactions",)
    with Siege(folder, setup.bootstrap, setup.topic, without=off) as siege:
        assert not siege.recover().doubled
        for _ in range(TRIES):
            kill = siege.strike(AFTER_DELTA, "clean")
            print(kill)
            verdict = siege.recover()
            if verdict.doubled:
                return
    raise AssertionError(f"the judge saw nothing: {verdict}")


def test_without_the_fence_an_older_checkpoint_loses_rows(setup: Setup) -> None:
    folder, off = setup.lake.parent, ("fence",)
    with Siege(folder, setup.bootstrap, setup.topic, without=off) as siege:
        checkpoint = siege.lake / "_checkpoints/bronze/raw"
        older = folder / "older"
        for _ in range(2):
            siege.ledger.send(50)
            assert siege.recover().exact
            if not older.exists():
                shutil.copytree(checkpoint, older)
        shutil.rmtree(checkpoint)
        older.rename(checkpoint)
        siege.ledger.send(50)
        verdict = siege.recover()
    assert verdict.bronze_lost, verdict
    assert verdict.lost, verdict


def test_without_lease_and_transaction_ids_a_second_writer_doubles_rows(setup: Setup) -> None:
    with Pair(replace(setup, without=("lease", "transactions")), warm=True) as pair:
        answers = pair.overtake(AFTER_OFFSETS, "clean")
        print(answers)
        verdict = judge(pair.lake, pair.ledger)
    assert not any("LeaseHeld" in answer for answer in answers), answers
    assert verdict.doubled, verdict
