"""Nothing is lost and nothing doubled when a run is killed, at whatever moment.

Twenty-one kills with SIGKILL: eight at the windows in which a crash could do harm, ten at random
moments, of which some hit the recovery from the one before, one with other rules after it,
and two in replays. All befall one lake, whose rows every judgement counts from the first on. Those
of the broker are in `reliability_topics/test_brokers.py` and `demo/test_broker.py`.
"""

from __future__ import annotations

import random
import re

import pytest

from kafka_assets_tests.reliability import windows
from kafka_assets_tests.reliability.judge import STRICT_RULE
from kafka_assets_tests.reliability.ledger import ACKNOWLEDGED
from kafka_assets_tests.reliability.reader import Reader
from kafka_assets_tests.reliability.siege import SEED, Siege
from kafka_assets_tests.reliability.workers import GROUP, JVM, PYTHON

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

AIMED = (
    (windows.BEFORE_OFFSETS, "raw", GROUP),
    (windows.AFTER_OFFSETS, "clean", JVM),
    (windows.MID_PARQUET, "raw", PYTHON),
    (windows.BETWEEN, "clean", GROUP),
    (windows.AFTER_DELTA, "raw", GROUP),
    (windows.AFTER_COMMIT, "clean", GROUP),
    (windows.COMPACTION, "raw", GROUP),
    (windows.CHECKPOINT, "raw", GROUP),
)
RANDOM_KILLS = 10
MOST_KILLS = 18
AIMS = 2
"""A kill that came too late for its window is aimed once more."""
TRIES = 3
"""A kill may come too late for its window on a busy machine; so often it is aimed again."""
RECOVER_AFTER = 8
"""So many kills follow each other before a run to the end; most meet a run that recovers."""


def test_a_kill_at_any_window_loses_and_doubles_nothing(siege: Siege) -> None:
    assert siege.recover().exact
    with Reader(siege.lake, siege.ledger) as reader:
        missed = _strike_all(siege)
    # The machine may be busy, and a kill come late; most windows have to be hit all the same.
    assert len(missed) <= 2, [str(kill) for kill in siege.kills]
    unnamed = [k for k in siege.kills if re.search("no answer|unnamed", k.answer or "")]
    assert not unnamed, [str(kill) for kill in unnamed]
    assert reader.torn == []
    assert reader.versions > 1


def _strike_all(siege: Siege) -> tuple[tuple[str, str, str], ...]:
    """Aim at each window, and once more at those that were missed; gives what was missed twice."""
    missed: tuple[tuple[str, str, str], ...] = AIMED
    for _ in range(AIMS):
        for window, table, part in missed:
            kill = siege.strike(window, table, part)
            print(kill)
            verdict = siege.glance()
            assert verdict.sound, f"after {kill}: {verdict}"
        verdict = siege.recover()
        assert verdict.exact, f"after {kill}: {verdict}"
        seen = {kill.seen for kill in siege.kills}
        missed = tuple(one for one in AIMED if one[0] not in seen)
        if not missed:
            break
    return missed


def test_kills_at_random_moments_lose_and_double_nothing(siege: Siege) -> None:
    chance = random.Random(SEED)
    siege.ledger.transact(10, 20, aborted_percent=30)
    siege.ledger.send_dead(3)
    assert siege.recover("raw", "clean", "hourly").exact
    before = len(siege.kills)
    for number in range(1, MOST_KILLS + 1):
        part = (GROUP, JVM, PYTHON)[number % 3]
        whole = number == RECOVER_AFTER
        tables = ("raw", "clean", "hourly") if number % 3 == 0 else ("raw", "clean")
        kill = siege.strike_after(chance.random(), part, tables)
        print(kill)
        verdict = siege.recover("raw", "clean", "hourly") if whole else siege.glance()
        assert verdict.exact if whole else verdict.sound, f"after {kill}: {verdict}"
        # One that came when the run was over already is none.
        hits = [one for one in siege.kills[before:] if one.seen != windows.NOT_BEGUN]
        if len(hits) == RANDOM_KILLS:
            break
    verdict = siege.recover("raw", "clean", "hourly")
    assert verdict.exact, f"after {kill}: {verdict}"
    assert len(hits) == RANDOM_KILLS, [str(kill) for kill in siege.kills]


def test_rules_that_change_between_crash_and_retry_move_no_row_twice(siege: Siege) -> None:
    assert siege.recover().exact
    for _ in range(TRIES):
        kill = siege.strike(windows.BETWEEN, "clean")
        print(kill)
        if kill.seen == windows.BETWEEN:
            break
        assert siege.recover().exact
    else:
        raise AssertionError([str(kill) for kill in siege.kills])
    verdict = siege.recover("strict")
    assert verdict.exact, f"after {kill}: {verdict}"
    # Of events that were aborted none is a dead letter.
    there = siege.ledger.statuses() == ACKNOWLEDGED
    assert verdict.dead > (siege.ledger.dead() & there).sum(), "the new rule was not used"


def test_replays_that_are_killed_and_started_again_bring_each_letter_in_once(siege: Siege) -> None:
    siege.ledger.send(100)
    assert siege.recover("strict").exact
    # The rule is no more, so all of its letters pass; those of one partition go after the others.
    hits = (windows.REPLAY_MARKED, windows.REPLAY_WRITTEN)
    first = siege.strike_replay(hits[0], f"{STRICT_RULE} 0", interrupted=False)
    second = siege.strike_replay(hits[1], f"{STRICT_RULE} 1", interrupted=first.seen in hits)
    print(first, second, siege.worker.do(f"replay clean {STRICT_RULE}"), sep="\n")
    verdict = siege.recover()
    assert verdict.exact, f"after {first} and {second}: {verdict}"
    there = siege.ledger.statuses() == ACKNOWLEDGED
    assert verdict.dead == (siege.ledger.dead() & there).sum(), "letters were not replayed"
    assert first.seen in hits or second.seen in hits, f"{first}; {second}"
