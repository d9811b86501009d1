"""Places that a value is to be put into are refused: nobody gives one to a SQL file."""

from __future__ import annotations

import pytest

from kafka_assets_tests.frontends.sql.helpers import load, refused

TABLE = "CREATE STREAMING TABLE t AS\nSELECT * FROM STREAM x WHERE "


@pytest.mark.parametrize(
    ("condition", "written"),
    [
        ("region = '${region}'", "${region}"),
        ("n > ${spark.least}", "${spark.least}"),
        ("`${name}` > 1", "${name}"),
        ("n > :least", ":least"),
        ("n IN (:least)", ":least"),
        ("n >:end", ":end"),
        ("n > ?", "?"),
    ],
)
def test_a_place_for_a_value_in_a_select_is_refused_by_its_line(
    condition: str, written: str
) -> None:
    error = refused(TABLE + condition)
    assert f"{written} stands where a value should, and nothing here puts one there" in str(error)
    column = len("SELECT * FROM STREAM x WHERE ") + condition.index(written) + 1
    assert error.where.endswith(f"a.sql:2:{column}")
    assert error.fix == "write the value itself"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAMING TABLE t AS SELECT * FROM STREAM read_kafka(subscribe => '${topic}')",
        "CREATE STREAMING TABLE t AS SELECT * FROM STREAM read_kafka(subscribe => :topic)",
        "CREATE STREAMING TABLE t AS SELECT * FROM STREAM read_files('${folder}', 'text')",
        "CREATE STREAMING TABLE t AS SELECT * FROM STREAM ${catalog}.x",
        "CREATE STREAMING TABLE ${name}",
        "CREATE STREAMING TABLE t COMMENT 'Of ${region}.'",
        "CREATE STREAMING TABLE t (CONSTRAINT some EXPECT (a > ${least}))",
        "CREATE STREAMING TABLE t (CONSTRAINT some EXPECT (a > :least))",
        "AUTO CDC INTO t FROM STREAM(s) KEYS (id) SEQUENCE BY ${order}",
    ],
)
def test_a_place_for_a_value_is_refused_wherever_it_stands(text: str) -> None:
    assert "stands where a value should" in str(refused(text))


def test_what_only_databricks_reads_is_refused_by_name() -> None:
    start = "CREATE STREAMING TABLE t AS SELECT"
    assert "column:path: Spark's SQL has no" in str(refused(f"{start} a:b FROM STREAM x"))
    ranked = f"{start} a FROM STREAM x QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) = 1"
    assert "QUALIFY: Spark's SQL has no" in str(refused(ranked))


@pytest.mark.parametrize(
    "select",
    [
        "from_json(a, 'x INT').x, s::int FROM STREAM x -- ${none} :none ?",
        "CAST(a AS STRUCT<b: INT, timestamp: STRING>) FROM STREAM x",
        "a RLIKE '^[?:]$' AND b = ' :c ' FROM /* ${none} */ STREAM x",
        "watermark, watermark.delay AS of FROM STREAM x WHERE watermark > 1",
    ],
)
def test_colons_and_signs_that_ask_for_no_value_are_kept(select: str) -> None:
    (made,) = load(f"CREATE STREAMING TABLE t AS SELECT {select}").declarations
    assert made.name == "t"
