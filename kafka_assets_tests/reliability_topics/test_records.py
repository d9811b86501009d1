"""Odd records of a topic, and odd gaps between them, arrive whole and once, or not at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kafka_assets.demo.broker_config import MAX_MESSAGE_BYTES
from kafka_assets_tests.reliability_topics.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.settings import Settings

TEN_MEGABYTES = 10 * 1024 * 1024


@pytest.fixture
def chain(spark: SparkSession, settings: Settings, topic_name: str) -> Chain:
    return Chain(spark, settings, topic_name)


class Transactions:
    """A transactional producer on partition 0 of a topic."""

    def __init__(self, chain: Chain) -> None:
        self._topic = chain.topic
        self._producer = Producer(
            {"bootstrap.servers": chain.bootstrap, "transactional.id": f"tx-{chain.topic}"}
        )
        self._producer.init_transactions(20)

    def begin(self, *ids: int) -> None:
        """Begin a transaction and send its events; they lie at the broker when this returns."""
        self._producer.begin_transaction()
        for id in ids:
            self._producer.produce(self._topic, b'{"id":%d}' % id, partition=0)
        assert self._producer.flush(20) == 0

    def commit(self) -> None:
        """Let consumers see the events."""
        self._producer.commit_transaction(20)

    def abort(self) -> None:
        """Never let consumers see the events."""
        self._producer.abort_transaction(20)


def test_tombstones_null_keys_and_headers_reach_bronze_and_the_letters_as_they_were(
    chain: Chain,
) -> None:
    repeated = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("none", None)]
    records: list[dict[str, Any]] = [
        {"value": None, "key": b"gone", "headers": repeated},
        {"value": None, "key": None},
        {"value": b"", "key": b""},
        {"value": b"\xff\x00", "headers": [("é", b"\xff")]},
        {"value": b'{"id":1}', "key": b"\xff\x00", "headers": repeated},
    ]
    chain.send_all(records)
    chain.run("raw")
    chain.run("clean")

    wanted = [
        (
            r["value"],
            r.get("key"),
            [{"key": k, "value": v} for k, v in r.get("headers", [])] or None,
        )
        for r in records
    ]
    assert chain.rows("raw", "value", "key", "headers") == wanted
    assert chain.letters("clean", "value", "key", "headers") == wanted[:4]
    assert chain.rows("clean", "id", "_key", "_headers") == [(1, *wanted[4][1:])]
    tombstone, bare, empty, invalid = (reason for (reason,) in chain.letters("clean", "reason"))
    assert tombstone == bare == "null value (tombstone)"
    assert (empty, invalid) == ("empty value", "not valid UTF-8 at byte 0")


def test_messages_of_ten_megabytes_are_read_whole_into_silver_and_the_dead_letters(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    config = {"max.message.bytes": str(MAX_MESSAGE_BYTES)}
    chain = Chain(spark, settings, topic_name, config=config)
    text = "é" * (TEN_MEGABYTES // 2)
    good = json.dumps({"id": 1, "text": text}, ensure_ascii=False).encode()
    broken, negative = good[:-1] + b"]", good.replace(b'"id": 1', b'"id":-1')
    chain.send(good, broken, negative, **{"message.max.bytes": MAX_MESSAGE_BYTES})
    for table in ("raw", "clean", "direct"):
        chain.run(table)
    # Compared by truth: a comparison that fails would print thirty megabytes.
    assert min(len(good), len(broken), len(negative)) > TEN_MEGABYTES
    assert same(chain.rows("raw", "value"), [(good,), (broken,), (negative,)])
    assert same(chain.rows("clean", "id", "text"), [(1, text), (-1, text)])
    assert same(chain.rows("direct", "id", "text"), [(1, text)])
    assert same(chain.letters("clean", "value"), [(broken,)])
    assert same(chain.letters("direct", "value"), [(broken,), (negative,)])


def same(found: object, wanted: object) -> bool:
    return found == wanted


def test_aborted_transactions_never_appear_and_their_gaps_are_no_loss(chain: Chain) -> None:
    transactions = Transactions(chain)
    for number in range(10):
        transactions.begin(10 * number + 1, 10 * number + 2)
        if number % 10 in (0, 4, 9):
            transactions.abort()
        else:
            transactions.commit()
        if number == 5:
            # The offsets of a run may end at a record, or at the mark behind it.
            chain.run("raw")
            chain.run("direct")
    for table in ("raw", "clean", "direct"):
        chain.run(table)
    wanted = [10 * n + i for n in (1, 2, 3, 5, 6, 7, 8) for i in (1, 2)]
    assert chain.rows("raw", "value") == [(b'{"id":%d}' % id,) for id in wanted]
    assert chain.rows("clean", "id") == chain.rows("direct", "id") == [(id,) for id in wanted]
    assert chain.run("raw").lag == 0


def test_a_topic_of_aborted_transactions_only_is_read_to_its_end(chain: Chain) -> None:
    transactions = Transactions(chain)
    transactions.begin(1, 2, 3)
    transactions.abort()
    report = chain.run("direct")
    assert (report.kept, report.dead, report.lag) == (0, 0, 0)
    chain.send(b'{"id":4}')
    assert chain.run("direct").kept == 1


def test_an_open_transaction_is_read_only_after_its_commit_and_once(chain: Chain) -> None:
    transactions = Transactions(chain)
    chain.send(b'{"id":1}')
    transactions.begin(2, 3)
    chain.send(b'{"id":4}')
    for _ in range(2):
        chain.run("direct")
        assert chain.rows("direct", "id") == [(1,)]
    transactions.commit()
    assert chain.run("direct").lag == 0
    assert chain.rows("direct", "id") == [(1,), (2,), (3,), (4,)]
    assert chain.run("direct").batches == 0


def test_gaps_of_a_compacted_topic_are_no_loss_before_and_behind_the_saved_offset(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "1",
        "min.cleanable.dirty.ratio": "0.001",
        "min.compaction.lag.ms": "0",
    }
    chain = Chain(spark, settings, topic_name, config=config)
    chain.clean_often()
    for id in range(1, 13):
        # Each lies in a segment of its own: only closed ones are compacted.
        chain.send_all([{"key": b"%d" % (id % 3), "value": b'{"id":%d}' % id}])
        if id == 4:
            chain.run("direct")
    # The newest of each key, and the last one, which lies in the segment that is still open.
    assert chain.compacted(at_most=4) == [8, 9, 10, 11]
    assert chain.run("direct").lag == 0
    read = [*range(1, 5), *range(9, 13)]
    assert chain.rows("direct", "id") == [(id,) for id in read]
    assert chain.run("raw").kept == 4
