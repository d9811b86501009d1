"""Files as a source: each row once, and what does not fit is kept and seen."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import kafka_assets as ka
from kafka_assets.errors import FenceRefused, OperationRefused, RunFailed, SourceError
from kafka_assets.graph import Graph
from kafka_assets.operations.reset import reset
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph, run_table
from kafka_assets_tests.helpers import graph_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id STRING, x INT"


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


def orders(settings: Settings, landing: Path | str) -> Graph:
    """Rows of JSON files, and those of them that fit their columns."""
    arrived = ka.file_source("arrived", str(landing), format="json", schema=COLUMNS)

    @ka.streaming_table(layer="bronze")
    def raw(arrived: Any) -> Any:
        return arrived.select("*", "_metadata.file_name")

    @ka.streaming_table(layer="silver")
    @ka.expect_or_drop("fits", "_rescued_data IS NULL")
    @ka.expect("positive", "x > 0")
    def clean(raw: Any) -> Any:
        return raw

    return graph_of(settings, arrived, raw, clean)


def put(folder: Path, name: str, *lines: str) -> Path:
    """A file that appears whole, as an upload does."""
    draft = folder / f".{name}"
    draft.write_text("\n".join(lines), encoding="utf-8")
    return draft.rename(folder / name)


def rows(path: str, *columns: str) -> list[tuple[Any, ...]]:
    table = DeltaTable(path).to_pyarrow_table()
    return sorted(
        (tuple(row[c] for c in columns) for row in table.to_pylist()), key=lambda row: str(row)
    )


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
