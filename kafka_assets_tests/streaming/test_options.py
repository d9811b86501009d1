"""Options of tables: what the Delta table is like that a declaration makes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import kafka_assets as ka
from kafka_assets.errors import DeclarationError, LakeError, PlanError, RunFailed
from kafka_assets.graph import Graph, Node
from kafka_assets.operations.move import move
from kafka_assets.operations.repair import repair
from kafka_assets.operations.reset import reset
from kafka_assets.settings import Settings
from kafka_assets.streaming import interpreted, starting
from kafka_assets.streaming.run import run_graph, run_table
from kafka_assets.streaming.tables import LakeTable
from kafka_assets_tests.helpers import create_topic, graph_of, ids, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def raw(settings: Settings, topic: str, **options: Any) -> Node:
    """The bronze table of a topic, with options."""
    events = ka.kafka_topic(topic, name="events")

    @ka.streaming_table(layer="bronze", **options)
    def raw(events: Any) -> Any:
        """Events as they came."""
        return events

    return graph_of(settings, events, raw).tables["raw"]


@pytest.fixture
def topic(settings: Settings, topic_name: str) -> str:
    create_topic(settings.kafka.bootstrap_servers, topic_name)
    produce(settings.kafka.bootstrap_servers, topic_name, ["a", "b", "c", "d"])
    return topic_name


def test_a_table_has_the_partitions_properties_and_comments_of_its_declaration(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    node = raw(
        settings,
        topic,
        partition_by="topic",
        properties={"delta.logRetentionDuration": "interval 90 days", "team": "data"},
        column_comments={"value": "The event, as JSON."},
    )
    run_table(node, spark, settings)
    table = DeltaTable(node.path)
    assert table.metadata().partition_columns == ["topic"]
    assert table.metadata().description == "Events as they came."
    assert table.metadata().configuration["delta.logRetentionDuration"] == "interval 90 days"
    assert table.metadata().configuration["team"] == "data"
    comments = {f.name: f.metadata.get("comment") for f in table.schema().fields}
    assert comments["value"] == "The event, as JSON."


def test_changed_properties_and_comments_are_those_of_the_table_from_its_next_run(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    first = raw(settings, topic, properties={"team": "data", "old": "1"}, comment="Before.")
    run_table(first, spark, settings)
    node = raw(
        settings,
        topic,
        properties={"team": "it's ours", "delta.logRetentionDuration": "interval 90 days"},
        comment='After `it`\'s "said".',
        column_comments={"value": "The event's bytes."},
    )
    for _ in range(2):
        assert run_table(node, spark, settings).batches == 0
        table = LakeTable.existing(node.path)
        assert table.properties["team"] == "it's ours"
        assert table.properties["old"] == "1", "what is declared no more stays"
        assert table.properties["delta.logRetentionDuration"] == "interval 90 days"
        assert table.comment == 'After `it`\'s "said".'
        assert table.column_comments["value"] == "The event's bytes."
    version = table.version
    run_table(node, spark, settings)
    assert LakeTable.existing(node.path).version == version, "it was changed once"


@pytest.mark.verify
def test_a_reader_goes_on_when_what_its_upstream_says_of_itself_was_changed(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    def both(**options: Any) -> Graph:
        events = ka.kafka_topic(topic, name="events")

        @ka.streaming_table(layer="bronze", **options)
        def first(events: Any) -> Any:
            return events

        @ka.streaming_table(layer="silver")
        def second(first: Any) -> Any:
            return first

        return graph_of(settings, events, first, second)

    run_graph(both(comment="Before."), spark, settings)
    changed = both(comment="After.", column_comments={"value": "v"}, properties={"team": "us"})
    assert [one.kept for one in run_graph(changed, spark, settings).values()] == [0, 0]
    produce(settings.kafka.bootstrap_servers, topic, ["e"])
    assert [one.kept for one in run_graph(changed, spark, settings).values()] == [1, 1]


@pytest.mark.verify
def test_clustering_is_set_when_the_table_is_made_and_changed_later(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    def clustered() -> Any:
        found = spark.sql(f"DESCRIBE DETAIL delta.`{node.path}`").collect()[0]
        return found["clusteringColumns"]

    node = raw(settings, topic, cluster_by="offset")
    run_table(node, spark, settings)
    assert clustered() == ["offset"]
    run_table(raw(settings, topic, cluster_by=["partition", "offset"]), spark, settings)
    assert clustered() == ["partition", "offset"]
    # deltalake reads such a table and cannot write it: operations ask Spark.
    with pytest.raises(LakeError, match="with which only Spark can write it"):
        LakeTable.existing(node.path).delete(None)
    assert LakeTable.existing(node.path).rows == 4
    graph = Graph({}, {"raw": node})
    reset(graph, "raw", settings)
    assert LakeTable.existing(node.path).rows == 0
    assert run_table(node, spark, settings).kept == 4
    shutil.rmtree(node.checkpoint)
    assert "made anew from the rows of the table" in repair(node, settings)
    assert run_table(node, spark, settings).kept == 0
    assert LakeTable.existing(node.path).rows == 4
    elsewhere = raw(settings, topic, cluster_by="offset", path="elsewhere/raw")
    assert move(elsewhere, settings) == (node.path, elsewhere.path)
    assert LakeTable.existing(elsewhere.path).properties["kafka_assets.path"] == "elsewhere/raw"


def test_other_partitions_than_the_table_has_are_refused(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    run_table(raw(settings, topic), spark, settings)
    with pytest.raises(LakeError, match=r"is parted by nothing, and partition_by= says \['topic'"):
        run_table(raw(settings, topic, partition_by="topic"), spark, settings)


def test_generated_columns_are_computed_and_constraints_hold_every_row(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    events = ka.kafka_topic(topic, name="events")

    def graph(rule: str) -> Graph:
        @ka.streaming_table(layer="bronze")
        def raw(events: Any) -> Any:
            return events

        @ka.streaming_table(
            layer="silver",
            generated={"letter": "CAST(value AS STRING)"},
            constraints={"early": rule, "short": "length(letter)<2 AND letter IN ('a b', letter)"},
            properties={"short": "is no constraint"},
            partition_by="letter",
        )
        @ka.expect_or_drop("no_b", "letter <> 'b'")
        def letters(raw: Any) -> Any:
            return raw

        return graph_of(settings, events, raw, letters)

    run_graph(graph("letter < 'e'"), spark, settings)
    node = graph("letter < 'e'").tables["letters"]
    assert ids(node.path, "letter") == ["a", "c", "d"]
    assert ids(node.dead_letters_path, "value") == [b"b"]

    made = LakeTable.existing(node.path).version
    run_graph(graph("letter  <'e'"), spark, settings)
    assert LakeTable.existing(node.path).version == made

    produce(settings.kafka.bootstrap_servers, topic, ["c", "e"])
    with pytest.raises(RunFailed, match="breaks the constraint 'early'"):
        run_graph(graph("letter < 'e'"), spark, settings)
    assert ids(node.path, "letter") == ["a", "c", "d"]
    run_graph(graph("letter < 'f'"), spark, settings)
    assert ids(node.path, "letter") == ["a", "c", "c", "d", "e"]
    with pytest.raises(LakeError, match=r"cannot have the constraint 'early' \(letter < 'b'\)"):
        run_graph(graph("letter < 'b'"), spark, settings, names=("letters",))
    kept = LakeTable.existing(node.path).properties["delta.constraints.early"]
    assert kept == "letter < 'f'"
    with pytest.raises(PlanError, match=r"constraint 'early': 'size < 3': .*size"):
        run_graph(graph("size < 3"), spark, settings, names=("letters",))
    reset(graph("letter < 'f'"), "letters", settings)
    assert LakeTable.existing(node.path).rows == 0


def test_a_batch_takes_no_more_rows_than_it_may(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    report = run_table(raw(settings, topic, max_rows_per_batch=3), spark, settings)
    assert (report.batches, report.kept) == (2, 4)


@pytest.mark.verify
def test_a_table_that_holds_its_batch_in_memory_takes_a_backlog_in_several(
    spark: SparkSession, settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = ka.kafka_topic(topic, name="events")

    @ka.streaming_table(layer="bronze", max_rows_per_batch=2)
    def raw(events: Any) -> Any:
        return events

    @ka.streaming_table(layer="bronze")
    @ka.expect_or_drop("no_d", "value != CAST('d' AS BINARY)")
    def direct(events: Any) -> Any:
        return events

    @ka.streaming_table(layer="silver")
    @ka.expect_or_drop("no_b", "value != CAST('b' AS BINARY)")
    def clean(raw: Any) -> Any:
        return raw

    monkeypatch.setattr(starting, "HELD_RECORDS", 3)
    monkeypatch.setattr(starting, "HELD_BYTES", 1)
    reports = run_graph(graph_of(settings, events, raw, direct, clean), spark, settings)
    assert [reports[name].batches for name in ("raw", "direct", "clean")] == [2, 2, 2]
    clean_report = reports["clean"]
    assert (clean_report.returned, clean_report.kept, clean_report.dead) == (4, 3, 1)
    assert all(sides.holds for name in reports for sides in reports[name].conservation)


def test_spark_settings_of_a_table_hold_for_it_alone(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    seen = []

    events = ka.kafka_topic(topic, name="events")

    @ka.streaming_table(layer="bronze", spark_conf={name: "7"})
    def raw(events: Any) -> Any:
        seen.append(events.sparkSession.conf.get(name))
        return events

    @ka.materialized_view(layer="gold", spark_conf={name: "5"})
    def counted(raw: Any) -> Any:
        seen.append(raw.sparkSession.conf.get(name))
        return raw.groupBy("topic").count()

    graph = graph_of(settings, events, raw, counted)
    run_graph(graph, spark, settings, names=("raw",))
    assert seen[-1] == "7"
    run_graph(graph, spark, settings, names=("counted",))
    assert seen[-1] == "5"
    assert spark.conf.get(name) == before


def test_a_setting_that_spark_refuses_leaves_the_session_as_it_was(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    name = "spark.sql.codegen.wholeStage"
    before = spark.conf.get(name, None)
    node = raw(settings, topic, spark_conf={"spark.sql.warehouse.dir": "elsewhere"})
    with pytest.raises(RunFailed, match="warehouse"):
        run_table(node, spark, settings)
    assert spark.conf.get(name, None) == before


@pytest.mark.verify
def test_few_rows_are_interpreted_many_are_compiled_and_who_chose_is_left_alone(
    spark: SparkSession,
    settings: Settings,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "spark.sql.codegen.wholeStage"
    before = spark.conf.get(name, "true")
    seen = []

    events = ka.kafka_topic(topic, name="events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        seen.append(events.sparkSession.conf.get(name, "true"))
        return events

    @ka.streaming_table(layer="silver")
    def copy(raw: Any) -> Any:
        seen.append(raw.sparkSession.conf.get(name, "true"))
        return raw

    @ka.streaming_table(layer="bronze", spark_conf={name: "true"})
    def chosen(events: Any) -> Any:
        seen.append(events.sparkSession.conf.get(name))
        return events

    monkeypatch.setattr(interpreted, "FEW", 2)
    graph = graph_of(settings, events, raw, copy, chosen)

    def runs(*names: str) -> list[str]:
        run_graph(graph, spark, settings, names=names)
        found = seen[-len(names) :]
        seen.clear()
        return found

    assert runs("raw", "copy") == ["true", "true"]
    produce(settings.kafka.bootstrap_servers, topic, [b"d"])
    assert runs("raw", "copy") == ["false", "false"]
    assert spark.conf.get(name, "true") == before
    monkeypatch.setattr(interpreted, "FEW", 100)
    assert runs("chosen") == ["true"]


def test_options_that_name_no_column_are_refused_at_plan_time(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    with pytest.raises(PlanError, match="cluster_by= names nothing_such"):
        run_table(raw(settings, topic, cluster_by="nothing_such"), spark, settings)


def test_an_option_that_does_not_exist_is_refused_when_it_is_written() -> None:
    with pytest.raises(DeclarationError, match=r"there is no option partitioned_by=") as refused:

        @ka.streaming_table(layer="bronze", partitioned_by="x")  # type: ignore[call-arg]
        def raw(events: Any) -> Any:
            return events

    assert refused.value.fix == "did you mean partition_by=?"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"generated": {"day": "CAST(at AS"}}, "is not valid SQL"),
        ({"generated": {"all": "a IN (SELECT 1)"}}, "may not read other tables"),
        ({"constraints": {"few": "count(*) < 3"}}, "no aggregates"),
        ({"constraints": {"../x": "a > 0"}}, "the constraint's name"),
    ],
)
def test_sql_of_options_that_is_no_expression_is_refused(
    options: dict[str, Any], problem: str
) -> None:
    def raw(events: Any) -> Any:
        return events

    with pytest.raises(DeclarationError, match=problem):
        ka.streaming_table(layer="bronze", **options)(raw)


def test_partitions_and_clusters_exclude_each_other() -> None:
    with pytest.raises(DeclarationError, match="exclude each other"):

        @ka.streaming_table(layer="bronze", partition_by="a", cluster_by="b")
        def raw(events: Any) -> Any:
            return events
