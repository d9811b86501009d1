"""Values get into their places in SQL; a place for which there is none is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_assets.declarations import Table
from kafka_assets.errors import DeclarationError
from kafka_assets.frontends.sql import load_files
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
    if written.startswith("$"):
        name = written[2:-1]
        assert error.fix == (
            f'write SET {name} = value; above, or give it to ka.program: conf={{"{name}": ...}}'
        )
    else:
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


def loaded_query(text: str) -> str:
    """The text of the SELECT of table t."""
    made = next(one for one in load(text).declarations if one.name == "t")
    assert isinstance(made, Table)
    return made.function.text  # type: ignore[attr-defined]


def test_a_value_that_is_set_takes_its_place_in_what_comes_after_it() -> None:
    text = "SET start = '2026-01-01';\nSET day = ${start};\nCREATE STREAMING TABLE t AS SELECT * "
    query = loaded_query(text + "FROM STREAM x WHERE at > ${day} -- ${none}")
    assert "at > '2026-01-01'" in query
    before = "CREATE STREAMING TABLE t AS SELECT * FROM STREAM x WHERE at > ${day};\nSET day = 1"
    assert "${day} stands where a value should" in str(refused(before))
    again = "SET n = 1; SET n = 2; CREATE STREAMING TABLE t AS SELECT * FROM STREAM x WHERE a > "
    assert "a > 2" in loaded_query(again + "${spark:n}")


def test_an_error_behind_a_value_points_at_what_is_written() -> None:
    text = (
        "SET where = 'some long text';\n"
        "CREATE STREAMING TABLE t AS SELECT * FROM STREAM x WHERE a = ${where} AND b > ${least}"
    )
    error = refused(text)
    assert error.where.endswith(f"a.sql:2:{text.splitlines()[1].index('${least}') + 1}")
    assert "a = ${where} AND b > ${least}" in error.what
    assert "some long text" not in error.what


def test_a_value_that_is_secret_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "a.sql"
    file.write_text(
        "SET db.password = hunter2;\nSET spark.secret.key = ${k};\nCREATE STREAMING TABLE t"
    )
    with pytest.raises(DeclarationError) as raised:
        load_files([file], conf={"k": "hunter3"})
    assert "hunter" not in str(raised.value)
    file.write_text("SET db.password = hunter2 +;\nSET db.password = a\n b")
    with pytest.raises(DeclarationError) as raised:
        load_files([file])
    assert "hunter" not in str(raised.value)


def test_what_a_set_cannot_do_is_refused_or_noted() -> None:
    table = "CREATE STREAMING TABLE t AS SELECT * FROM STREAM x"
    assert "SET gives no value to a name" in str(refused(f"SET a; {table}"))
    error = refused(f"SET spark.sql.ansi.enabled = false; {table}")
    assert "a setting of Spark belongs to the tables that need it" in error.what
    assert "'kafka_assets.spark_conf.spark.sql.ansi.enabled' = ..." in str(error.fix)
    asked = f"SET spark.a = 1; {table} -- ${{spark.a}}"
    assert "SET spark.a: a setting of Spark" in str(refused(asked))
    assert "SET a goes on here" in str(
        refused(f"SET a = 1\n{table}; {table.replace(' t ', ' u ')}")
    )
    texts = [note.text for note in load(f"SET pipelines.a = 1; SET b = 2; {table}").notes]
    assert texts == [
        "SET pipelines.a is not used: it is about Databricks",
        "SET b is not used: nothing asks for ${b}",
    ]
