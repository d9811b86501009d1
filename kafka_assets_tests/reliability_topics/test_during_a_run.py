"""A topic that changes while a run reads it, between two of its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kafka_assets.errors import FenceRefused
from kafka_assets.operations.repair import accept_loss
from kafka_assets.streaming import batch
from kafka_assets_tests.reliability_topics.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.settings import Settings

LONG = b"x" * 500_000
"""So long that a client fetches two records at a time, and asks the broker again for each batch."""
SENT = tuple(b'{"id":%d,"text":"%s"}' % (number, LONG) for number in range(1, 7))

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
        chain.send(b'{"id":7}', partition=1)

    meanwhile(grow)
    chain.run("direct")
    chain.run("direct")
    assert chain.rows("direct", "id") == [(number,) for number in range(1, 8)]
    assert chain.run("direct").batches == 0


def test_records_that_go_while_a_run_reads_are_refused_and_what_was_read_stays(
    chain: Chain, meanwhile: Meanwhile
) -> None:
    meanwhile(lambda: chain.remove(before=5))
    with pytest.raises(FenceRefused) as raised:
        chain.run("direct")
    assert raised.value.state == "offsets_lost"
    assert "batches committed before are kept" in raised.value.what
    # What the client had fetched by then is written.
    written = [number for (number,) in chain.rows("direct", "id")]
    assert written == list(range(1, len(written) + 1))
    assert len(written) >= 2
    (lost,) = accept_loss(
        chain.graph.tables["direct"], chain.settings, reason="a test", by="somebody"
    )
    assert (lost.first, lost.end) == (len(written), 5)
    chain.run("direct")
    assert [number for (number,) in chain.rows("direct", "id")] == [*written, 6]


def test_a_topic_that_is_made_anew_while_a_run_reads_is_refused_by_that_run_and_the_next(
    chain: Chain, meanwhile: Meanwhile
) -> None:
    def make_anew() -> None:
        chain.delete()
        chain.create()
        chain.send(*[b'{"id":99,"text":"%s"}' % LONG] * len(SENT))

    meanwhile(make_anew)
    for _ in range(2):
        with pytest.raises(FenceRefused) as raised:
            chain.run("direct")
        assert raised.value.state == "source_recreated"
