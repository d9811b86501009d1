"""Tables that several flows feed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import FenceRefused, PlanError
from kafka_assets.operations.repair import accept_loss, repair
from kafka_assets.operations.replay import replay
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_table
from kafka_assets_tests.helpers import Send, graph_of, ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def both(web: Any, app: Any) -> list[Any]:
    """A silver table that a flow from each topic feeds."""
    events = ka.create_streaming_table(
        "events", layer="silver", expect_all_or_drop={"positive": "x > 0"}
    )

    @ka.append_flow(target="events", schema="event.ddl")
    def from_web(web: Any) -> Any:
        return web.withColumn("origin", F.lit("web"))

    @ka.append_flow(target="events", schema="event.ddl")
    def from_app(app: Any) -> Any:
        return app.withColumn("origin", F.lit("app"))

    return [web, app, events, from_web, from_app]


def test_flows_of_two_topics_meet_in_one_table_and_every_row_is_accounted_for(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics
    send("web", ("a", 1), ("b", -1))
    send("app", ("c", 3))
    graph = graph_of(settings, *both(web, app))
    node = graph.tables["events"]
    first = run_table(node, spark, settings)
    assert ids(node.path) == ["a", "c"]
    assert ids(node.dead_letters_path, "offset") == [1]
    assert (first.rows_read, first.kept, first.dead, first.lag) == (3, 2, 1, 0)
    assert all(equality.holds for equality in first.conservation)
    send("app", ("d", 4))
    second = run_table(node, spark, settings)
    assert ids(node.path) == ["a", "c", "d"]
    assert (second.rows_read, second.batches) == (1, 1)
    assert run_table(node, spark, settings).batches == 0


def test_a_flow_is_added_later_without_touching_the_others(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics
    send("web", ("a", 1))
    send("app", ("c", 3))
    declared = both(web, app)
    run_table(graph_of(settings, *declared[:4]).tables["events"], spark, settings)
    node = graph_of(settings, *declared).tables["events"]
    run_table(node, spark, settings)
    assert ids(node.path) == ["a", "c"]


def test_a_flow_whose_checkpoint_is_lost_is_refused_and_names_what_would_be_doubled(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    import shutil

    web, app, send = two_topics
    send("web", ("a", 1))
    send("app", ("c", 3))
    node = graph_of(settings, *both(web, app)).tables["events"]
    run_table(node, spark, settings)
    shutil.rmtree(node.parts[0].checkpoint)
    with pytest.raises(FenceRefused, match="double") as refused:
        run_table(node, spark, settings)
    assert refused.value.state == "checkpoint_lost"
    assert ids(node.path) == ["a", "c"]


@pytest.mark.verify
def test_dead_letters_of_a_flow_are_replayed_through_that_flow_once(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics
    send("web", ("a", 1), ("w", -1))
    send("app", ("p", -3))
    declared = both(web, app)
    run_table(graph_of(settings, *declared).tables["events"], spark, settings)
    # The rule was wrong; the flows are the same.
    mended = ka.create_streaming_table("events", layer="silver")
    node = graph_of(settings, web, app, mended, *declared[3:]).tables["events"]
    done = replay(node, spark, settings)
    assert (done.tried, done.replayed, done.rows) == (2, 2, 2)
    rows = DeltaTable(node.path).to_pyarrow_table(columns=["id", "origin"]).to_pylist()
    assert sorted((row["id"], row["origin"]) for row in rows) == [
        ("a", "web"),
        ("p", "app"),
        ("w", "web"),
    ]
    assert replay(node, spark, settings).tried == 0


@pytest.mark.verify
def test_lost_records_of_one_flow_are_accepted_and_the_others_go_on(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics
    send("web", ("a", 1))
    send("app", ("p", 1))
    node = graph_of(settings, *both(web, app)).tables["events"]
    run_table(node, spark, settings)
    send("web", ("gone", 1), ("b", 1))
    send("app", ("q", 1))
    admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
    (future,) = admin.delete_records([TopicPartition(web.topic, 0, 2)]).values()
    future.result(timeout=20)
    with pytest.raises(FenceRefused) as refused:
        run_table(node, spark, settings)
    assert refused.value.state == "offsets_lost"
    (lost,) = accept_loss(node, settings, reason="retention was too short")
    assert (lost.topic, lost.first, lost.end) == (web.topic, 1, 2)
    run_table(node, spark, settings)
    assert ids(node.path) == ["a", "b", "p", "q"]
    assert repair(node, settings) == (
        "flow from_web: nothing was to be repaired; flow from_app: nothing was to be repaired"
    )


def test_a_once_flow_brings_what_is_there_and_nothing_that_comes_later(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics
    events = ka.create_streaming_table("events", layer="silver")

    @ka.append_flow(target=events, schema="event.ddl")
    def live(web: Any) -> Any:
        return web

    @ka.append_flow(target=events, schema="event.ddl", once=True)
    def backfill(app: Any) -> Any:
        return app

    send("web", ("a", 1))
    send("app", ("old", 1))
    node = graph_of(settings, web, app, events, live, backfill).tables["events"]
    run_table(node, spark, settings)
    send("web", ("b", 1))
    send("app", ("late", 1))
    run_table(node, spark, settings)
    assert ids(node.path) == ["a", "b", "old"]


def test_flows_that_disagree_about_a_column_are_refused_at_plan_time(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, _ = two_topics
    events = ka.create_streaming_table("events", layer="silver")

    @ka.append_flow(target=events, schema="event.ddl")
    def one(web: Any) -> Any:
        return web

    @ka.append_flow(target=events, schema="event.ddl")
    def two(app: Any) -> Any:
        return app.withColumn("x", F.lit("text"))

    graph = graph_of(settings, web, app, events, one, two)
    with pytest.raises(PlanError, match=r"flow 'two'.*returns x string, another flow of 'events'"):
        run_table(graph.tables["events"], spark, settings)
