"""What a program has that cannot be mapped is named with its line, all of it at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_assets.errors import DeclarationError, ProgramRefused
from kafka_assets.frontends.programs import load_program
from kafka_assets.frontends.programs.execution import Execution, Running
from kafka_assets.frontends.programs.registry import Registry
from kafka_assets.frontends.programs.session import Spark
from kafka_assets_tests.frontends.shown import edges, graph_of_program, refused, rules, written

TOPIC = 'spark.readStream.format("kafka").option("subscribe", "t").load()'
START = f"""import dlt
from pyspark.sql import functions as F
@dlt.table
def t_raw(): return {TOPIC}
"""


def test_every_problem_is_named_with_its_own_line(tmp_path: Path) -> None:
    program = START + (
        "@dlt.table\n"
        'def a(): return spark.readStream.format("cloudFiles").load("/in")\n'
        "@dlt.table\n"
        'def b(): return spark.read.csv("/in.csv")\n'
        'dbutils.fs.rm("/tmp/x")\n'
        "spark.sparkContext.setLogLevel('WARN')\n"
        'dlt.create_streaming_table(spark.conf.get("no.such.key"))\n'
    )
    assert refused(tmp_path, program) == [
        "program.py:9: dbutils.fs exists only on Databricks",
        "program.py:10: spark.sparkContext needs a session while the program is loaded",
        "program.py:11: the table '[no value of no.such.key]' depends on 'no.such.key', which has "
        "no value",
        "program.py:6: reads files, and cloudFiles.format is not set",
        "program.py:8: reads the csv files at '/in.csv' without a schema",
    ]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            'spark.readStream.format("kafka").option("subscribe", "a,b").load()',
            "reads several topics at once: a,b",
        ),
        (
            'spark.readStream.format("kafka").option("subscribePattern", "a.*").load()',
            "reads topics by subscribepattern='a.*'",
        ),
        (
            'spark.readStream.format("kafka").load()',
            "reads Kafka without a topic",
        ),
        (
            'spark.read.format("kafka").option("subscribe", "a").load()',
            "reads a topic as a batch (spark.read)",
        ),
        (
            'spark.readStream.format("rate").load()',
            "reads the source 'rate', which kafka_assets has no reader for",
        ),
        (
            'spark.read.jdbc("jdbc:x", "t", properties={"user": "u"})',
            "reads the source 'jdbc', which kafka_assets has no reader for",
        ),
        (
            'spark.read.table("main.crm.customers")',
            "reads 'main.crm.customers', which the program does not declare",
        ),
        (
            'dlt.read_stream("t_rwa")',
            "reads 't_rwa', which the program does not declare",
        ),
        (
            'spark.readStream.format("delta").load("/mnt/t")',
            "reads '/mnt/t', which the program does not declare",
        ),
        (
            'spark.readStream.option("startingVersion", 5).table("t_raw")',
            "reads 't_raw' with the option startingVersion='5'",
        ),
        (
            'dlt.read_stream("t_raw").join(dlt.read("t_raw"), "key")',
            "'out' reads 't_raw' in two ways: stream and static",
        ),
        (
            'dlt.read_stream("t_raw").withColumn("s", F.lit(dbutils.secrets.get("a", "b")))',
            "a column of a table depends on 'a/b', which has no value",
        ),
        (
            'dlt.read_stream("t_raw").writeStream.start("/x")',
            ".writeStream writes by itself",
        ),
        (
            f"{TOPIC}.groupBy(F.length('value')).count()",
            "'out' aggregates a topic without a watermark, and its keys are no plain columns of "
            "its result",
        ),
        (
            'dlt.read_stream(spark.conf.get("source"))',
            "the name of what is read depends on 'source', which has no value",
        ),
        (
            'dlt.read_stream("t_raw" if spark.conf.get("env") == "dev" else "t_raw")',
            "a decision of the program depends on 'env', which has no value",
        ),
        (
            'spark.sql("INSERT INTO x SELECT 1")',
            "spark.sql('INSERT INTO x SELECT 1') is no query",
        ),
        (
            "spark.catalog.listTables()",
            "what 'out' reads cannot be seen: Untraceable: spark.catalog needs a session",
        ),
    ],
)
def test_what_a_function_reads_and_cannot_be_read_here(
    tmp_path: Path, body: str, problem: str
) -> None:
    program = f"{START}@dlt.table\ndef out():\n    return {body}\n"
    assert refused(tmp_path, program) == [f"program.py:7: {problem}"]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            'dlt.apply_changes_from_snapshot(target="x", source="y", keys=["id"])',
            "dlt.apply_changes_from_snapshot has no counterpart here",
        ),
        (
            '@dlt.foreach_batch_sink(name="x")\ndef x(df, id): pass',
            "dlt.foreach_batch_sink has no counterpart here",
        ),
        (
            '@dlt.table(row_filter="f ON (x)")\ndef x(): return dlt.read("t_raw")',
            "row_filter= of 'x' has no counterpart here",
        ),
        (
            '@dlt.table(schema="a INT, b BIGINT GENERATED ALWAYS AS IDENTITY")\n'
            'def x(): return dlt.read("t_raw")',
            "schema= of 'x': GENERATED ALWAYS AS IDENTITY on the column 'b' cannot be kept",
        ),
        (
            '@dlt.table(schema="a INT NOT NULL, CONSTRAINT aNotNull CHECK (a > 0)")\n'
            'def x(): return dlt.read("t_raw")',
            "schema= of 'x': two constraints are named 'a_not_null'",
        ),
        (
            '@dlt.table\ndef t_raw(): return dlt.read("t_raw")',
            "'t_raw' is declared a second time; the first is at program.py:3",
        ),
        (
            '@dlt.table\n@dlt.expect("good", "x >")\ndef x(): return dlt.read("t_raw")',
            "expectation 'good': is not a valid SQL condition: 'x >': ",
        ),
        (
            '@dlt.materialized_view\ndef x(): return dlt.read_stream("t_raw")',
            "the materialized view 'x' reads 't_raw' as a stream",
        ),
        (
            "@dlt.table\ndef x(): return 5",
            "the function of 'x' returns int, no DataFrame",
        ),
        (
            'dlt.create_streaming_table("x")\n'
            'dlt.apply_changes(target="x", source="t_raw", keys=["key"], sequence_by="offset",'
            " stored_as_scd_type=3)",
            "flow 'x': stored_as_scd_type=3 does not exist",
        ),
        (
            'dlt.create_sink("x", "kafka", {"kafka.acks": "all"})',
            "sink 'x': a kafka sink has no topic",
        ),
        (
            '@dlt.table\ndef x(): return spark.readStream.format("kafka").option("subscribe", "u")'
            '.option("kafka.bootstrap.servers", "b:1").load().union(spark.readStream'
            '.format("kafka").option("subscribe", "v")'
            '.option("kafka.bootstrap.servers", "c:1").load())',
            "reads from the broker 'c:1' besides 'b:1'",
        ),
        (
            "@dlt.table\ndef x(frame): return frame",
            "the function of 'x' takes frame",
        ),
        ("x = 1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_what_a_program_declares_and_cannot_be_declared_here(
    tmp_path: Path, statement: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (found,) = refused(tmp_path, f"{START}{statement}\n")
    assert found.partition(": ")[2].startswith(problem)
    assert found.startswith(("program.py:5: ", "program.py:6: "))


def test_a_program_that_is_no_python_names_the_line(tmp_path: Path) -> None:
    (found,) = refused(tmp_path, "import dlt\n@dlt.table\ndef x(:\n")
    assert found.startswith("program.py:3: no Python: ")


def test_a_layer_that_does_not_exist_or_is_of_no_table_is_refused(tmp_path: Path) -> None:
    wrong = refused(tmp_path, START, layers={"t_raw": "brass", "x": "gold"})
    assert [one.partition(": ")[2] for one in wrong] == [
        "layers={'x': 'gold'}: the program has no such table",
        "table 't_raw': layer='brass' does not exist",
    ]


def test_a_cell_of_sql_in_a_notebook_is_named(tmp_path: Path) -> None:
    text = f"# Databricks notebook source\n{START}# COMMAND ----------\n# MAGIC %sql SELECT 1\n"
    assert refused(tmp_path, text) == ["program.py:7: a %sql cell is not part of a Python program"]


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for name, what in (("notes.txt", "is no program in Python"), ("none.py", "cannot be read")):
        with pytest.raises(ProgramRefused, match=what):
            load_program(tmp_path / name)
    assert refused(tmp_path, "x = 1") == [f"{tmp_path}:1: declares no table"]


def test_a_stream_from_a_rewritten_table_is_refused_when_the_graph_is_built(
    tmp_path: Path,
) -> None:
    loaded = written(
        tmp_path,
        f"{START}@dlt.table\ndef whole(): return dlt.read('t_raw')\n"
        "@dlt.table\ndef again(): return dlt.read_stream('whole')\n",
    )
    with pytest.raises(DeclarationError, match=r"program\.py:7.*streams from 'whole'"):
        graph_of_program(loaded, tmp_path)


AUDITED = """import functools
def audited(function):
    @functools.wraps(function)
    def call(): return function()
    return call
"""


def test_expectations_under_another_decorator_are_those_of_the_table(tmp_path: Path) -> None:
    text = (
        f"{AUDITED}{START}@dlt.table\n@audited\n@dlt.expect_or_drop('w', 'x > 1')\n@audited\n"
        "@dlt.expect('v', 'x > 0')\ndef a(): return dlt.read('t_raw')\n"
    )
    assert rules(written(tmp_path, text)) == {
        "a": [("w", "drop", "x > 1"), ("v", "warn", "x > 0")],
    }


def test_an_expectation_that_no_table_takes_up_is_refused_by_its_line(tmp_path: Path) -> None:
    body = "def a(): return dlt.read_stream('t_raw')\n"
    unknown = AUDITED.replace("    @functools.wraps(function)\n", "")
    hidden = f"@dlt.table(name='a')\n@audited\n@dlt.expect_or_drop('w', 'x > 1')\n{body}"
    assert refused(tmp_path, unknown + START + hidden) == [
        "program.py:11: the expectation 'w' is on the function of no table or view"
    ]
    flow = (
        "dlt.create_streaming_table('t')\n@dlt.append_flow(target='t')\n@audited\n"
        f"@dlt.expect_or_fail('w', 'x > 1')\n{body}"
    )
    assert refused(tmp_path, AUDITED + START + flow) == [
        "program.py:13: the expectation 'w' is on the flow 'a', which keeps none"
    ]


def test_a_function_may_be_a_partial_or_an_object_to_call(tmp_path: Path) -> None:
    text = (
        "import functools\nimport dlt\n"
        "def of(name): return spark.readStream.format('kafka').option('subscribe', name).load()\n"
        "class Of:\n    def __init__(self, name): self.name = name\n"
        "    def __call__(self): return of(self.name)\n"
        "dlt.table(name='a')(functools.partial(of, 'x'))\ndlt.table(name='b')(Of('y'))\n"
    )
    loaded = written(tmp_path, text)
    assert edges(loaded) == {("x", "a"), ("y", "b")}
    assert loaded.tables["a"].place.line == 3
    versions = [
        {name: node.code_version for name, node in graph_of_program(one, tmp_path).tables.items()}
        for one in (loaded, written(tmp_path, text.replace("'x'", "'z'")))
    ]
    assert versions[0]["a"] != versions[1]["a"]
    assert versions[0]["b"] == versions[1]["b"]
    unnamed = text.replace("name='a'", "").replace("name='b'", "")
    assert refused(tmp_path, unnamed)[:2] == [
        "program.py:7: a function that is a partial has no name of its own",
        "program.py:8: a function that is a Of has no name of its own",
    ]


def test_a_tables_name_without_its_word_is_refused(tmp_path: Path) -> None:
    text = f"{START}@dlt.table('other')\ndef x(): return dlt.read('t_raw')\n"
    assert refused(tmp_path, text) == ["program.py:5: the name 'other' stands without name="]


def test_arguments_have_the_names_that_they_have_in_spark(tmp_path: Path) -> None:
    text = (
        "import dlt\nspark.conf.set(key='from', value='t')\n"
        "T, U = spark.conf.get('no', default='u'), spark.conf.get(key='from')\n"
        "@dlt.table\ndef a(): return spark.readStream.format('kafka').option('subscribe', T)"
        ".load().union(spark.readStream.format('kafka').option('subscribe', U).load())\n"
        "@dlt.table\ndef b(): return spark.sql(sqlQuery='SELECT * FROM a')\n"
        "@dlt.table\ndef c(): return spark.table(tableName='b')\n"
    )
    assert edges(written(tmp_path, text)) == {("u", "a"), ("t", "a"), ("a", "b"), ("b", "c")}


def test_frames_and_values_that_a_query_is_given_are_no_tables(tmp_path: Path) -> None:
    query = "SELECT {c}, '{{d}}' FROM {d} JOIN other d USING (key) WHERE key > {n} AND key <> {s}"
    text = (
        f"{START}@dlt.table\ndef other(): return dlt.read('t_raw')\n"
        f"@dlt.table\ndef x(): return spark.sql({query!r}, d=dlt.read_stream('t_raw'), n=1, "
        "s=\"it's\", c=F.col('key'))\n"
    )
    loaded = written(tmp_path, text)
    assert edges(loaded) >= {("t_raw", "x"), ("other", "x")}
    assert loaded.tables["x"].reads == {"other": "static"}


class Frame:
    """A frame of a run, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def filter(self, condition: str) -> str:
        assert condition == "true"
        return self.name


class Session:
    """A session of a run that shows what it is asked."""

    def sql(self, text: str, **named: Any) -> tuple[str, dict[str, Any]]:
        return text, named


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        (
            "SELECT s.id, '{x}' FROM silver.orders s LEFT JOIN bronze.orders b USING (id)",
            "SELECT s.id, '{{x}}' FROM {0} s LEFT JOIN {1} b USING (id)",
        ),
        (
            "SELECT orders.id FROM silver.orders s LEFT JOIN bronze.orders USING (id)",
            "SELECT orders.id FROM {0} s LEFT JOIN {1} AS `orders` USING (id)",
        ),
        (
            "SELECT bronze.orders.id FROM silver.orders JOIN bronze.orders USING (id)",
            "SELECT `bronze_orders`.id FROM {0} AS `silver_orders` JOIN {1} AS `bronze_orders` "
            "USING (id)",
        ),
        (
            "SELECT x, orders FROM STREAM(silver.orders) JOIN STREAM(bronze.orders o) USING (id)",
            "SELECT x, orders FROM {0} AS `orders` JOIN {1} o USING (id)",
        ),
    ],
)
def test_two_tables_with_one_last_part_stay_two_in_a_query(
    tmp_path: Path, query: str, asked: str
) -> None:
    registry = Registry(tmp_path, set(), {})
    by = Execution(registry, {"silver.orders": "silver", "bronze.orders": "bronze"})
    frames = {"silver": Frame("silver"), "bronze": Frame("bronze")}
    with by.run_with(Running(Session(), frames, {})):
        text, given = Spark(by).sql(query)
    numbers = {"{0}": "{kafka_assets_frame_0}", "{1}": "{kafka_assets_frame_1}"}
    for short, long in numbers.items():
        asked = asked.replace(short, long)
    assert text == asked
    assert given == {"kafka_assets_frame_0": "silver", "kafka_assets_frame_1": "bronze"}


def test_a_query_of_two_such_tables_that_only_spark_reads_is_refused(tmp_path: Path) -> None:
    query = "FROM silver.orders |> JOIN bronze.orders |> SET x = 1 |> DROP y"
    text = f"{START}@dlt.table\ndef x(): return spark.sql({query!r})\n"
    given = {"silver.orders": "silver", "bronze.orders": "bronze"}
    assert refused(tmp_path, text, tables=given) == [
        "program.py:6: a query that only Spark can read names silver.orders, bronze.orders, which "
        "are one in it"
    ]


def test_rows_that_a_program_wants_at_its_top_are_refused_in_words_of_its_author(
    tmp_path: Path,
) -> None:
    text = START + "RULES = [row['rule'] for row in spark.read.table('rules').collect()]\n"
    (said, *_) = refused(tmp_path, text)
    assert said == "program.py:5: at its top the program wants rows: .collect needs rows"
