"""Sample events: the same for the same seed, of the kinds that are promised, counted exactly."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_assets.demo.broker import Broker
from kafka_assets.demo.events import (
    BAD_KINDS,
    GOOD,
    ORDER_TOPIC,
    SPREAD,
    STATUSES,
    TOPICS,
    TRACKER_TOPIC,
    bad_event,
    events,
    order_event,
    tracker_event,
)
from kafka_assets.demo.producing import Produced, ensure_topics, produce, trickle
from kafka_assets.errors import BrokerError

NOW = datetime(2025, 1, 1, 12, tzinfo=UTC)


def first_of_each_kind(topic: str) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for kind, value in events(topic, 1000, 1.0, seed=3, now=NOW):
        found.setdefault(kind, value)
    return found


def test_a_tracker_event_holds_what_its_schema_says():
    event = json.loads(tracker_event(random.Random(1), 7, NOW))
    assert event.keys() == {"event_id", "time", "version", "model", "heart_bpm", "kcal"}
    assert event["event_id"] == "t-7"
    assert 30 <= event["heart_bpm"] <= 220
    assert NOW - SPREAD - timedelta(seconds=1) <= datetime.fromisoformat(event["time"]) <= NOW


def test_an_order_event_has_an_amount_of_two_digits_and_a_known_status():
    text = order_event(random.Random(1), 7, NOW).decode()
    event = json.loads(text)
    amount = text.split('"amount":')[1].split(",")[0]
    assert len(amount.split(".")[1]) == 2
    assert event["status"] in STATUSES
    assert event["order_time"].endswith("Z")


@pytest.mark.parametrize("topic", TOPICS)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(topic: str):
    def made(seed: int) -> list[tuple[str, bytes | None]]:
        return list(events(topic, 200, 0.2, seed, NOW))

    assert made(1) == made(1)
    assert made(1) != made(2)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize(
    ("count", "ratio", "bad"), [(100, 0.1, 10), (100, 0.0, 0), (10, 0.001, 1), (5, 1.0, 5)]
)
def test_the_share_of_bad_events_is_exact(topic: str, count: int, ratio: float, bad: int):
    kinds = Counter(kind for kind, _ in events(topic, count, ratio, 1, NOW))
    assert kinds.total() == count
    assert count - kinds[GOOD] == bad


def test_a_share_above_one_is_refused():
    with pytest.raises(ValueError, match=r"bad_ratio is 2"):
        list(events(TRACKER_TOPIC, 10, 2, 1))


@pytest.mark.parametrize("topic", TOPICS)
def test_every_promised_kind_appears(topic: str):
    assert first_of_each_kind(topic).keys() == BAD_KINDS[topic].keys()


@pytest.mark.parametrize("topic", TOPICS)
def test_what_cannot_be_decoded_is_no_json_or_of_the_wrong_type(topic: str):
    samples = first_of_each_kind(topic)
    assert samples["tombstone"] is None
    assert samples["empty_value"] == b""
    for kind in ("truncated_json", "invalid_utf8", "trailing_garbage"):
        with pytest.raises(ValueError):  # noqa: PT011 - json and UTF-8 have many
            json.loads(samples[kind] or b"")
    wrong = json.loads(samples["wrong_type"] or b"")
    field, kind_of = ("heart_bpm", int) if topic == TRACKER_TOPIC else ("amount", float)
    assert not isinstance(wrong[field], kind_of)


def test_what_breaks_a_rule_is_valid_but_out_of_range():
    tracker, order = first_of_each_kind(TRACKER_TOPIC), first_of_each_kind(ORDER_TOPIC)
    assert json.loads(tracker["heart_bpm_zero"] or b"")["heart_bpm"] == 0
    assert json.loads(tracker["heart_bpm_too_high"] or b"")["heart_bpm"] == 400
    assert json.loads(order["amount_not_positive"] or b"")["amount"] <= 0
    assert json.loads(order["customer_missing"] or b"")["customer_id"] is None
    assert json.loads(order["unknown_status"] or b"")["status"] not in STATUSES


def test_a_topic_without_bad_kinds_is_refused():
    with pytest.raises(KeyError):
        bad_event(random.Random(1), 1, "other")


def test_expected_dead_counts_what_is_unreadable_and_what_breaks_a_rule():
    counts = {GOOD: 10, "tombstone": 2, "customer_missing": 3, "unknown_status": 4}
    produced = Produced({ORDER_TOPIC: counts}, seconds=1)
    assert produced.total(ORDER_TOPIC) == 19
    assert produced.expected(ORDER_TOPIC, "undecodable") == 2
    assert produced.expected(ORDER_TOPIC, "rule") == 3
    assert produced.expected(ORDER_TOPIC, "kept") == 14
    assert produced.expected_dead(ORDER_TOPIC) == 5


@pytest.mark.broker
def test_the_account_agrees_with_the_broker(demo_broker: Broker):
    ensure_topics(demo_broker.bootstrap)
    before = {topic: records(demo_broker, topic) for topic in TOPICS}
    produced = produce(demo_broker.bootstrap, 20_000, 0.1, seed=5, now=NOW)
    again = produce(demo_broker.bootstrap, {TRACKER_TOPIC: 20_000}, 0.1, seed=5, now=NOW)
    assert again.counts[TRACKER_TOPIC] == produced.counts[TRACKER_TOPIC]
    assert produced.counts[TRACKER_TOPIC][GOOD] == 18_000
    assert records(demo_broker, TRACKER_TOPIC) - before[TRACKER_TOPIC] == 40_000
    assert records(demo_broker, ORDER_TOPIC) - before[ORDER_TOPIC] == 20_000


@pytest.mark.broker
def test_a_trickle_keeps_its_pace_and_stops_when_told(demo_broker: Broker):
    ensure_topics(demo_broker.bootstrap)
    before = sum(records(demo_broker, topic) for topic in TOPICS)
    stop = threading.Event()
    threading.Timer(2, stop.set).start()
    produced = trickle(demo_broker.bootstrap, 50, 0.1, 1, stop)
    total = sum(produced.total(topic) for topic in TOPICS)
    assert 80 <= total <= 110
    assert sum(records(demo_broker, topic) for topic in TOPICS) - before == total


@pytest.mark.broker
def test_topics_are_created_once(demo_broker: Broker):
    assert ensure_topics(demo_broker.bootstrap, ["once"], partitions=3) == ("once",)
    assert ensure_topics(demo_broker.bootstrap, ["once"], partitions=3) == ()


def test_a_broker_that_is_gone_is_told_with_the_count_of_unanswered_events():
    with pytest.raises(BrokerError, match=r"acknowledged 0 events, 10 are without an answer"):
        produce("127.0.0.1:9", {TRACKER_TOPIC: 10}, 0, timeout=1)


def records(broker: Broker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "count"})
    total = 0
    try:
        for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            total += high - low
    finally:
        consumer.close()
    return total
