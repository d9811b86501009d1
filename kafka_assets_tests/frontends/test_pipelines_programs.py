"""Programs of Spark Declarative Pipelines, unchanged, and programs that are folders of files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_assets.declarations import Changes
from kafka_assets.errors import ProgramRefused
from kafka_assets.frontends.programs import LoadedProgram, load_program
from kafka_assets_tests.frontends.shown import (
    edges,
    graph_of_program,
    load,
    rules,
    tables,
    written,
)

NOTEBOOK = "# Databricks notebook source\nimport dlt\n"
SETUP = """SOURCE = "{0}"
@dlt.table
def {0}_raw():
    return spark.readStream.format("kafka").option("subscribe", SOURCE).load()
"""
MAIN = "# MAGIC %run ./{}\n@dlt.table\ndef main(): return dlt.read_stream(SOURCE + '_raw')\n"


def folder(path: Path, **texts: str) -> LoadedProgram:
    """A program of files, whose names have `__` for a slash and `_dot_` for a point."""
    for name, text in texts.items():
        file = path / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return load_program(path)


def test_a_spark_pipeline_with_a_view_between_its_tables(tmp_path: Path) -> None:
    loaded = load("sdp_orders.py")
    assert tables(loaded) == {
        "orders_bronze": "bronze streaming_table",
        "orders_parsed": "silver temporary_view",
        "orders_silver": "silver streaming_table",
        "orders_by_state": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("orders", "orders_bronze"),
        ("orders_bronze", "orders_parsed"),
        ("orders_parsed", "orders_silver"),
        ("orders_silver", "orders_by_state"),
    }
    assert rules(loaded) == {}
    graph_of_program(loaded, tmp_path)


def test_changes_ordered_by_a_struct_of_columns(tmp_path: Path) -> None:
    loaded = load("sdp_inventory_cdc.py")
    assert tables(loaded) == {
        "inventory_log": "bronze streaming_table",
        "inventory_changes": "silver streaming_table",
        "inventory": "silver auto_cdc",
        "stock_by_sku": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("inventory_topic", "inventory_log"),
        ("inventory_log", "inventory_changes"),
        ("inventory", "stock_by_sku"),
        ("inventory_changes", "inventory"),
    }
    assert rules(loaded) == {}
    graph_of_program(loaded, tmp_path)
    (flow,) = loaded.flows
    assert flow.name == "inventory_flow"
    assert flow.changes == Changes(
        keys=("sku", "site"),
        sequence_by="struct(seq, offset)",
        apply_as_deletes="op = 'DELETE'",
        columns=("sku", "site", "stock"),
    )


def test_two_topics_in_one_table_and_a_delta_sink_behind_it(tmp_path: Path) -> None:
    loaded = load("sdp_archive_sink.py")
    assert tables(loaded) == {
        "events": "bronze streaming_table",
        "archive": "sink sink",
    }
    assert edges(loaded) == {
        ("app_events", "events"),
        ("web_events", "events"),
        ("events", "archive"),
    }
    assert rules(loaded) == {}
    graph_of_program(loaded, tmp_path)
    assert {flow.name: flow.target for flow in loaded.flows} == {
        "from_app": "events",
        "from_web": "events",
        "to_archive": "archive",
    }


def test_tables_named_in_sql_are_edges_also_behind_temporary_views(tmp_path: Path) -> None:
    loaded = load("sdp_queries.py")
    assert tables(loaded) == {
        "trips_raw": "bronze streaming_table",
        "trips": "silver streaming_table",
        "drivers": "gold materialized_view",
        "trips_of_known_drivers": "silver streaming_table",
        "calendar": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("trips_topic", "trips_raw"),
        ("trips_raw", "trips"),
        ("trips", "drivers"),
        ("trips", "trips_of_known_drivers"),
        ("drivers", "trips_of_known_drivers"),
    }
    assert rules(loaded) == {}
    graph_of_program(loaded, tmp_path)
    assert loaded.tables["trips_of_known_drivers"].reads == {"drivers": "static"}


def test_an_aggregate_without_a_watermark_is_updated_by_its_columns(tmp_path: Path) -> None:
    loaded = load("sdp_running_totals.py")
    assert tables(loaded) == {
        "page_views": "bronze streaming_table",
        "views_by_host": "gold streaming_table",
        "views_by_hour": "gold streaming_table",
    }
    assert edges(loaded) == {
        ("page_views_topic", "page_views"),
        ("page_views", "views_by_host"),
        ("page_views", "views_by_hour"),
    }
    assert rules(loaded) == {}
    graph_of_program(loaded, tmp_path)
    assert loaded.tables["views_by_host"].keys == ("site", "day")
    assert loaded.tables["views_by_hour"].keys == ("start",)


def test_files_of_a_folder_do_not_see_each_others_names(tmp_path: Path) -> None:
    loaded = folder(
        tmp_path, a_dot_py=NOTEBOOK + SETUP.format("a"), b_dot_py=NOTEBOOK + SETUP.format("b")
    )
    assert edges(loaded) == {("a", "a_raw"), ("b", "b_raw")}
    with pytest.raises(ProgramRefused, match=r"c\.py:1: NameError: name 'SOURCE' is not defined"):
        folder(tmp_path, c_dot_py="print(SOURCE)\n")


def test_cells_of_a_notebook_in_a_folder_see_each_others_names(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "source": [text]}
        for text in ("import dlt", SETUP.format("a"), "NAME = SOURCE + '_raw'")
    ]
    texts = {"a_dot_ipynb": json.dumps({"cells": cells}), "b_dot_py": NOTEBOOK + SETUP.format("b")}
    assert edges(folder(tmp_path, **texts)) == {("a", "a_raw"), ("b", "b_raw")}


def test_what_a_file_of_a_folder_runs_is_executed_once_and_shares_its_names(tmp_path: Path) -> None:
    loaded = folder(
        tmp_path,
        main_dot_py=NOTEBOOK + MAIN.format("setup"),
        setup_dot_py=NOTEBOOK + SETUP.format("a"),
    )
    assert edges(loaded) == {("a", "a_raw"), ("a_raw", "main")}


def test_run_is_relative_to_the_notebook_that_it_stands_in(tmp_path: Path) -> None:
    texts = {
        "main_dot_py": NOTEBOOK + MAIN.format("deep/one"),
        "deep__one_dot_py": NOTEBOOK + "# MAGIC %run ./two\n# MAGIC %run ./three\n",
        "deep__two_dot_py": NOTEBOOK + SETUP.format("a"),
        "deep__three_dot_py": NOTEBOOK,
        "two_dot_py": NOTEBOOK + SETUP.format("b"),
    }
    assert edges(folder(tmp_path, **texts)) == {("a", "a_raw"), ("a_raw", "main"), ("b", "b_raw")}
    assert edges(load_program(tmp_path / "main.py")) == {("a", "a_raw"), ("a_raw", "main")}


def test_values_that_run_gives_are_a_note_without_them(tmp_path: Path) -> None:
    loaded = folder(
        tmp_path,
        main_dot_py=NOTEBOOK + MAIN.format('setup $key="hunter2" $env="x"'),
        setup_dot_py=NOTEBOOK + SETUP.format("a"),
    )
    assert [(note.place.line, note.text) for note in loaded.notes] == [
        (3, "%run ./setup $key=...: not used; give it by conf="),
        (3, "%run ./setup $env=...: not used; give it by conf="),
    ]


def test_notebooks_that_run_each_other_are_refused_by_the_line(tmp_path: Path) -> None:
    with pytest.raises(ProgramRefused, match=r"b\.py:3: %run \./a: the notebook is running alre"):
        folder(
            tmp_path,
            a_dot_py=NOTEBOOK + MAIN.format("b") + SETUP.format("a"),
            b_dot_py=NOTEBOOK + "# MAGIC %run ./a\n",
        )


TABLES = """CREATE OR REFRESH STREAMING TABLE clean AS SELECT * FROM STREAM(a_raw);
CREATE OR REFRESH STREAMING TABLE again AS SELECT * FROM STREAM read_kafka(subscribe => 'A');
"""
READS = SETUP.format("a").replace('"a"', '"A"') + (
    "@dlt.table\ndef top(): return spark.read.table('main.shop.clean')\n"
)


def test_sql_in_the_folder_of_a_program_is_part_of_it(tmp_path: Path) -> None:
    loaded = folder(
        tmp_path, transformations__a_dot_py=NOTEBOOK + READS, transformations__b_dot_sql=TABLES
    )
    graph_of_program(loaded, tmp_path)
    assert edges(loaded) == {("a", "a_raw"), ("a_raw", "clean"), ("a", "again"), ("clean", "top")}
    assert list(loaded.topics) == ["a"]
    (note,) = loaded.notes
    assert note.text.startswith("'main.shop.clean' is taken for 'clean', which the program's SQL")
    (tmp_path / "transformations" / "a.py").unlink()
    (tmp_path / "transformations" / "b.sql").write_text(TABLES.replace("a_raw", "again"))
    assert edges(load_program(tmp_path)) == {("a", "again"), ("again", "clean")}


@pytest.mark.parametrize(
    ("sql", "layers", "problem"),
    [
        ("SELECT 1", None, r"b\.sql:1:1: SQL statement: SELECT is no statement"),
        ("CREATE OR REFRESH STREAMING TABLE a_raw;", None, r"a\.py:4: 'a_raw' is declared a sec"),
        ("CREATE OR REFRESH STREAMING TABLE t (x INT);", None, r"a\.py:7: the flow 'f' feeds 't'"),
        (TABLES, {"clean": "gold"}, "layers={'clean': 'gold'}: SQL declares the table"),
    ],
)
def test_sql_in_the_folder_that_does_not_fit_the_program_is_refused(
    tmp_path: Path, sql: str, layers: dict[str, str] | None, problem: str
) -> None:
    flow = "@dlt.append_flow(target='t')\ndef f(): return dlt.read_stream('a_raw')\n"
    (tmp_path / "a.py").write_text(NOTEBOOK + SETUP.format("a") + flow)
    (tmp_path / "b.sql").write_text(sql)
    with pytest.raises(ProgramRefused, match=problem):
        load_program(tmp_path, layers=layers)


def test_a_specification_of_a_pipeline_is_a_note_that_says_conf(tmp_path: Path) -> None:
    loaded = folder(
        tmp_path,
        **{"a_dot_py": NOTEBOOK + SETUP.format("a"), "spark-pipeline_dot_yml": "configuration: {}"},
    )
    (note,) = loaded.notes
    assert note.place.file.endswith("spark-pipeline.yml")
    assert "is not read: give its configuration by conf=" in note.text


def test_what_notebooks_have_can_be_imported_too(tmp_path: Path) -> None:
    text = (
        "from databricks.sdk.runtime import dbutils, display, spark\n"
        "from pyspark.dbutils import DBUtils\n"
        "import dlt\n"
        "topic = DBUtils(spark).widgets.get('topic')\n"
        "@dlt.table\n"
        "def raw(): return spark.readStream.format('kafka').option('subscribe', topic).load()\n"
    )
    assert edges(written(tmp_path, text, conf={"topic": "clicks"})) == {("clicks", "raw")}
