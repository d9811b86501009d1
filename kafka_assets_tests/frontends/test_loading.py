"""How a program is taken in: around it all is as before, and its author decides what is derived."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kafka_assets as ka
from kafka_assets.frontends.programs import load_program
from kafka_assets.graph import build_graph
from kafka_assets.settings import Settings
from kafka_assets_tests.frontends.shown import (
    PROGRAMS,
    edges,
    graph_of_program,
    load,
    refused,
    tables,
    written,
)

KAFKA = 'spark.readStream.format("kafka").option("subscribe", "t")'


def test_loading_leaves_no_trace_in_the_process(tmp_path: Path) -> None:
    before = (set(sys.modules), os.environ.get("SPARK_CONNECT_MODE_ENABLED"), list(sys.path))
    load("medallion_orders.py")
    refused(tmp_path, "import dlt\nraise ValueError('no')\n")
    after = (set(sys.modules), os.environ.get("SPARK_CONNECT_MODE_ENABLED"), list(sys.path))
    assert not {"dlt", "pyspark.pipelines"} & (after[0] - before[0])
    assert after[1:] == before[1:]


def test_the_example_of_the_page_takes_a_program_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[2] / "docs" / "programs.md"
    (example,) = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    (tmp_path / "page_of_programs.py").write_text(example, encoding="utf-8")
    program = f"import dlt\n\n@dlt.table\ndef orders_enriched():\n    return {KAFKA}.load()\n"
    (tmp_path / "orders_dlt.py").write_text(program, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    graph = build_graph([importlib.import_module("page_of_programs")], Settings(lake=str(tmp_path)))
    assert graph.tables["orders_enriched"].table.layer == "gold"
    assert list(graph.topics) == ["t"]


def test_loading_starts_no_engine() -> None:
    code = (
        "import sys, kafka_assets; assert 'pyspark' not in sys.modules\n"
        "from kafka_assets.frontends.programs import load_program\n"
        f"load_program({str(PROGRAMS / 'sdp_running_totals.py')!r})\n"
        "from pyspark import SparkContext; assert SparkContext._gateway is None\n"
        "assert 'dagster' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_layers_that_the_author_gives_win_over_those_derived() -> None:
    loaded = load("sdp_orders.py", layers={"orders_silver": "gold", "orders_bronze": "silver"})
    assert tables(loaded)["orders_silver"] == "gold streaming_table"
    assert tables(loaded)["orders_bronze"] == "silver streaming_table"


def test_a_topic_declared_elsewhere_is_read_by_its_name_there() -> None:
    orders = ka.kafka_topic("orders", name="shop_orders")
    loaded = load("medallion_orders.py", topics=[orders])
    assert loaded.topics == {}
    assert ("shop_orders", "orders_raw") in edges(loaded)


def test_a_function_that_wants_rows_is_read_as_text_and_a_note_says_so(tmp_path: Path) -> None:
    loaded = written(
        tmp_path,
        f"""import dlt
NAME = "raw"
@dlt.table
def raw():
    return {KAFKA}.load()
@dlt.table
def counted():
    n = dlt.read(f"{{NAME}}").count()
    return spark.readStream.table("LIVE.other").limit(n)
@dlt.table
def other():
    return dlt.read_stream("raw")
""",
    )
    assert edges(loaded) == {
        ("t", "raw"),
        ("raw", "counted"),
        ("other", "counted"),
        ("raw", "other"),
    }
    assert loaded.tables["counted"].reads == {"raw": "static"}
    (note,) = loaded.notes
    assert note.place.line == 8
    assert "what it reads was taken from its text" in note.text


def test_a_folder_is_one_program_of_several_files(tmp_path: Path) -> None:
    (tmp_path / "a_bronze.py").write_text(
        f"import dlt\nfrom helpers.names import RAW\n@dlt.table(name=RAW)\n"
        f"def x(): return {KAFKA}.load()\n"
    )
    (tmp_path / "b_silver.py").write_text(
        'import dlt\n@dlt.table\ndef clean(): return dlt.read_stream("raw_t")\n'
    )
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "names.py").write_text('RAW = "raw_t"\n')
    loaded = load_program(tmp_path)
    assert edges(loaded) == {("t", "raw_t"), ("raw_t", "clean")}
    assert "helpers.names" not in sys.modules


def test_a_jupyter_notebook_is_a_program_whose_lines_are_those_of_its_cells(
    tmp_path: Path,
) -> None:
    cells = [
        ("markdown", "# Title"),
        ("code", "%pip install x"),
        ("code", "import dlt\n\n@dlt.table\ndef raw():\n    return " + KAFKA + ".load()\n"),
        ("code", "@dlt.table\ndef clean():\n    return dlt.read_stream('raw')\n"),
    ]
    file = tmp_path / "flow.ipynb"
    file.write_text(json.dumps({"cells": [{"cell_type": k, "source": [t]} for k, t in cells]}))
    loaded = load_program(file)
    assert edges(loaded) == {("t", "raw"), ("raw", "clean")}
    assert str(loaded.tables["raw"].place).endswith("flow.ipynb[cell 3]:3")


def test_a_module_that_takes_a_program_in_declares_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text((PROGRAMS / "enriched_stream.py").read_text())
    module = ModuleType("team_shop")
    text = (
        "import kafka_assets as ka\n"
        'customers = ka.external_table("customers", path="/crm/customers")\n'
        'ka.program("shop.py", tables={"crm.main.customers": "customers"})\n'
    )
    exec(compile(text, str(tmp_path / "pipeline.py"), "exec"), vars(module))
    graph = build_graph([module], ka.Settings(lake=str(tmp_path / "lake")))
    assert list(graph.topics) == ["products_topic", "order_events_topic"]
    assert set(graph.tables) == {"products_log", "products", "order_events", "order_lines"}
    assert set(graph.outside) == {"customers"}


def test_the_code_version_follows_the_function_and_the_values_it_sees(tmp_path: Path) -> None:
    def version(text: str) -> str:
        graph = graph_of_program(written(tmp_path, text), tmp_path)
        return graph.tables["clean"].code_version

    start = f"import dlt\nLEAST = 1\n@dlt.table\ndef raw(): return {KAFKA}.load()\n"
    clean = "@dlt.table\ndef clean():\n    return dlt.read_stream('raw').filter(f'x > {LEAST}')\n"
    first = version(start + clean)
    assert version(f"# a comment\n{start}{clean}") == first
    assert version(start.replace("LEAST = 1", "LEAST = 2") + clean) != first
    assert version(start + clean.replace("x >", "x <")) != first


@pytest.mark.parametrize(
    ("written_name", "name"),
    [("OrdersRaw", "orders_raw"), ("a.b.Big Table", "big_table"), ("2024_sales", "t_2024_sales")],
)
def test_names_become_snake_case(tmp_path: Path, written_name: str, name: str) -> None:
    loaded = written(
        tmp_path,
        f"import dlt\n@dlt.table(name={written_name!r})\ndef x(): return {KAFKA}.load()\n",
    )
    assert list(loaded.tables) == [name]


def test_an_option_of_the_topic_that_means_nothing_here_is_noted_without_its_secret(
    tmp_path: Path,
) -> None:
    loaded = written(
        tmp_path,
        f"import dlt\n@dlt.table\ndef x(): return {KAFKA}"
        '.option("kafka.bootstrap.servers", "127.0.0.1:9092").option("startingOffsets", "latest")'
        '.option("kafka.sasl.jaas.config", "hunter2").option("minPartitions", 4).load()\n',
    )
    assert [note.text for note in loaded.notes] == [
        "startingOffsets='latest': a topic is always read from its earliest record",
        "kafka.sasl.jaas.config: the settings kafka.properties and kafka.secrets decide",
        "minPartitions='4' is not used: the settings decide how topics are read",
    ]


def test_the_command_prints_the_graph_as_json() -> None:
    command = [sys.executable, "-m", "kafka_assets.cli", "import"]
    program = str(PROGRAMS / "sdp_orders.py")
    done = subprocess.run(
        [*command, program, "--json", "--layer", "orders_silver=gold"],
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    assert set(found) == {"tables", "topics", "files", "edges", "notes"}
    assert ["orders", "orders_bronze"] in found["edges"]
    assert {t["name"]: t["layer"] for t in found["tables"]}["orders_silver"] == "gold"


def test_the_command_fails_with_each_line_that_cannot_be_mapped(tmp_path: Path) -> None:
    file = tmp_path / "files.py"
    file.write_text("import dlt\n@dlt.table\ndef x(): return spark.read.json('/x')\n")
    done = subprocess.run(
        [sys.executable, "-m", "kafka_assets.cli", "import", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{file}:3: reads the json files at '/x' without a schema" in done.stderr
    assert "Traceback" not in done.stderr


def test_ways_in_which_programs_are_written_are_followed(tmp_path: Path) -> None:
    loaded = written(
        tmp_path,
        """from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql.functions import *
from pyspark.sql.avro.functions import from_avro
from functools import reduce

session = SparkSession.getActiveSession()

class Bronze:
    def __init__(self, name):
        self.name = name
    def register(self):
        @dp.table(name=f"bronze_{self.name}")
        def table():
            reader = session.readStream.format("kafka").options(subscribe=self.name)
            return reader.load().select(from_avro("value", '"string"').alias("v"), "key")

for name in ("a", "b"):
    Bronze(name).register()

@dp.materialized_view
def everything():
    return reduce(DataFrame.unionAll, [session.table(f"bronze_{n}") for n in ("a", "b")])

@dp.materialized_view
def newest():
    rows = spark.read.table("everything").alias("e")
    latest = rows.withColumn("n", row_number().over(Window.partitionBy("key").orderBy(desc("v"))))
    return latest.where(latest.n == 1).join(broadcast(spark.table("bronze_a")), "key", "left_semi")
""",
    )
    assert edges(loaded) == {
        ("a", "bronze_a"),
        ("b", "bronze_b"),
        ("bronze_a", "everything"),
        ("bronze_b", "everything"),
        ("everything", "newest"),
        ("bronze_a", "newest"),
    }
    assert loaded.notes == ()


def test_a_frame_at_the_top_that_no_table_uses_is_a_note(tmp_path: Path) -> None:
    text = (
        'import dlt\nsample = spark.read.format("kafka").option("subscribe", "t").load()\n'
        "print('looking')\ndisplay(sample.limit(5))\n"
        f"@dlt.table\ndef raw(): return {KAFKA}.load()\n"
    )
    (note,) = written(tmp_path, text).notes
    assert note.text == "reads a topic as a batch (spark.read); no table uses it"
    looked_at = text.replace("display(", "C = sample.columns; display(")
    assert refused(tmp_path, looked_at) == ["program.py:2: reads a topic as a batch (spark.read)"]
    used = f"{text}@dlt.table\ndef other(): return sample.limit(1)\n"
    assert refused(tmp_path, used) == ["program.py:2: reads a topic as a batch (spark.read)"]


def test_a_table_of_a_catalog_is_the_programs_own_unless_that_cannot_be(tmp_path: Path) -> None:
    text = (
        f"import dlt\n@dlt.table\ndef raw(): return {KAFKA}.load()\n"
        "@dlt.table\ndef clean(): return spark.readStream.table('main.shop.raw')\n"
    )
    loaded = written(tmp_path, text)
    assert edges(loaded) == {("t", "raw"), ("raw", "clean")}
    (note,) = loaded.notes
    assert note.text.startswith("'main.shop.raw' is taken for the program's own 'raw'")
    itself = text.replace("main.shop.raw", "LIVE.raw")
    itself = itself.replace(f"{KAFKA}.load()", "spark.readStream.table('lake.in.clean')")
    assert refused(tmp_path, itself) == [
        "program.py:3: reads 'lake.in.clean', which cannot be the program's own 'clean': that is "
        "made from 'raw'"
    ]
    outside = written(tmp_path, itself, tables={"lake.in.clean": "landed"})
    assert edges(outside) == {("landed", "raw"), ("raw", "clean")}


def test_commands_of_sql_that_only_choose_a_place_or_set_something_are_taken(
    tmp_path: Path,
) -> None:
    loaded = written(
        tmp_path,
        "import dlt\nspark.sql('USE CATALOG main')\n"
        "spark.sql('SET spark.sql.ansi.enabled = false')\n"
        "spark.conf.set('spark.databricks.io.cache.enabled', True)"
        f"\n@dlt.table\ndef raw(): return {KAFKA}.load()\n",
    )
    assert loaded.tables["raw"].options.spark_conf == {"spark.sql.ansi.enabled": "false"}
    used, set_ = loaded.notes
    assert used.text == "'USE CATALOG main' is not needed: tables are read by their names"
    assert set_.text.startswith(
        "spark.conf.set('spark.databricks.io.cache.enabled', 'true') is not"
    )


def test_generated_columns_and_constraints_of_a_schema_are_those_of_the_table(
    tmp_path: Path,
) -> None:
    schema = (
        "id STRING NOT NULL, at TIMESTAMP, "
        "day DATE GENERATED ALWAYS AS (CAST(at AS DATE)) COMMENT 'Of at.', "
        "late INT NOT NULL GENERATED ALWAYS AS (datediff(at, day)), "
        "CONSTRAINT key PRIMARY KEY (id), CONSTRAINT isKnown CHECK (id <> '')"
    )
    loaded = written(
        tmp_path,
        f'import dlt\n@dlt.table(schema="{schema}", partition_cols=["day"])\n'
        f"def raw(): return {KAFKA}.load().selectExpr('string(key) id', 'timestamp at')\n",
    )
    options = loaded.tables["raw"].options
    assert options.generated == {
        "day": "CAST(CAST(at AS DATE) AS DATE)",
        "late": "CAST(datediff(at, day) AS INT)",
    }
    assert options.constraints == {
        "id_not_null": "`id` IS NOT NULL",
        "late_not_null": "`late` IS NOT NULL",
        "is_known": "id <> ''",
    }
    assert options.column_comments == {"day": "Of at."}
    assert [note.text for note in loaded.notes] == ["PRIMARY KEY (id) of 'raw' is not enforced"]
    rows = graph_of_program(loaded, tmp_path).tables["raw"]
    assert rows.table.options.partition_by == ("day",)
