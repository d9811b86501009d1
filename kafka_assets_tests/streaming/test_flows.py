"""Tables that several flows feed, temporary views, joins, and tables of other code locations."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
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
from kafka_assets.streaming.run import run_graph, run_table
from kafka_assets_tests.helpers import create_topic, graph_of, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.graph import Graph

Send = Callable[..., None]


@pytest.fixture
def schemas(settings: Settings) -> None:
    assert settings.schemas is not None
    (settings.schemas / "event.ddl").write_text("id STRING, x INT", encoding="utf-8")


@pytest.fixture
def two_topics(settings: Settings, topic_name: str, schemas: None) -> tuple[Any, Any, Send]:
    """Two topics, `web` and `app`, and what sends (id, x) to one of them."""
    names = {"web": f"{topic_name}-web", "app": f"{topic_name}-app"}
    for name in names.values():
        create_topic(settings.kafka.bootstrap_servers, name)

    def send(topic: str, *events: tuple[str, int]) -> None:
        values = [json.dumps({"id": id_, "x": x}) for id_, x in events]
        produce(settings.kafka.bootstrap_servers, names[topic], values)

    topics = [ka.kafka_topic(names[name], name=name) for name in ("web", "app")]
    return topics[0], topics[1], send


def ids(path: str, column: str = "id") -> list[Any]:
    return sorted(DeltaTable(path).to_pyarrow_table().column(column).to_pylist())


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


def bronze_and_view(web: Any) -> list[Any]:
    @ka.streaming_table(layer="bronze")
    def raw(web: Any) -> Any:
        return web

    @ka.temporary_view()
    def recent(raw: Any) -> Any:
        return raw.filter("offset > 0")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clean(recent: Any) -> Any:
        return recent

    @ka.materialized_view(layer="gold")
    def counted(recent: Any) -> Any:
        return recent.groupBy("topic").count()

    return [web, raw, recent, clean, counted]


def test_a_temporary_view_has_no_files_and_its_readers_see_what_it_shows(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, _, send = two_topics
    send("web", ("a", 1), ("b", 2), ("c", 3))
    graph = graph_of(settings, *bronze_and_view(web))
    reports = run_graph(graph, spark, settings)
    assert ids(graph.tables["clean"].path) == ["b", "c"]
    assert ids(graph.tables["counted"].path, "count") == [2]
    assert list(graph.tables) == ["raw", "clean", "counted"]
    assert reports["clean"].kept == 2
    assert run_graph(graph, spark, settings)["counted"].batches == 0


def test_a_stream_looks_things_up_in_a_table_as_it_is_when_the_batch_runs(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def names(app: Any) -> Any:
        return app.select("id", F.col("x").alias("number"), "_source")

    @ka.streaming_table(layer="bronze")
    def raw(web: Any) -> Any:
        return web

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clean(raw: Any) -> Any:
        return raw

    @ka.streaming_table(layer="gold", reads={"names": "static"})
    @ka.expect_or_drop("known", "number IS NOT NULL")
    def named(clean: Any, names: Any) -> Any:
        return clean.join(names.drop("_source"), "id", "left")

    send("app", ("a", 7))
    send("web", ("a", 1), ("b", 2))
    graph = graph_of(settings, web, app, names, raw, clean, named)
    run_graph(graph, spark, settings)
    gold = graph.tables["named"]
    assert ids(gold.path, "number") == [7]
    send("app", ("b", 8))
    send("web", ("b", 3))
    report = run_graph(graph, spark, settings)["named"]
    assert ids(gold.path, "number") == [7, 8]
    # What was joined before is not joined again, and the letter kept its raw bytes.
    assert report.kept == 1
    (letter,) = DeltaTable(gold.dead_letters_path).to_pyarrow_table().to_pylist()
    assert json.loads(letter["value"]) == {"id": "b", "x": 2}


def test_two_streams_are_joined_whichever_side_comes_first(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clicks(web: Any) -> Any:
        return web.withColumn("at", F.col("_source.timestamp"))

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def orders(app: Any) -> Any:
        return app.withColumn("at", F.col("_source.timestamp"))

    @ka.streaming_table(layer="gold")
    def matched(clicks: Any, orders: Any) -> Any:
        left = clicks.withWatermark("at", "1 hour").alias("c")
        right = orders.drop("_source").withWatermark("at", "1 hour").alias("o")
        near = "c.id = o.id AND o.at BETWEEN c.at - INTERVAL 1 HOUR AND c.at + INTERVAL 1 HOUR"
        return left.join(right, F.expr(near)).select("c.id", "c._source", F.col("o.x").alias("x"))

    send("web", ("a", 1))
    graph = graph_of(settings, web, app, clicks, orders, matched)
    run_graph(graph, spark, settings)
    send("app", ("a", 5), ("b", 6))
    run_graph(graph, spark, settings)
    send("web", ("b", 2))
    run_graph(graph, spark, settings)
    assert ids(graph.tables["matched"].path, "x") == [5, 6]


def test_a_table_of_another_code_location_is_an_upstream(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, _, send = two_topics

    @ka.streaming_table(layer="bronze")
    def raw(web: Any) -> Any:
        return web

    there = graph_of(settings, web, raw)
    send("web", ("a", 1))
    run_graph(there, spark, settings)
    elsewhere = ka.external_table("raw", layer="bronze")

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def clean(raw: Any) -> Any:
        return raw

    here = graph_of(settings, elsewhere, clean)
    run_graph(here, spark, settings)
    assert ids(here.tables["clean"].path) == ["a"]
    send("web", ("b", 2))
    run_graph(there, spark, settings)
    run_graph(here, spark, settings)
    assert ids(here.tables["clean"].path) == ["a", "b"]


def test_whole_table_expectations_say_what_the_run_left(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def known(app: Any) -> Any:
        return app

    @ka.streaming_table(layer="silver", schema="event.ddl")
    @ka.expect_unique("one_row_an_id", "id")
    @ka.expect_row_count("not_empty", at_least=1, blocking=True)
    @ka.expect_new_rows("a_few", at_most=2)
    @ka.expect_values_in("ids_known", "id", "known")
    @ka.expect_fresh("of_today", "at", within=timedelta(days=1))
    @ka.expect_fresh("of_this_second", "long_ago", within=timedelta(seconds=1))
    def clean(web: Any) -> Any:
        at = F.col("_source.timestamp")
        return web.withColumns({"at": at, "long_ago": at - F.expr("INTERVAL 1 HOUR")})

    graph: Graph = graph_of(settings, web, app, known, clean)
    send("app", ("a", 1), ("b", 1))
    empty = run_graph(graph, spark, settings)["clean"].table_rules
    assert {r.name: r.holds for r in empty} == {
        "one_row_an_id": True,
        "not_empty": False,
        "a_few": True,
        "ids_known": True,
        "of_today": True,
        "of_this_second": True,
    }
    send("web", ("a", 1), ("a", 2), ("z", 3))
    broken = run_graph(graph, spark, settings)["clean"].table_rules
    assert [(r.name, r.holds) for r in broken[4:]] == [
        ("of_today", True),
        ("of_this_second", False),
    ]
    assert [(r.name, r.holds, r.found) for r in broken[:4]] == [
        ("one_row_an_id", False, 1),
        ("not_empty", True, 3),
        ("a_few", False, 3),
        ("ids_known", False, 1),
    ]
    assert broken[3].sample == ({"value": "z"},)


def test_a_fail_rule_puts_up_with_what_its_threshold_says_and_no_more(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    from kafka_assets.errors import ExpectationFailed

    web, _, send = two_topics

    @ka.streaming_table(layer="silver", schema="event.ddl")
    @ka.expect_or_fail("mostly_positive", "x > 0", above=0.5)
    def clean(web: Any) -> Any:
        return web

    node = graph_of(settings, web, clean).tables["clean"]
    send("web", ("a", -1), ("b", 2))
    report = run_table(node, spark, settings)
    assert (report.kept, report.rules[0].broken) == (2, 1)
    send("web", ("c", -1), ("d", -1), ("e", 1))
    with pytest.raises(ExpectationFailed, match="mostly_positive: 2 of 3 rows"):
        run_table(node, spark, settings)
    assert ids(node.path) == ["a", "b"]


def test_changes_and_windows_are_read_through_a_view_as_well(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, _, send = two_topics

    @ka.streaming_table(layer="bronze", schema="event.ddl")
    def changes(web: Any) -> Any:
        return web.withColumn("at", F.col("_source.timestamp"))

    @ka.temporary_view()
    def doubled(changes: Any) -> Any:
        return changes.withColumn("x", F.col("x") * 2)

    present = ka.create_streaming_table("present", layer="silver")
    flow = ka.create_auto_cdc_flow(
        target=present, source=doubled, keys="id", sequence_by="_source.offset"
    )

    @ka.windowed_table(layer="gold", event_time="at", window="1 day")
    def daily(doubled: Any) -> Any:
        return doubled.groupBy(F.date_trunc("day", "at").alias("day")).agg(F.sum("x").alias("x"))

    graph = graph_of(settings, web, changes, doubled, present, flow, daily)
    send("web", ("a", 1), ("b", 2))
    run_graph(graph, spark, settings)
    send("web", ("a", 5))
    run_graph(graph, spark, settings)
    assert ids(graph.tables["present"].path, "x") == [4, 10]
    assert ids(graph.tables["daily"].path, "x") == [16]
