"""Files that go: before they are read, while a run reads, and after they were read long ago."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import (
    ExpectationFailed,
    FenceRefused,
    SourceError,
)
from kafka_assets.graph import Graph
from kafka_assets.operations.reset import reset
from kafka_assets.settings import Settings
from kafka_assets.streaming import files_seen
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.run import run_graph, run_table
from kafka_assets_tests.helpers import graph_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from kafka_assets_tests.streaming.landing import COLUMNS, orders, put, rows


def test_a_file_that_goes_before_its_batch_was_written_stops_the_table_and_is_named(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    def checked(rule: str) -> Graph:
        arrived = ka.file_source("arrived", str(landing), format="json", schema=COLUMNS)

        @ka.streaming_table(layer="bronze")
        @ka.expect_or_fail("fine", rule)
        def raw(arrived: Any) -> Any:
            return arrived

        return graph_of(settings, arrived, raw)

    gone = put(landing, "1.json", '{"id": "a", "x": -1}')
    put(landing, "2.json", '{"id": "b", "x": 1}')
    with pytest.raises(ExpectationFailed):
        run_graph(checked("x > 0"), spark, settings)
    gone.unlink()
    graph = checked("true")
    with pytest.raises(FenceRefused, match=r"gone.*1\.json") as refused:
        run_graph(graph, spark, settings)
    assert refused.value.state == "upstream_files_gone"
    assert rows(graph.tables["raw"].path, "id") == []
    reset(graph, "raw", settings)
    run_graph(graph, spark, settings)
    assert rows(graph.tables["raw"].path, "id") == [("b",)]


def test_a_file_that_goes_while_the_run_reads_is_named_and_the_next_run_goes_on(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    arrived = ka.file_source(
        "arrived",
        str(landing),
        format="json",
        schema=COLUMNS,
        options={"maxFilesPerTrigger": 1},
    )
    second = put(landing, "2.json", '{"id": "b", "x": 1}')
    os.utime(second, (2_000_000_000, 2_000_000_000))
    put(landing, "1.json", '{"id": "a", "x": 1}')

    begun = Path(settings.lake) / "_checkpoints/bronze/raw/offsets/0"

    def fine() -> Any:
        if begun.exists():
            # All files have been listed, and one of them is read in this batch.
            second.unlink(missing_ok=True)
        return F.col("x") > 0

    @ka.streaming_table(layer="bronze")
    @ka.expect_or_drop("fine", fine)
    def raw(arrived: Any) -> Any:
        return arrived

    node = graph_of(settings, arrived, raw).tables["raw"]
    with pytest.raises(SourceError, match=r"1 files went while they were read.*2\.json"):
        run_table(node, spark, settings)
    put(landing, "3.json", '{"id": "c", "x": 1}')
    run_table(node, spark, settings)
    assert rows(node.path, "id") == [("a",), ("c",)]


def test_a_file_that_went_while_a_run_read_that_died_is_named_by_the_next_run_once(
    spark: SparkSession, settings: Settings, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = orders(settings, landing).tables["raw"]
    gone = put(landing, "1.json", '{"id": "a", "x": 1}')

    def die(node: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("kafka_assets.streaming.files_seen.end", die)
        with pytest.raises(KeyboardInterrupt):
            run_table(node, spark, settings)
    gone.unlink()
    put(landing, "2.json", '{"id": "b", "x": 1}')
    with pytest.raises(SourceError, match=r"1 files went while they were read.*1\.json"):
        run_table(node, spark, settings)
    put(landing, "3.json", '{"id": "c", "x": 1}').rename(landing / "4.json")
    run_table(node, spark, settings)
    assert rows(node.path, "id") == [("a",), ("b",), ("c",)]


def test_files_that_were_read_may_go_before_a_run_of_more_batches_than_spark_remembers(
    settings: Settings, landing: Path
) -> None:
    node = orders(settings, landing).tables["raw"]
    checkpoint = Checkpoint.read(node.checkpoint).create()
    log = Path(node.checkpoint, "sources/0")
    log.mkdir(parents=True)
    for batch in range(3):
        path = f"file://{landing}/{batch}.json"
        (log / str(batch)).write_text(f'v1\n{{"path":"{path}","batchId":{batch}}}')
        checkpoint.write_offsets(batch, [{"logOffset": batch}])
        checkpoint.write_commit(batch)
    checkpoint.write_files_seen({"0": 0})
    for batch in (1, 2):
        put(landing, f"{batch}.json", "{}")
    # Of batch 0, whose file was read and removed long ago, Spark has forgotten where it ended.
    Path(node.checkpoint, "offsets/0").unlink()
    files_seen.end(node)
    assert Checkpoint.read(node.checkpoint).files_seen == {"0": 2}


@pytest.mark.parametrize("torn", ["", '{"0": '])
def test_a_torn_note_of_the_files_that_were_seen_is_made_anew(tmp_path: Path, torn: str) -> None:
    checkpoint = Checkpoint.read(str(tmp_path)).create()
    checkpoint.write_files_seen({"0": 1})
    assert Checkpoint.read(str(tmp_path)).files_seen == {"0": 1}
    (tmp_path / "kafka_assets.files.json").write_text(torn)
    assert Checkpoint.read(str(tmp_path)).files_seen is None


def test_the_files_that_were_read_are_known_also_when_spark_has_put_its_logs_together(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    interval = "spark.sql.streaming.fileSource.log.compactInterval"
    node = orders(settings, landing).tables["raw"]
    # Sources read it from the session itself, and not from what a table sets.
    spark.conf.set(interval, "2")
    try:
        for name in ("1.json", "2.json", "3.json"):
            put(landing, name, '{"id": "a", "x": 1}')
            run_table(node, spark, settings)
    finally:
        spark.conf.unset(interval)
    assert list(Path(node.checkpoint).glob("sources/0/*.compact"))
    checkpoint = Checkpoint.read(node.checkpoint)
    after = {
        n: {Path(path).name for path in checkpoint.files_read(checkpoint.file_positions(n))}
        for n in (-1, 0, 1, 2)
    }
    assert after == {
        -1: {"1.json", "2.json", "3.json"},
        0: {"2.json", "3.json"},
        1: {"3.json"},
        2: set(),
    }
    assert checkpoint.files_read() == checkpoint.files_read({})


def test_a_topic_with_the_name_of_a_logs_field_is_no_file(tmp_path: Path) -> None:
    source = tmp_path / "sources/0"
    source.mkdir(parents=True)
    (source / "0").write_text('v1\n{"path":{"0":0}}')
    (tmp_path / "metadata").write_text('{"id":"q"}')
    assert Checkpoint.read(str(tmp_path)).files_read() == set()
