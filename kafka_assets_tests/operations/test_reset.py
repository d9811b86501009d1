"""A table is built anew only from what its source still has, and never silently."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafka_assets as ka
from kafka_assets.errors import OperationRefused
from kafka_assets.operations import audit
from kafka_assets.operations.reset import examine, reset
from kafka_assets.settings import Settings
from kafka_assets_tests.helpers import graph_of
from kafka_assets_tests.pipeline import Bronze, Pipeline, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def bronze(spark: SparkSession, settings: Settings, topic_name: str) -> Bronze:
    return Bronze(spark, settings, topic_name)


def test_a_reset_builds_the_table_anew_and_deletes_nothing_from_disk(bronze: Bronze) -> None:
    report = reset(bronze.graph, "raw", bronze.settings)
    assert (report.tables, report.losses) == (("raw",), ())
    assert Path(report.moved["raw"]).is_dir()
    assert bronze.offsets() == []
    assert bronze.run().kept == 3
    assert bronze.offsets() == [0, 1, 2]
    assert [line["operation"] for line in audit.read(bronze.settings)] == ["reset"]


def test_a_reset_that_would_lose_rows_is_refused_until_it_is_accepted_in_words(
    bronze: Bronze,
) -> None:
    bronze.delete_records(before=2)
    with pytest.raises(OperationRefused, match="lose 2 rows of raw for ever") as refused:
        reset(bronze.graph, "raw", bronze.settings)
    assert '--accept "lose 2 rows of raw"' in str(refused.value.fix)
    with pytest.raises(OperationRefused):
        reset(bronze.graph, "raw", bronze.settings, accept="yes")
    assert bronze.offsets() == [0, 1, 2]
    assert bronze.run().kept == 0

    reset(bronze.graph, "raw", bronze.settings, accept="lose 2 rows of raw", by="me")
    bronze.run()
    assert bronze.offsets() == [2]
    (line,) = audit.read(bronze.settings)
    assert (line["rows"], line["by"]) == (2, "me")


def test_a_stream_that_reads_the_table_is_not_left_behind(bronze: Bronze) -> None:
    bronze.run("copy")
    with pytest.raises(OperationRefused, match="copy read 'raw' as a stream"):
        reset(bronze.graph, "raw", bronze.settings)
    assert reset(bronze.graph, "raw", bronze.settings, downstream=True).tables == ("raw", "copy")
    bronze.run()
    assert bronze.run("copy").kept == 3


def test_a_table_that_does_not_allow_a_reset_is_never_reset(bronze: Bronze) -> None:
    events = ka.kafka_topic(bronze.topic, name="events")

    @ka.streaming_table(layer="bronze", reset_allowed=False)
    def raw(events: Any) -> Any:
        return events

    graph = graph_of(bronze.settings, events, raw)
    with pytest.raises(OperationRefused, match="reset_allowed=False"):
        reset(graph, "raw", bronze.settings, accept="lose 3 rows of raw")
    assert bronze.offsets() == [0, 1, 2]


def test_bronze_rebuilds_everything_downstream_also_when_the_topic_has_lost_all(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    pipeline = Pipeline(spark, settings, topic_name)
    pipeline.produce(event("a", 1), event("b", 2, hour=11), event("c", -1), b"no json")
    pipeline.run()
    before = {table: pipeline.rows(table, *columns) for table, columns in SHOWN.items()}
    letters = pipeline.letters("offset", "reason", "value")

    assert examine(pipeline.graph, "clean", settings, downstream=True).losses == ()
    reset(pipeline.graph, "clean", settings, downstream=True)
    assert all(pipeline.rows(table, *columns) == [] for table, columns in SHOWN.items())
    assert pipeline.letters("offset") == []
    pipeline.run()
    assert {table: pipeline.rows(table, *columns) for table, columns in SHOWN.items()} == before
    assert pipeline.letters("offset", "reason", "value") == letters


SHOWN = {"clean": ("id", "x"), "hourly": ("hour", "total"), "largest": ("x",)}
