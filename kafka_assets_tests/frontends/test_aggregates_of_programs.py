"""Aggregates of streams without an end are updated by keys only where no row can stay behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_assets.frontends.programs import LoadedProgram
from kafka_assets_tests.frontends.shown import graph_of_program, refused, written

TOPIC = 'spark.readStream.format("kafka").option("subscribe", "t").load()'
START = f"""import dlt
from pyspark.sql import functions as F
@dlt.table
def raw(): return {TOPIC}
@dlt.table
def other(): return dlt.read('raw')
@dlt.table
def out():
    streams = dlt.read_stream('raw')
    sums = streams.groupBy('key').agg(F.sum('n').alias('s'))
    return """


def loaded(folder: Path, returned: str) -> LoadedProgram:
    """A program with a table that aggregates."""
    return written(folder, f"{START}{returned}\n")


@pytest.mark.parametrize(
    ("step", "key"),
    [
        (".select('key', 's')", "key"),
        (".select('*', (F.col('s') + 1).alias('t'))", "key"),
        (".select(F.col('KEY').alias('k'), 's')", "k"),
        (".selectExpr('key AS k', 's + 1 AS t')", "k"),
        (".selectExpr('*')", "key"),
        (".withColumn('t', F.col('s') + 1)", "key"),
        (".withColumns({'t': F.col('s') + 1})", "key"),
        (".withColumnRenamed('Key', 'k')", "k"),
        (".withColumnsRenamed({'key': 'k'})", "k"),
        (".drop('s')", "key"),
        (".alias('a').repartition(2)", "key"),
    ],
)
def test_steps_that_leave_each_row_what_it_was_keep_its_keys(
    tmp_path: Path, step: str, key: str
) -> None:
    table = loaded(tmp_path, f"sums{step}").tables["out"]
    assert (table.kind, table.keys) == ("streaming_table", (key,))


@pytest.mark.parametrize(
    "returned",
    [
        "sums.where('s < 0')",
        "sums.filter(F.col('s') < 0)",
        "sums.dropna()",
        "sums.na.fill(0)",
        "sums.join(dlt.read('other'), 'key')",
        "dlt.read('other').join(sums, 'key')",
        "sums.limit(3)",
        "sums.dropDuplicates(['s'])",
        "sums.union(sums)",
        "sums.select('key', F.explode(F.array('s')))",
        "sums.selectExpr('key', 'explode(array(s)) AS t')",
        "sums.withColumn('t', F.explode(F.array('s')))",
        "sums.withColumn('KEY', F.upper('key'))",
        "sums.withColumn(colName='key', col=F.upper('key'))",
        "sums.select(F.upper('key').alias('key'), 's')",
        "sums.selectExpr('upper(key) AS key', 's')",
        "sums.drop('KEY')",
        "sums.drop(F.col('key'))",
        "sums.toDF('a', 'b')",
        "sums.groupBy('s').count()",
        "spark.sql('SELECT key, sum(n) AS s FROM STREAM(LIVE.raw) GROUP BY key HAVING s < 0')",
        "spark.sql('SELECT key, sum(n) AS s FROM STREAM(LIVE.raw) GROUP BY key LIMIT 3')",
        "spark.sql('WITH a AS (SELECT key, sum(n) AS s FROM STREAM(LIVE.raw) GROUP BY key) "
        "SELECT * FROM a')",
        "spark.sql('SELECT * FROM (SELECT key, sum(n) AS s FROM STREAM(LIVE.raw) GROUP BY key)')",
    ],
)
def test_a_table_whose_rows_can_vanish_or_double_is_computed_whole(
    tmp_path: Path, returned: str
) -> None:
    found = loaded(tmp_path, returned)
    table = found.tables["out"]
    assert (table.kind, table.keys) == ("materialized_view", ())
    assert [one.text for one in found.notes] == [
        "'out' aggregates all rows without a watermark: it is computed whole when there are new "
        "ones"
    ]
    graph_of_program(found, tmp_path)


def test_an_aggregate_with_an_end_is_appended_whatever_is_done_after_it(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        "streams.withWatermark('at', '1 hour').groupBy(F.window('at', '1 hour')).count()"
        ".where('count > 3')",
    )
    assert (found.tables["out"].kind, found.tables["out"].keys) == ("streaming_table", ())


def test_of_a_topic_the_step_is_named_by_which_keys_are_not_enough(tmp_path: Path) -> None:
    text = f"import dlt\n@dlt.table\ndef out(): return {TOPIC}.groupBy('key').count().limit(3)\n"
    assert refused(tmp_path, text) == [
        "program.py:3: 'out' aggregates a topic without a watermark, and its rows can vanish or "
        "double by .limit() after it"
    ]
