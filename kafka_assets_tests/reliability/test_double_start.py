"""One table, two writers: one is told so by name, and the rows stay exact either way."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_assets.demo.broker import Broker
from kafka_assets_tests.helpers import create_topic
from kafka_assets_tests.reliability.judge import judge
from kafka_assets_tests.reliability.ledger import Ledger
from kafka_assets_tests.reliability.pair import Pair
from kafka_assets_tests.reliability.siege import SEED
from kafka_assets_tests.reliability.windows import AFTER_OFFSETS, BETWEEN, MID_PARQUET
from kafka_assets_tests.reliability.workers import Setup

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Setup:
    return Setup(tmp_path_factory.mktemp("pair") / "lake", broker.bootstrap, _topic())


@pytest.fixture(scope="module")
def pair(setup: Setup) -> Iterator[Pair]:
    with Pair(setup) as both:
        yield both


@pytest.fixture(scope="module")
def unleased(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two workers whose lease is switched off: what is left are the transaction ids."""
    lake = tmp_path_factory.mktemp("unleased") / "lake"
    without_lease = replace(setup, lake=lake, topic=_topic(), without=("lease",))
    with Pair(without_lease, warm=True) as both:
        yield both


def _topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def test_of_two_processes_one_is_told_who_holds_the_table(pair: Pair) -> None:
    refused = 0
    for _ in range(3):
        answers = pair.start_both()
        print(answers)
        failed = [answer for answer in answers if not answer.startswith("done")]
        assert len(failed) < 2, answers
        assert all(answer.startswith("failed LeaseHeld") for answer in failed), answers
        assert all("is being written by another run: run " in answer for answer in failed)
        refused += len(failed)
        # The other may have held one table only, while this one ran what came before.
        pair.workers[0].do("run")
        verdict = judge(pair.lake, pair.ledger)
        assert verdict.exact, verdict
        if refused:
            break
    assert refused, "the two never met; nothing was tested"


@pytest.mark.verify
def test_a_frozen_run_still_holds_its_table(pair: Pair) -> None:
    quick, slow = pair.overtake(AFTER_OFFSETS, "clean")
    assert quick.startswith("failed LeaseHeld"), quick
    assert slow.startswith("done"), slow
    verdict = judge(pair.lake, pair.ledger)
    assert verdict.exact, verdict


@pytest.mark.verify
def test_without_the_lease_a_double_start_keeps_the_rows_exact(unleased: Pair) -> None:
    for _ in range(3):
        answers = unleased.start_both()
        print(answers)
        assert not any("unnamed" in answer for answer in answers), answers
        unleased.workers[0].do("run")
        verdict = judge(unleased.lake, unleased.ledger)
        assert verdict.exact, verdict


@pytest.mark.verify
@pytest.mark.parametrize("window", [BETWEEN, MID_PARQUET, AFTER_OFFSETS])
def test_without_the_lease_a_frozen_writer_that_comes_back_doubles_nothing(
    unleased: Pair, window: str
) -> None:
    answers = unleased.overtake(window, "clean")
    print(answers)
    assert answers[0].startswith("done"), answers
    assert "unnamed" not in answers[1], answers
    unleased.workers[0].do("run")
    verdict = judge(unleased.lake, unleased.ledger)
    assert verdict.exact, verdict


@pytest.mark.verify
def test_of_two_threads_in_one_process_one_is_told_who_holds_the_table(
    setup: Setup, tmp_path: Path
) -> None:
    from kafka_assets.errors import LeaseHeld
    from kafka_assets.streaming.run import run_graph
    from kafka_assets.streaming.session import spark_session
    from kafka_assets_tests.conftest import engine
    from kafka_assets_tests.reliability import pipeline

    lake, topic = tmp_path / "lake", _topic()
    create_topic(setup.bootstrap, topic, 2)
    ledger = Ledger(setup.bootstrap, topic, SEED)
    settings = pipeline.settings_for(lake, setup.bootstrap)
    session = spark_session(settings.model_copy(update={"spark": engine()}))
    graph = pipeline.graph(settings, topic)
    barrier = threading.Barrier(2)
    errors: list[Exception] = []

    def run() -> None:
        barrier.wait()
        try:
            run_graph(graph, session, settings, names=("raw", "clean"))
        except Exception as error:
            errors.append(error)

    for _ in range(3):
        ledger.send(300)
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(errors) < 2, errors
        assert all(isinstance(error, LeaseHeld) for error in errors), errors
        if errors:
            break
    assert errors, "the two never met; nothing was tested"
    run_graph(graph, session, settings, names=("raw", "clean"))
    verdict = judge(lake, ledger)
    assert verdict.exact, verdict
