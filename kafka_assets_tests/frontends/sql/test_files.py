"""`read_files` and `cloud_files` are file sources, in both of their forms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import kafka_assets as ka
from kafka_assets.declarations import FileSource
from kafka_assets.errors import DeclarationError
from kafka_assets.graph import build_graph
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph
from kafka_assets_tests.frontends.sql.helpers import load
from kafka_assets_tests.helpers import module_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW = """
CREATE STREAMING TABLE orders_raw AS SELECT *, _metadata.file_name AS file FROM STREAM read_files(
  '/landing/orders/', format => 'json', schema => 'id STRING, x INT', multiLine => true);
"""
OLD = """
CREATE OR REFRESH STREAMING LIVE TABLE orders_raw
AS SELECT * FROM cloud_files('/landing/orders', 'json', map(
  'schema', 'id STRING, x INT', 'cloudFiles.inferColumnTypes', 'true', 'multiLine', 'true'));
"""


@pytest.mark.parametrize("text", [NEW, OLD])
def test_both_forms_become_a_file_source_and_a_bronze_table_that_streams_from_it(text: str) -> None:
    source, table = load(text).declarations
    assert isinstance(source, FileSource)
    assert isinstance(table, ka.Table)
    assert (source.name, source.format, source.schema) == ("orders", "json", "id STRING, x INT")
    assert source.path.rstrip("/") == "/landing/orders"
    assert dict(source.options) == {"multiLine": "true"}
    assert (table.layer, table.upstreams, table.reads) == ("bronze", ("orders",), {})


def test_what_is_taken_differently_is_noted() -> None:
    assert [note.text.partition(":")[0] for note in load(OLD).notes] == [
        "read_files is read as a stream",
        "cloudFiles.inferColumnTypes is not needed",
    ]


def test_sizes_and_hints_of_auto_loader_are_understood_as_in_programs() -> None:
    loaded = load(
        "CREATE STREAMING TABLE orders_raw AS SELECT * FROM STREAM cloud_files('/orders', 'csv', "
        "map('schema', 'id INT', 'cloudFiles.schemaHints', 'id INT', 'mode', 'PERMISSIVE', "
        "'cloudFiles.maxFilesPerTrigger', '7', 'cloudFiles.maxBytesPerTrigger', '10g'));"
        "CREATE STREAMING TABLE more AS SELECT * FROM STREAM read_files('/more', format => 'text', "
        "maxBytesPerTrigger => '2k');"
    )
    sources = [one for one in loaded.declarations if isinstance(one, FileSource)]
    assert [dict(one.options) for one in sources] == [
        {"maxFilesPerTrigger": "7"},
        {"maxBytesPerTrigger": "2048"},
    ]
    assert [note.text for note in loaded.notes] == [
        "cloudFiles.schemaHints is not needed: the schema says which columns there are",
        "mode is not needed: rows that do not fit are kept",
        f"maxBytesPerTrigger='{10 * 1024**3}' is not used beside maxFilesPerTrigger",
    ]


def test_a_folder_has_the_name_that_no_table_has_and_is_one_source_for_all_who_read_it() -> None:
    loaded = load(
        "CREATE STREAMING TABLE orders AS SELECT * FROM STREAM read_files('s3://b/orders', 'text');"
        "CREATE STREAMING TABLE more AS SELECT * FROM STREAM read_files('s3://b/orders', 'text');"
    )
    names = [one.name for one in loaded.declarations]
    assert names == ["orders_files", "orders", "more"]


def test_files_are_read_as_they_are_by_a_view_and_in_a_join() -> None:
    names = "read_files('/names', format => 'csv', schema => 'id INT', header => true)"
    tables = load(
        f"CREATE MATERIALIZED VIEW names_now AS SELECT * FROM {names};"
        f"CREATE STREAMING TABLE named AS SELECT * FROM STREAM(raw) JOIN {names} n USING (id);"
        "CREATE STREAMING TABLE first AS SELECT * FROM STREAM read_files('/in', 'text') "
        f"JOIN {names} n ON value = id;"
    ).declarations
    found = {one.name: one for one in tables if isinstance(one, ka.Table)}
    assert {name: one.layer for name, one in found.items()} == {
        "names_now": "bronze",
        "named": "silver",
        "first": "bronze",
    }
    assert (found["named"].reads, found["names_now"].reads) == ({"names": "static"}, {})


def test_limits_are_those_of_the_stream_that_reads_a_folder_also_read_as_it_is() -> None:
    whole = "CREATE MATERIALIZED VIEW now AS SELECT * FROM read_files('/in', 'text');"
    limited = (
        "CREATE STREAMING TABLE raw AS SELECT * FROM STREAM "
        "read_files('/in', 'text', maxFilesPerTrigger => 5);"
    )
    for text in (whole + limited, limited + whole):
        (source,) = [one for one in load(text).declarations if isinstance(one, FileSource)]
        assert dict(source.options) == {"maxFilesPerTrigger": "5"}
    needless = whole.replace("'text'", "'text', maxFilesPerTrigger => 6")
    loaded = load(limited + needless)
    (source,) = [one for one in loaded.declarations if isinstance(one, FileSource)]
    assert dict(source.options) == {"maxFilesPerTrigger": "5"}
    assert "maxFilesPerTrigger is not needed: all files are read" in str(loaded.notes[0])
    with pytest.raises(DeclarationError, match="is read in another way"):
        load(limited + limited.replace("raw", "more").replace("5", "6"))


def test_rows_of_files_go_through_sql(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/1.json").write_text('{"id": "a", "x": 1}\n{"id": "b", "x": "no"}\n')
    text = f"""
    CREATE STREAMING TABLE raw AS SELECT *, _metadata.file_name AS file
    FROM STREAM read_files('{tmp_path}/landing', format => 'json', schema => 'id STRING, x INT');
    CREATE STREAMING TABLE clean (CONSTRAINT fits EXPECT (_rescued_data IS NULL)
    ON VIOLATION DROP ROW) AS SELECT * FROM STREAM(raw);
    """
    (tmp_path / "names.csv").write_text("id,name\na,first\n")
    text += f"""
    CREATE MATERIALIZED VIEW named AS SELECT c.x, n.name, n._metadata.file_name FROM clean c
    JOIN read_files('{tmp_path}/names.csv', 'csv', schema => 'id STRING, name STRING',
    header => true) n USING (id);
    """
    graph = build_graph([module_of(*load(text).declarations)], settings)
    reports: Any = run_graph(graph, spark, settings)
    assert (reports["raw"].kept, reports["clean"].kept, reports["clean"].dead) == (2, 1, 1)
    (row,) = DeltaTable(graph.tables["clean"].path).to_pyarrow_table().to_pylist()
    assert (row["id"], row["x"], row["file"]) == ("a", 1, "1.json")
    (row,) = DeltaTable(graph.tables["named"].path).to_pyarrow_table().to_pylist()
    assert tuple(row.values()) == (1, "first", "names.csv")
