"""A topic that changes between runs: what can go on goes on, what would lose rows is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kafka_assets.errors import FenceRefused, RunFailed
from kafka_assets.streaming import batch
from kafka_assets_tests.reliability_topics.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.settings import Settings

PLACE = ("partition", "offset", "value")


@pytest.fixture
def chain(spark: SparkSession, settings: Settings, topic_name: str) -> Chain:
    return Chain(spark, settings, topic_name)


def refused(chain: Chain, table: str = "raw") -> FenceRefused:
    """The refusal of a run; nothing may be written by it."""
    path = chain.graph.tables[table].path
    before = DeltaTable(path).version()
    with pytest.raises(FenceRefused) as raised:
        chain.run(table)
    assert DeltaTable(path).version() == before
    assert raised.value.fix
    return raised.value


def test_an_empty_topic_makes_its_tables_and_rows_come_later(chain: Chain) -> None:
    assert [chain.run(table).kept for table in ("raw", "clean", "direct")] == [0, 0, 0]
    assert [chain.rows(table, "_source") for table in ("clean", "direct")] == [[], []]
    chain.send(b'{"id":1}', b'{"id":2}')
    assert [chain.run(table).kept for table in ("raw", "clean", "direct")] == [2, 2, 2]
    assert chain.rows("clean", "id") == [(1,), (2,)]


def test_partitions_that_were_added_between_runs_are_read_from_their_start(chain: Chain) -> None:
    chain.send(b"a")
    chain.run()
    chain.grow(3)
    chain.send(b"b", partition=2)
    chain.send(b"c", partition=0)
    report = chain.run()
    assert chain.rows("raw", *PLACE) == [(0, 0, b"a"), (0, 1, b"c"), (2, 0, b"b")]
    ranges = {f"{chain.topic}/{p}": ends for p, ends in enumerate([(1, 2), (0, 0), (0, 1)])}
    assert (report.offsets, report.lag) == (ranges, 0)


def test_partitions_may_be_added_after_a_run_that_died_behind_its_last_write(chain: Chain) -> None:
    chain.send(b"a", b"b")
    chain.run()
    chain.forget_last_commit()
    chain.grow(2)
    chain.send(b"c", partition=1)
    chain.send(b"d", partition=0)
    chain.run()
    written = [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"d"), (1, 0, b"c")]
    assert chain.rows("raw", *PLACE) == written
    assert chain.run().batches == 0


def test_partitions_may_be_added_after_a_run_that_died_before_its_last_write(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*arguments: Any) -> None:
        raise RuntimeError("the process ends between the dead letters and the table")

    chain.send(b'{"id":1}', b'{"id":-2}')
    with monkeypatch.context() as patched:
        patched.setattr(batch, "_write_table", die)
        with pytest.raises(RunFailed, match="the process ends"):
            chain.run("direct")
    chain.grow(2)
    chain.send(b'{"id":3}', b'{"id":-4}', partition=1)
    chain.run("direct")
    assert chain.rows("direct", "id") == [(1,), (3,)]
    assert chain.letters("direct", "partition", "offset") == [(0, 1), (1, 1)]


@pytest.mark.parametrize("length", [1, 5], ids=["shorter", "longer"])
def test_a_topic_made_anew_is_refused_whether_shorter_or_longer_than_what_was_read(
    chain: Chain, length: int
) -> None:
    chain.send(b"a", b"b", b"c")
    chain.run()
    chain.delete()
    chain.create()
    chain.send(*[b"new"] * length)
    error = refused(chain)
    assert error.state == "source_recreated"
    assert f"table 'raw': its upstream {chain.topic!r} was deleted and made anew" in error.what
    assert chain.rows("raw", "value") == [(b"a",), (b"b",), (b"c",)]


def test_records_that_were_removed_unread_are_refused_with_their_range(chain: Chain) -> None:
    chain.grow(2)
    chain.send(b"a", b"b", partition=1)
    chain.run()
    chain.send(*[b"unread"] * 5, partition=1)
    chain.remove(before=6, partition=1)
    error = refused(chain)
    assert error.state == "offsets_lost"
    assert f"{chain.topic}/1 up to 2, and the topic now begins at 6: 4 offsets [2, 6)" in error.what


def test_a_first_run_begins_where_the_topic_begins(chain: Chain) -> None:
    chain.send(b"a", b"b", b"c")
    chain.remove(before=2)
    report = chain.run()
    assert chain.rows("raw", *PLACE) == [(0, 2, b"c")]
    assert report.offsets == {f"{chain.topic}/0": (2, 3)}


def test_records_removed_after_a_first_run_died_are_refused_with_their_range(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*arguments: Any) -> None:
        raise RuntimeError("the process ends before the table")

    chain.send(b'{"id":1}', b'{"id":2}', b'{"id":3}')
    with monkeypatch.context() as patched:
        patched.setattr(batch, "_write_table", die)
        with pytest.raises(RunFailed, match="the process ends"):
            chain.run("direct")
    chain.remove(before=2)
    error = refused(chain, "direct")
    assert error.state == "offsets_lost"
    assert "[0, 2)" in error.what


def test_records_removed_from_a_partition_that_was_never_read_are_refused(chain: Chain) -> None:
    chain.send(b"a")
    chain.run()
    chain.grow(2)
    chain.send(b"b", b"c", b"d", partition=1)
    chain.remove(before=2, partition=1)
    error = refused(chain)
    assert error.state == "offsets_lost"
    assert f"{chain.topic}/1" in error.what or f"{chain.topic}-1" in error.what
