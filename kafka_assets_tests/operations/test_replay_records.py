"""Which record a dead letter keeps, and through which flow it is tried again."""

from __future__ import annotations

import base64
import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.graph import Graph
from kafka_assets.operations import letters, replay
from kafka_assets.operations.repair import repair
from kafka_assets.settings import Settings
from kafka_assets.streaming.plan import plan_table
from kafka_assets_tests.helpers import graph_of
from kafka_assets_tests.pipeline import Pipeline, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def from_topic(settings: Settings, topic: str, function: Any, rule: str) -> Graph:
    """A table of the topic's own records, whose letters are all that keeps the dead ones."""
    events = ka.kafka_topic(topic, name="events")

    @ka.streaming_table(layer="bronze")
    @ka.expect_or_drop("known", rule)
    def opened(events: Any) -> Any:
        return function(events)

    return graph_of(settings, events, opened)


PACKED = [base64.b64encode(text) for text in (b"one", b"two")]


@pytest.fixture
def packed(spark: SparkSession, settings: Settings, topic_name: str) -> Pipeline:
    """A topic of its own with two values in base64."""
    pipeline = Pipeline(spark, settings, topic_name)
    pipeline.produce(*PACKED)
    return pipeline


def unpacked(events: Any) -> Any:
    return events.withColumn("value", F.unbase64(F.col("value").cast("string")))


def unpacked_once(events: Any) -> Any:
    seen = events.withWatermark("timestamp", "1 hour")
    return unpacked(seen.dropDuplicatesWithinWatermark(["value"]))


def read_into_text(events: Any) -> Any:
    source = F.struct("topic", "partition", "offset", "timestamp").alias("_source")
    return unpacked(events).select(source, F.col("value").cast("string").alias("text"))


TWO = "cast(value AS string) = 'two'"


@pytest.mark.parametrize(
    ("function", "rule", "column"),
    [
        pytest.param(unpacked, TWO, "value", marks=pytest.mark.verify),
        (read_into_text, "text = 'two'", ""),
    ],
)
def test_letters_of_computed_rows_keep_the_record_as_it_was_and_are_computed_once_again(
    packed: Pipeline, function: Any, rule: str, column: str
) -> None:
    packed.graph = from_topic(packed.settings, packed.topic, function, rule)
    report = packed.run("opened")["opened"]
    assert (report.returned, report.kept, report.dead) == (2, 1, 1)
    assert all(equality.holds for equality in report.conservation)
    ((offset, value, when),) = packed.letters("offset", "value", "timestamp", table="opened")
    assert (offset, value) == (0, PACKED[0])
    assert when is not None

    packed.graph = from_topic(packed.settings, packed.topic, function, "true")
    node = packed.graph.tables["opened"]
    done = replay.replay(node, packed.spark, packed.settings, by="me")
    assert (done.replayed, done.rows) == (1, 1)
    rows = packed.rows("opened", column or "text")
    assert rows == ([(b"one",), (b"two",)] if column else [("one",), ("two",)])


def test_letters_whose_record_nobody_has_show_the_row_and_are_not_tried(packed: Pipeline) -> None:
    packed.graph = from_topic(packed.settings, packed.topic, unpacked_once, TWO)
    packed.run("opened")
    ((offset, value, row),) = packed.letters("offset", "value", "row", table="opened")
    assert (offset, value) == (0, None)
    assert json.loads(row)["value"] == base64.b64encode(b"one").decode()

    packed.graph = from_topic(packed.settings, packed.topic, unpacked_once, "true")
    node = packed.graph.tables["opened"]
    done = replay.replay(node, packed.spark, packed.settings, by="me")
    ((why, count),) = done.still_dead.items()
    assert (done.rows, count) == (0, 1)
    assert why.startswith("neither key, value nor headers of the record are kept")
    assert why.endswith("kafka-assets reset opened reads and checks the topic's records again")
    assert packed.rows("opened", "offset") == [(1,)]


def both_halves(events: Any) -> Any:
    """A union whose first part is the topic as it is."""
    return events.filter("partition = 0").unionByName(unpacked(events.filter("partition = 1")))


@pytest.mark.parametrize(
    ("function", "where"),
    [
        (lambda events: events, "row"),
        (lambda events: events.withColumn("x", F.length("value")).filter("x > 1"), "row"),
        (lambda events: events.filter("offset > 1").unionByName(events), "row"),
        (lambda events: events.withColumn("x", F.explode(F.array("key", "value"))), "row"),
        (lambda events: events.withWatermark("timestamp", "1 hour"), "row"),
        (unpacked, "batch"),
        (read_into_text, "batch"),
        (both_halves, "batch"),
        (lambda events: events.mapInPandas(lambda parts: parts, events.schema), "batch"),
        (lambda events: events.drop("key").withColumn("key", F.col("value")), "batch"),
        (lambda events: events.drop("headers"), "batch"),
        (unpacked_once, None),
        (lambda events: events.select("value"), None),
        (lambda events: events.withColumn("offset", F.col("offset").cast("string")), None),
    ],
)
def test_where_the_record_of_a_letter_is_found_is_known_from_the_plan(
    spark: SparkSession, settings: Settings, function: Any, where: str | None
) -> None:
    node = from_topic(settings, "events", function, "true").tables["opened"]
    assert plan_table(node, spark).records == where


def with_flows(pipeline: Pipeline, rule: str, *names: str) -> Graph:
    """A table that flows of one topic feed."""
    events = ka.kafka_topic(pipeline.topic, name="events")
    table = ka.create_streaming_table(
        "together", layer="silver", expect_all_or_drop={"positive": rule}
    )

    def as_it_is(events: Any) -> Any:
        return events

    flow = partial(ka.append_flow, target="together", schema="event.ddl")
    return graph_of(pipeline.settings, events, table, *[flow(name=n)(as_it_is) for n in names])


@pytest.mark.verify
def test_letters_of_a_flow_whose_checkpoint_was_repaired_go_through_the_flow_of_their_topic(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    pipeline = Pipeline(spark, settings, topic_name)
    pipeline.produce(event("a", 1), event("b", -1))
    pipeline.graph = with_flows(pipeline, "x > 0", "first")
    pipeline.run("together")
    node = pipeline.graph.tables["together"]
    shutil.rmtree(node.parts[0].checkpoint)
    repair(node, settings)

    two = with_flows(pipeline, "x > -5", "first", "second").tables["together"]
    unsure = replay.replay(two, spark, settings, by="me")
    ((why, count),) = unsure.still_dead.items()
    assert (unsure.tried, unsure.rows, count) == (0, 0, 1)
    assert f"first and second can have read topic '{topic_name}'" in why
    assert [letter.status for letter in letters.find(two)] == ["open"]

    one = with_flows(pipeline, "x > -5", "first").tables["together"]
    done = replay.replay(one, spark, settings, by="me")
    assert (done.tried, done.replayed, done.rows, done.still_dead) == (1, 1, 1, {})
    assert pipeline.rows("together", "id") == [("a",), ("b",)]
    # The flow goes on where it was.
    pipeline.produce(event("c", 2))
    pipeline.run("together")
    assert pipeline.rows("together", "id") == [("a",), ("b",), ("c",)]
