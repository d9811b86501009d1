"""A broker that dies or freezes in the middle of a run costs time, never a row.

Each test breaks a broker of its own once the run has finished its first batch, so that some rows
are written and others are not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from kafka_assets.demo.broker import Broker
from kafka_assets.errors import SourceError
from kafka_assets.sources import kafka
from kafka_assets_tests.reliability_topics.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.settings import Settings
    from kafka_assets.streaming.report import RunReport

ROWS, BATCH = 6000, 1000
IMPATIENT = {
    "kafkaConsumer.pollTimeoutMs": "1500",
    "kafka.request.timeout.ms": "1500",
    "kafka.default.api.timeout.ms": "1500",
    "fetchOffset.numRetries": "1",
}
"""Spark's own limits make up two minutes, which no test should wait for."""


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that no other test uses."""
    with Broker(tmp_path_factory.mktemp("mortal")) as running:
        yield running


@pytest.fixture
def chain(spark: SparkSession, settings: Settings, mortal: Broker, topic_name: str) -> Chain:
    """A topic whose rows take several batches; every tenth event is a dead letter."""
    changed = {"bootstrap_servers": mortal.bootstrap, "max_offsets_per_trigger": BATCH}
    there = settings.model_copy(update={"kafka": settings.kafka.model_copy(update=changed)})
    made = Chain(spark, there, topic_name)
    made.send(*(b'{"id":%d}' % (-n if n % 10 == 0 else n) for n in range(1, ROWS + 1)))
    return made


def begun(chain: Chain, pool: ThreadPoolExecutor, table: str) -> Future[RunReport]:
    """A run that has finished a batch and has more to do."""
    run = pool.submit(chain.run, table)
    while not (chain.checkpoint(table) / "commits" / "0").exists():
        assert not run.done(), f"the run ended before its first batch: {run.result()}"
        time.sleep(0.02)
    return run


def assert_all_once(chain: Chain) -> None:
    dead = [(offset,) for offset in range(ROWS) if (offset + 1) % 10 == 0]
    assert chain.letters("direct", "offset") == dead
    assert chain.rows("direct", "id") == [(n,) for n in range(1, ROWS + 1) if n % 10]


def test_a_run_whose_broker_dies_says_so_and_the_next_one_reads_the_rest(
    chain: Chain, mortal: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = kafka.spark_options

    def impatient(*arguments: Any) -> dict[str, str]:
        return {**options(*arguments), **IMPATIENT}

    monkeypatch.setattr(kafka, "spark_options", impatient)
    with ThreadPoolExecutor(1) as pool:
        run = begun(chain, pool, "direct")
        mortal.kill()
        try:
            with pytest.raises(
                SourceError, match="'direct': the broker stopped answering"
            ) as raised:
                run.result(timeout=240)
        finally:
            mortal.start()
    assert raised.value.transient
    assert raised.value.fix == "start the broker and run again"
    written = len(chain.rows("direct", "id"))
    assert 0 < written < ROWS * 0.9
    report = chain.run("direct")
    assert report.kept == ROWS * 0.9 - written
    assert_all_once(chain)


def test_a_broker_that_dies_and_comes_back_during_a_run_costs_no_row(
    chain: Chain, mortal: Broker
) -> None:
    with ThreadPoolExecutor(1) as pool:
        run = begun(chain, pool, "direct")
        mortal.kill()
        mortal.start()
        assert run.result(timeout=240).lag == 0
    assert_all_once(chain)


@pytest.mark.verify
def test_a_broker_that_freezes_for_seconds_costs_no_row(chain: Chain, mortal: Broker) -> None:
    with ThreadPoolExecutor(1) as pool:
        run = begun(chain, pool, "direct")
        mortal.pause()
        try:
            time.sleep(5)
            assert not run.done(), "the run was over before the broker froze"
        finally:
            mortal.resume()
        assert run.result(timeout=240).lag == 0
    assert_all_once(chain)
