"""Files as a source: each row once, and what does not fit is kept and seen."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import kafka_assets as ka
from kafka_assets.errors import (
    FenceRefused,
    OperationRefused,
    RunFailed,
    SourceError,
)
from kafka_assets.operations import letters
from kafka_assets.operations.letters import Filter
from kafka_assets.operations.replay import replay
from kafka_assets.operations.reset import reset
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph, run_table
from kafka_assets_tests.helpers import graph_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from kafka_assets_tests.streaming.landing import COLUMNS, orders, put, rows


def test_each_file_is_read_once_and_rows_that_do_not_fit_are_kept_as_text(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    graph = orders(settings, landing)
    put(landing, "1.json", '{"id": "a", "x": 1}', '{"id": "b", "x": "many"}', "no json")
    first = run_graph(graph, spark, settings)
    assert (first["raw"].kept, first["clean"].kept, first["clean"].dead) == (3, 1, 2)
    put(landing, "2.json", '{"id": "c", "x": -3}')
    run_graph(graph, spark, settings)
    assert run_graph(graph, spark, settings)["raw"].kept == 0
    assert rows(graph.tables["raw"].path, "id", "x", "_rescued_data", "file_name") == [
        ("a", 1, None, "1.json"),
        ("b", None, '{"id": "b", "x": "many"}', "1.json"),
        ("c", -3, None, "2.json"),
        (None, None, "no json", "1.json"),
    ]
    assert rows(graph.tables["clean"].path, "id", "x") == [("a", 1), ("c", -3)]
    letters = rows(graph.tables["clean"].dead_letters_path, "failed_rules", "row")
    assert {json.loads(row)["_rescued_data"] for _, row in letters} == {
        "no json",
        '{"id": "b", "x": "many"}',
    }


def test_a_folder_that_is_empty_at_first_holds_up_nothing_of_the_others(
    spark: SparkSession, settings: Settings, landing: Path, tmp_path: Path
) -> None:
    (tmp_path / "later").mkdir()
    arrived = ka.file_source("arrived", str(landing), format="json", schema=COLUMNS)
    later = ka.file_source("later", str(tmp_path / "later"), format="json", schema=COLUMNS)

    @ka.streaming_table(layer="bronze")
    @ka.expect("fits", "_rescued_data IS NULL")
    def raw(arrived: Any, later: Any) -> Any:
        return arrived.unionByName(later)

    node = graph_of(settings, arrived, later, raw).tables["raw"]
    for name in ("a", "b"):
        put(landing, f"{name}.json", f'{{"id": "{name}", "x": 1}}')
        run_table(node, spark, settings)
    put(tmp_path / "later", "c.json", '{"id": "c", "x": 1}')
    run_table(node, spark, settings)
    assert rows(node.path, "id") == [("a",), ("b",), ("c",)]


def test_a_view_over_files_is_computed_when_they_change_and_not_otherwise(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    arrived = ka.file_source("arrived", f"{landing}/*.json", format="json", schema=COLUMNS)

    @ka.materialized_view(layer="gold")
    @ka.expect("fits", "_rescued_data IS NULL")
    def latest(arrived: Any) -> Any:
        return arrived.select("*", "_metadata.file_name")

    graph = graph_of(settings, arrived, latest)
    assert run_graph(graph, spark, settings)["latest"].kept == 0
    put(landing, "1.json", '{"id": "a", "x": 1}', '{"id": "b", "x": "many"}')
    (broken,) = run_graph(graph, spark, settings)["latest"].rules
    assert broken.broken == 1
    version = DeltaTable(graph.tables["latest"].path).version()
    run_graph(graph, spark, settings)
    assert DeltaTable(graph.tables["latest"].path).version() == version
    gone = put(landing, "2.json", '{"id": "c", "x": 2}')
    run_graph(graph, spark, settings)
    assert rows(graph.tables["latest"].path, "id", "x", "file_name") == [
        ("a", 1, "1.json"),
        ("b", None, "1.json"),
        ("c", 2, "2.json"),
    ]
    gone.unlink()
    run_graph(graph, spark, settings)
    assert rows(graph.tables["latest"].path, "id") == [("a",), ("b",)]


def test_a_stream_looks_up_files_as_they_are_when_its_run_starts(
    spark: SparkSession, settings: Settings, landing: Path, tmp_path: Path
) -> None:
    codes = tmp_path / "codes"
    codes.mkdir()
    put(codes, "codes.csv", "id,name", "a,first")
    arrived = ka.file_source("arrived", str(landing), format="json", schema=COLUMNS)
    options = {"header": True}
    named = ka.file_source(
        "named", str(codes), format="csv", schema="id STRING, name STRING", options=options
    )

    @ka.streaming_table(layer="bronze", reads={"named": "static"})
    def raw(arrived: Any, named: Any) -> Any:
        return arrived.join(named.drop("_rescued_data"), "id", "left").select("id", "name")

    graph = graph_of(settings, arrived, named, raw)
    put(landing, "1.json", '{"id": "a"}', '{"id": "b"}')
    run_graph(graph, spark, settings)
    put(codes, "more.csv", "id,name", "b,second")
    assert run_graph(graph, spark, settings)["raw"].kept == 0
    put(landing, "2.json", '{"id": "b"}')
    run_graph(graph, spark, settings)
    assert rows(graph.tables["raw"].path, "id", "name") == [
        ("a", "first"),
        ("b", "second"),
        ("b", None),
    ]


def test_a_file_that_is_older_than_those_read_before_is_read_too(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    graph = orders(settings, landing)
    put(landing, "new.json", '{"id": "new", "x": 1}')
    run_table(graph.tables["raw"], spark, settings)
    old = put(landing, "old.json", '{"id": "old", "x": 1}')
    os.utime(old, (0, 1_500_000_000))
    run_table(graph.tables["raw"], spark, settings)
    assert rows(graph.tables["raw"].path, "id") == [("new",), ("old",)]


def test_dead_letters_of_files_are_shown_and_discarded_and_not_tried_again(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    graph = orders(settings, landing)
    put(landing, "1.json", '{"id": "a", "x": 1}', "no json")
    run_graph(graph, spark, settings)
    clean = graph.tables["clean"]
    (letter,) = letters.find(clean)
    assert json.loads(letter.values["row"])["_rescued_data"] == "no json"
    with pytest.raises(OperationRefused, match=r"as those of files never do.*are kept"):
        replay(clean, spark, settings, by="me")
    assert rows(clean.path, "id") == [("a",)]
    assert letters.discard(clean, settings, Filter(), reason="no order", by="me") == 1
    assert letters.find(clean) == []


def test_a_batch_of_files_that_was_written_is_not_written_again(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    node = orders(settings, landing).tables["raw"]
    put(landing, "1.json", '{"id": "a", "x": 1}')
    run_table(node, spark, settings)
    commits = Path(node.checkpoint) / "commits"
    (commits / "0").unlink()
    (commits / ".0.crc").unlink()
    run_table(node, spark, settings)
    assert rows(node.path, "id") == [("a",)]


def test_csv_with_a_header_in_another_order_stops_and_is_not_read_by_position(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    arrived = ka.file_source(
        "arrived", str(landing), format="csv", schema=COLUMNS, options={"header": True}
    )

    @ka.streaming_table(layer="bronze")
    def raw(arrived: Any) -> Any:
        return arrived

    node = graph_of(settings, arrived, raw).tables["raw"]
    put(landing, "1.csv", "id,x", "a,1", "b,many", "c,1,left over", "d")
    run_table(node, spark, settings)
    assert rows(node.path, "id", "x", "_rescued_data") == [
        ("a", 1, None),
        ("b", None, "b,many"),
        ("c", 1, "c,1,left over"),
        ("d", None, "d"),
    ]
    put(landing, "2.csv", "x,id", "1,a")
    with pytest.raises(RunFailed, match="CSV header does not conform to the schema"):
        run_table(node, spark, settings)
    assert len(rows(node.path, "id")) == 4


def test_a_folder_that_is_not_there_or_is_another_one_is_refused(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    with pytest.raises(SourceError, match="there is no such folder; nothing was read"):
        run_table(orders(settings, landing / "absent").tables["raw"], spark, settings)
    put(landing, "1.json", '{"id": "a", "x": 1}')
    run_table(orders(settings, landing).tables["raw"], spark, settings)
    (landing / "moved").mkdir()
    with pytest.raises(FenceRefused) as refused:
        run_table(orders(settings, landing / "moved").tables["raw"], spark, settings)
    assert refused.value.state == "other_folder"


def test_a_reset_brings_the_files_back_and_says_when_one_of_them_is_gone(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    graph = orders(settings, landing)
    first = put(landing, "1 a.json", '{"id": "a", "x": 1}')
    put(landing, "2.json", '{"id": "b", "x": 1}')
    run_table(graph.tables["raw"], spark, settings)
    reset(graph, "raw", settings)
    run_table(graph.tables["raw"], spark, settings)
    assert rows(graph.tables["raw"].path, "id") == [("a",), ("b",)]
    first.unlink()
    with pytest.raises(OperationRefused, match=r"1 of 2 files are gone, such as file:.*/1 a.json"):
        reset(graph, "raw", settings)
    assert len(rows(graph.tables["raw"].path, "id")) == 2


@pytest.mark.parametrize(
    ("format", "columns"), [("text", ["value"]), ("binaryFile", ["path", "length", "content"])]
)
def test_formats_that_have_columns_of_their_own(
    spark: SparkSession, settings: Settings, landing: Path, format: str, columns: list[str]
) -> None:
    arrived = ka.file_source("arrived", str(landing), format=format)

    @ka.streaming_table(layer="bronze")
    def raw(arrived: Any) -> Any:
        return arrived.select(*columns)

    node = graph_of(settings, arrived, raw).tables["raw"]
    put(landing, "1.txt", "one", "two")
    assert run_table(node, spark, settings).kept == (2 if format == "text" else 1)


def test_parquet_files_are_read_with_the_columns_that_are_declared(
    spark: SparkSession, settings: Settings, landing: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrived = ka.file_source("arrived", f"{landing}/*.parquet", format="parquet", schema=COLUMNS)

    @ka.streaming_table(layer="bronze")
    def raw(arrived: Any) -> Any:
        return arrived

    node = graph_of(settings, arrived, raw).tables["raw"]
    table = pa.table({"id": ["a"], "x": pa.array([1], pa.int32()), "more": [True]})
    pq.write_table(table, landing / "1.parquet")
    put(landing, "not read.txt", "something else")
    run_table(node, spark, settings)
    assert rows(node.path, "id", "x") == [("a", 1)]
