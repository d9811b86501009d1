"""A topic that changes while a run reads it, between two of its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kafka_assets.errors import FenceRefused, SourceError
from kafka_assets.operations.repair import accept_loss
from kafka_assets.streaming import batch
from kafka_assets_tests.reliability_topics.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.settings import Settings

PLACE = ("partition", "offset", "value")
SENT = (b"a", b"b", b"c", b"d", b"e", b"f")

Meanwhile = Callable[[Callable[[], None]], None]


@pytest.fixture
def chain(spark: SparkSession, settings: Settings, topic_name: str) -> Chain:
    """Six records that a run takes in three batches."""
    kafka = settings.kafka.model_copy(update={"max_offsets_per_trigger": 2})
    made = Chain(spark, settings.model_copy(update={"kafka": kafka}), topic_name)
    made.send(*SENT)
    return made


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Lets something happen once, while the first batch is on its way to the table."""

    def plan(happens: Callable[[], None]) -> None:
        write, waiting = batch._write_table, [happens]

        def writing(*arguments: Any) -> Any:
            if waiting:
                waiting.pop()()
            return write(*arguments)

        monkeypatch.setattr(batch, "_write_table", writing)

    return plan


def test_partitions_that_are_added_while_a_run_reads_are_read_from_their_start(
    chain: Chain, meanwhile: Meanwhile
) -> None:
    def grow() -> None:
        chain.grow(2)
        chain.send(b"new", partition=1)

    meanwhile(grow)
    chain.run()
    chain.run()
    old = [(0, offset, value) for offset, value in enumerate(SENT)]
    assert chain.rows("raw", *PLACE) == [*old, (1, 0, b"new")]
    assert chain.run().batches == 0


def test_records_that_go_while_a_run_reads_are_refused_and_what_was_read_stays(
    chain: Chain, meanwhile: Meanwhile
) -> None:
    meanwhile(lambda: chain.remove(before=5))
    with pytest.raises(FenceRefused) as raised:
        chain.run()
    assert raised.value.state == "offsets_lost"
    assert "batches committed before are kept" in raised.value.what
    assert chain.rows("raw", "value") == [(b"a",), (b"b",)]
    (lost,) = accept_loss(chain.graph.tables["raw"], chain.settings, reason="a test", by="somebody")
    assert (lost.first, lost.end) == (2, 5)
    chain.run()
    assert chain.rows("raw", "value") == [(b"a",), (b"b",), (b"f",)]


def test_a_topic_that_is_made_anew_while_a_run_reads_gives_it_no_record(
    chain: Chain, meanwhile: Meanwhile
) -> None:
    def make_anew() -> None:
        chain.delete()
        chain.create()
        chain.send(*[b"other"] * len(SENT))

    meanwhile(make_anew)
    with pytest.raises((FenceRefused, SourceError)):
        chain.run()
    with pytest.raises(FenceRefused) as raised:
        chain.run()
    assert raised.value.state == "source_recreated"
    assert chain.rows("raw", "value") == [(b"a",), (b"b",)]
