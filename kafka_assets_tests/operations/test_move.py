"""A table whose declaration says another place is never begun anew by accident."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import kafka_assets as ka
from kafka_assets.errors import PlaceChanged
from kafka_assets.operations.move import move
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_table
from kafka_assets_tests.helpers import graph_of
from kafka_assets_tests.pipeline import Bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_changed_layer_is_refused_until_the_table_was_moved_and_readers_go_on(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    bronze = Bronze(spark, settings, topic_name)
    bronze.run("copy")
    events = ka.kafka_topic(topic_name, name="events")

    @ka.streaming_table(layer="silver", path="elsewhere/raw")
    def raw(events: Any) -> Any:
        return events

    @ka.streaming_table(layer="silver")
    def copy(raw: Any) -> Any:
        return raw

    graph = graph_of(settings, events, raw, copy)
    node = graph.tables["raw"]
    with pytest.raises(PlaceChanged, match="elsewhere/raw"):
        run_table(node, spark, settings)
    assert not Path(node.path).exists()

    old, new = move(node, settings) or ("", "")
    assert (old, new) == (bronze.node.path, node.path)
    assert not Path(old).exists()
    assert move(node, settings) is None

    bronze.produce(b"d")
    assert run_table(node, spark, settings).rows_total == 4
    assert run_table(graph.tables["copy"], spark, settings).kept == 1
    assert DeltaTable(node.path).metadata().configuration["kafka_assets.layer"] == "silver"
