"""Readers of files in programs: each folder is one source, and no option is passed over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_assets.declarations import FileSource
from kafka_assets.errors import DeclarationError
from kafka_assets.graph import build_graph
from kafka_assets.settings import Settings
from kafka_assets_tests.frontends.shown import (
    AUTO,
    JSON,
    START,
    edges,
    graph_of_program,
    load,
    notes,
    program,
    refused,
    tables,
    written,
)


def source(folder: Path, reader: str, **options: Any) -> FileSource:
    """The one file source of a program that has this reader."""
    (found,) = written(folder, program(reader), **options).files.values()
    return found


def test_a_program_with_auto_loader_becomes_a_file_source_and_its_tables(tmp_path: Path) -> None:
    loaded = load("autoloader_orders.py", conf={"landing": "/landing"})
    assert tables(loaded) == {
        "items": "bronze materialized_view",
        "orders_bronze": "bronze streaming_table",
        "orders_silver": "silver streaming_table",
        "revenue": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("items_csv", "items"),
        ("items", "revenue"),
        ("orders", "orders_bronze"),
        ("orders_bronze", "orders_silver"),
        ("orders_silver", "revenue"),
    }
    orders = loaded.files["orders"]
    assert (orders.path, orders.format) == ("/landing/orders", "json")
    assert orders.options == {"maxFilesPerTrigger": "1"}
    files = graph_of_program(loaded, tmp_path).files["orders"]
    assert files.schema.simpleString() == (
        "struct<order_id:string,ordered_at:timestamp,"
        "lines:array<struct<item:string,price:decimal(9,2)>>,_rescued_data:string>"
    )
    assert notes(loaded) == [
        "37: inferSchema='true' is not needed here: the schema says which columns there are",
        "51: cloudFiles.schemaLocation='/landing/_schemas' is not needed here: the schema says "
        "which columns there are",
        "51: rescuedDataColumn='_rescued_data' is not needed here: the column '_rescued_data' is "
        "always there",
    ]


def test_two_programs_that_read_one_folder_share_it(tmp_path: Path) -> None:
    one = written(tmp_path, program(f"{JSON}.load('/in')"))
    two = written(tmp_path, program(f"{JSON}.load('/in')").replace("table_0", "other"))
    settings = Settings(lake=str(tmp_path / "lake"))
    graph = build_graph([one.as_module(), two.as_module()], settings)
    assert {name: list(graph.tables[name].upstreams) for name in graph.tables} == {
        "table_0": ["in"],
        "other": ["in"],
    }


def test_two_programs_share_a_folder_of_which_one_says_the_limits(tmp_path: Path) -> None:
    plain = program(f"{JSON}.load('/in')")
    limited = program(f"{JSON}.option('maxFilesPerTrigger', 5).load('/in')")
    one = written(tmp_path, plain).as_module()
    two = written(tmp_path, limited.replace("table_0", "other")).as_module()
    settings = Settings(lake=str(tmp_path / "lake"))
    for modules in ([one, two], [two, one]):
        (folder,) = build_graph(modules, settings).files.values()
        assert folder.declaration.options["maxFilesPerTrigger"] == "5"
    three = written(tmp_path, limited.replace("table_0", "more").replace("5", "6")).as_module()
    with pytest.raises(DeclarationError, match="has the same name"):
        build_graph([one, two, three], settings)


@pytest.mark.parametrize(
    ("reader", "format", "options"),
    [
        ('spark.readStream.schema("id INT").json("/in", multiLine=True)', "json", "multiLine"),
        ('spark.readStream.schema("id INT").option("HEADER", True).csv("/in")', "csv", "header"),
        ('spark.readStream.csv("/in", "id INT", ";")', "csv", "sep"),
        ('spark.readStream.schema("id INT").parquet("/in", pathGlobFilter="*")', "parquet", None),
        ('spark.readStream.schema("id INT").orc("/in")', "orc", ""),
        ('spark.read.schema("id INT").parquet("/in", pathGlobFilter="*")', "parquet", None),
        ('spark.read.csv("/in", "id INT", ";")', "csv", "sep"),
        ('spark.read.json(["/in"], "id INT", multiLine=True)', "json", "multiLine"),
        ('spark.read.text("/in", wholetext=True)', "text", "wholetext"),
        ('spark.readStream.text("/in", wholetext=True)', "text", "wholetext"),
        ('spark.readStream.load("/in/", format="JSON", schema="id INT")', "json", ""),
        ('spark.readStream.format("binaryFile").option("path", "/in").load()', "binaryFile", ""),
        (
            'spark.readStream.format("binaryFile").schema("path STRING, modificationTime TIMESTAMP,'
            ' length LONG, content BINARY").load("/in")',
            "binaryFile",
            "",
        ),
    ],
)
def test_each_way_to_write_a_reader_is_one_file_source(
    tmp_path: Path, reader: str, format: str, options: str | None
) -> None:
    found = source(tmp_path, reader)
    assert (found.name, found.path, found.format) == ("in", "/in", format)
    wanted = ["pathGlobFilter"] if options is None else options.split()
    assert list(found.options) == wanted
    own = format in ("text", "binaryFile")
    assert found.schema == (None if own else "`id` INT")


def test_a_struct_type_keeps_all_types_and_comments(tmp_path: Path) -> None:
    text = (
        f"{START}COLUMNS = StructType([\n"
        ' StructField("a b", MapType(StringType(), ArrayType(LongType()))),\n'
        ' StructField("t", TimestampNTZType(), False, {"comment": "it\'s a \\\\ time"}),\n'
        ' StructField("s", StructType([StructField("x", DecimalType(9, 2))])),\n])\n'
        '@dlt.table\ndef x(): return spark.readStream.schema(COLUMNS).json("/in")\n'
    )
    columns = graph_of_program(written(tmp_path, text), tmp_path).files["in"].schema
    assert columns.simpleString() == (
        "struct<a b:map<string,array<bigint>>,t:timestamp_ntz,s:struct<x:decimal(9,2)>,"
        "_rescued_data:string>"
    )
    assert columns["t"].metadata == {"comment": "it's a \\ time"}


def test_limits_of_auto_loader_lose_their_prefix_and_sizes_become_numbers(tmp_path: Path) -> None:
    sized = source(tmp_path, f'{AUTO}.option("cloudFiles.maxBytesPerTrigger", "10g").load("/in")')
    assert sized.options == {"maxBytesPerTrigger": str(10 * 1024**3)}
    both = '.option("maxFilesPerTrigger", 5).option("cloudFiles.maxBytesPerTrigger", 9)'
    loaded = written(tmp_path, program(f'{AUTO}{both}.load("/in")'))
    assert loaded.files["in"].options == {"maxFilesPerTrigger": "5"}
    assert notes(loaded) == ["4: maxBytesPerTrigger='9' is not used beside maxFilesPerTrigger"]


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("cloudFiles.schemaHints", "id INT", "the schema says which columns there are"),
        ("cloudFiles.inferColumnTypes", "true", "the schema says which columns there are"),
        (
            "cloudFiles.schemaEvolutionMode",
            "rescue",
            "the schema says which columns there are, and no others are read",
        ),
        ("cloudFiles.useNotifications", "true", "each run lists the folder"),
        (
            "cloudFiles.includeExistingFiles",
            "true",
            "a table has the rows of all files that are there",
        ),
        (
            "cloudFiles.rescuedDataColumn",
            "_rescued_data",
            "the column '_rescued_data' is always there",
        ),
        ("inferSchema", "true", "the schema says which columns there are"),
        ("mode", "PERMISSIVE", "rows that do not fit are kept"),
    ],
)
def test_an_option_that_is_not_needed_is_noted_with_its_line(
    tmp_path: Path, option: str, value: str, why: str
) -> None:
    text = program(f'{AUTO}.option("{option}", "{value}").load("/in")')
    loaded = written(tmp_path, text)
    assert loaded.files["in"].options == {}
    assert notes(loaded) == [f"4: {option}={value!r} is not needed here: {why}"]


@pytest.mark.parametrize(
    ("reader", "problem"),
    [
        (
            f'{AUTO}.option("cloudFiles.includeExistingFiles", "false").load("/in")',
            "cloudFiles.includeExistingFiles='false': a table has the rows of all files that are "
            "there",
        ),
        (
            f'{AUTO}.option("rescuedDataColumn", "rest").load("/in")',
            "rescuedDataColumn='rest': the column '_rescued_data' is always there",
        ),
        (
            'spark.readStream.option("rescuedDataColumn", "_rescued_data").schema("id INT")'
            '.parquet("/in")',
            "rescuedDataColumn='_rescued_data': parquet files have no such column here",
        ),
        (
            f'{AUTO}.option("cloudFiles.region", "eu").load("/in")',
            "the option cloudFiles.region='eu' cannot be set",
        ),
        (f'{JSON}.option("header", True).load("/in")', "the option header='true' cannot be set"),
        (
            f'{JSON}.option("mode", "DROPMALFORMED").load("/in")',
            "mode='DROPMALFORMED': rows that do not fit are kept",
        ),
        (
            f'{JSON}.option("multiLine", spark.conf.get("how")).load("/in")',
            "multiLine depends on 'how', which has no value",
        ),
        (
            f'{JSON}.load(spark.conf.get("where"))',
            "the name of what is read depends on 'where', which has no value",
        ),
        (f"{JSON}.load()", "reads files and names no folder"),
        (
            f'{JSON}.load("dbfs:/in")',
            "reads the files at 'dbfs:/in', a place that exists only on Databricks",
        ),
        (
            'spark.readStream.format("cloudFiles").load("/in")',
            "reads files, and cloudFiles.format is not set",
        ),
        (
            f'{AUTO}.option("cloudFiles.format", "avro").load("/in")',
            "reads files of the format 'avro', which kafka_assets has no reader for",
        ),
        (
            'spark.readStream.schema("id INT").text("/in")',
            "reads text files with the schema `id` INT",
        ),
        (
            'spark.readStream.schema("id WHATEVER").json("/in")',
            "the schema of the files at '/in': schema:1: not DDL: Expecting )",
        ),
        (
            'spark.readStream.schema("id INT DEFAULT 5").json("/in")',
            "the schema of the files at '/in': DEFAULT on the column 'id' cannot be kept",
        ),
        (
            'spark.readStream.schema("id INT, _corrupt_record STRING").json("/in")',
            "the schema of the files at '/in': the text of a row that does not fit is in "
            "_rescued_data, not _corrupt_record",
        ),
        (
            'spark.readStream.schema(StructType([StructField("v", VarcharType(5))])).json("/in")',
            "the schema of the files at '/in': schema: type 'VARCHAR(5)' is not supported",
        ),
        (
            'spark.read.schema("id INT").json(["/in", "/other"])',
            "reads files of 2 folders at once",
        ),
    ],
)
def test_what_a_reader_of_files_says_and_cannot_be_kept_is_refused_with_its_line(
    tmp_path: Path, reader: str, problem: str
) -> None:
    assert refused(tmp_path, program(reader)) == [f"program.py:4: {problem}"]


def test_every_option_that_cannot_be_kept_is_named_at_once(tmp_path: Path) -> None:
    reader = f'{JSON}.options(header=True, mutiLine=True).option("format", "csv").load("/in")'
    assert refused(tmp_path, program(reader)) == [
        "program.py:4: the option header='true' cannot be set",
        "program.py:4: the option mutiLine='true' cannot be set",
        "program.py:4: the option format='csv' cannot be set",
    ]


def test_files_without_a_schema_need_one_from_who_takes_the_program_in(tmp_path: Path) -> None:
    reader = (
        'spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")'
        '.option("cloudFiles.inferColumnTypes", "true").load("/landing/orders/")'
    )
    text = program(reader)
    assert refused(tmp_path, text) == [
        "program.py:4: reads the json files at '/landing/orders' without a schema"
    ]
    given = {"/landing/orders": "id BIGINT, at TIMESTAMP"}
    found = written(tmp_path, text, schemas=given).files["orders"]
    assert found.schema == "`id` BIGINT, `at` TIMESTAMP"
    assert source(tmp_path, reader, schemas={"/landing/orders/": "order.ddl"}).schema == "order.ddl"


def test_a_schema_that_no_reader_needs_is_refused(tmp_path: Path) -> None:
    problems = refused(tmp_path, program(f'{JSON}.load("/in")'), schemas={"/in": "id BIGINT"})
    assert [one.partition(": ")[2] for one in problems] == [
        "schemas={'/in': 'id BIGINT'}: the program reads no files there without a schema of its own"
    ]


def test_a_folder_is_named_by_its_path_apart_from_tables_and_other_folders(tmp_path: Path) -> None:
    text = program(
        f'{JSON}.load("/landing/raw/orders/")',
        f'{JSON}.load("s3://shop/returns/*.json")',
        f'{JSON}.load("/archive/returns")',
        f'{JSON}.load("file:/landing/table_0")',
        'spark.readStream.format("kafka").option("subscribe", "orders").load()',
    )
    loaded = written(tmp_path, text)
    assert {one.name: one.path for one in loaded.files.values()} == {
        "orders": "/landing/raw/orders",
        "returns": "s3://shop/returns/*.json",
        "archive_returns": "/archive/returns",
        "table_0_files": "file:///landing/table_0",
    }
    assert list(loaded.topics) == ["orders_topic"]
    assert notes(loaded) == [
        "8: the files at '/archive/returns' are named 'archive_returns': another is named "
        "'returns'",
        "10: the files at 'file:/landing/table_0' are named 'table_0_files': another is named "
        "'table_0'",
        "12: the topic 'orders' is named 'orders_topic': files are named 'orders'",
    ]


def test_a_path_without_a_beginning_is_looked_for_in_the_lake_and_a_note_says_so(
    tmp_path: Path,
) -> None:
    loaded = written(tmp_path, program(f'{JSON}.load("landing/orders")'))
    assert notes(loaded) == ["4: the files at 'landing/orders' are looked for in the lake"]
    graph = graph_of_program(loaded, tmp_path)
    assert graph.files["orders"].path == f"{tmp_path}/lake/landing/orders"


def test_a_folder_that_two_tables_read_in_one_way_is_one_source(tmp_path: Path) -> None:
    struct = 'spark.readStream.schema(StructType([StructField("id", IntegerType())]))'
    same = written(tmp_path, program(f'{JSON}.load("/in")', f'{struct}.json("/in/")'))
    assert edges(same) == {("in", "table_0"), ("in", "table_1")}
    other = program(f'{JSON}.load("/in")', f'{JSON}.option("multiLine", True).load("/in")')
    assert refused(tmp_path, other) == [
        f"program.py:6: reads the files at '/in' in another way than at {tmp_path / 'program.py'}:4"
    ]
    union = f'{JSON}.load("/in").union({JSON}.option("multiLine", True).load("/in"))'
    (problem,) = refused(tmp_path, program(union))
    assert problem.startswith("program.py:4: reads the files at '/in' in another way")


def test_files_read_through_a_view_and_by_a_flow_make_their_tables_bronze(tmp_path: Path) -> None:
    text = (
        f'{START}@dlt.view\ndef arrived(): return {JSON}.load("/in")\n'
        "@dlt.table\ndef kept(): return dlt.read_stream('arrived')\n"
        "dlt.create_streaming_table('fed')\n"
        f"@dlt.append_flow(target='fed')\ndef flow(): return {JSON}.load('/other')\n"
        "@dlt.table\ndef clean(): return dlt.read_stream('fed')\n"
    )
    loaded = written(tmp_path, text)
    shown = tables(loaded)
    assert shown["kept"] == shown["fed"] == "bronze streaming_table"
    assert shown["clean"] == "silver streaming_table"
    graph = graph_of_program(loaded, tmp_path)
    assert [one.source.name for one in graph.tables["kept"].inputs] == ["in"]


def test_an_aggregate_of_files_without_an_end_is_refused(tmp_path: Path) -> None:
    text = program(f"{JSON}.load('/in').groupBy().count()")
    assert refused(tmp_path, text) == [
        "program.py:4: 'table_0' aggregates files without a watermark, and its keys are no plain "
        "columns of its result"
    ]


def test_a_function_that_wants_rows_reads_the_same_files_by_its_text(tmp_path: Path) -> None:
    start = f'{START}COLUMNS = StructType([StructField("id", IntegerType())])\n'
    reader = 'spark.readStream.schema(COLUMNS).option("multiLine", True).json("/in")'
    by_text = f"@dlt.table\ndef x():\n n = spark.catalog.listTables()\n return {reader}\n"
    executed = f"@dlt.table\ndef x(): return {reader}\n"
    one = written(tmp_path, start + by_text).files["in"]
    other = written(tmp_path, start + executed).files["in"]
    assert (one.schema, one.options) == (other.schema, other.options) == ("`id` INT", other.options)
    unseen = by_text.replace("True", "bool(1)").replace("COLUMNS", "StructType([])")
    assert refused(tmp_path, start + unseen) == [
        "program.py:7: the schema, the option multiLine of a reader cannot be seen in the text of "
        "its function, which cannot be called without rows"
    ]
    before = f"@dlt.table\ndef x():\n f = {reader}\n return f.limit(f.count())\n"
    inline = before.replace("COLUMNS", 'StructType([StructField("id", IntegerType())])')
    assert written(tmp_path, start + inline).files["in"].schema == "`id` INT"


def test_a_reader_at_the_top_that_no_table_uses_is_a_note(tmp_path: Path) -> None:
    text = f"{START}sample = spark.read.jdbc('j', 't')\n{program(JSON + '.load(chr(47))')}"
    loaded = written(tmp_path, text)
    assert notes(loaded) == [
        "3: reads the source 'jdbc', which kafka_assets has no reader for; no table uses it"
    ]
    assert [one.name for one in loaded.files.values()] == ["files"]


def test_the_command_takes_schemas_and_shows_files(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(program('spark.readStream.json("/in/day=1")'))
    command = [sys.executable, "-m", "kafka_assets.cli", "import", str(file), "--schema"]
    done = subprocess.run(
        [*command, "/in/day=1=id INT", "--json"], check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    assert found["files"] == [{"name": "day_1", "path": "/in/day=1", "format": "json"}]
    assert found["edges"] == [["day_1", "table_0"]]
