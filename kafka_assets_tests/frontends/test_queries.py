"""SQL texts of programs: which tables they name, and what Spark is asked instead."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from kafka_assets.frontends.programs.placing import with_views
from kafka_assets.frontends.programs.queries import Query, parsed
from kafka_assets_tests.frontends.shown import START, edges, refused, written


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("SELECT * FROM LIVE.a", Query({"LIVE.a": False})),
        ("SELECT * FROM STREAM(LIVE.a) s", Query({"LIVE.a": True})),
        ("SELECT * FROM stream a JOIN b USING (id)", Query({"a": True, "b": False})),
        ("WITH x AS (SELECT * FROM a) SELECT * FROM x", Query({"a": False})),
        (
            "SELECT a.id AS k, to_date(at) AS day, sum(n) FROM a GROUP BY a.id, 2",
            Query({"a": False}, ("k", "day"), True),
        ),
        ("SELECT sum(n) FROM a GROUP BY id", Query({"a": False}, None, True)),
        ("SELECT max(n) OVER (ORDER BY at) AS m FROM a", Query({"a": False})),
        (
            "SELECT window.start AS w, count(1) FROM STREAM(a) GROUP BY window(at, '1 hour')",
            Query({"a": True}, None, True),
        ),
        ("SELECT k, sum(n) FROM a GROUP BY k HAVING sum(n) < 0", Query({"a": False}, None, True)),
        ("SELECT k, sum(n) FROM a GROUP BY k LIMIT 3", Query({"a": False}, None, True)),
        ("SELECT k, sum(n) FROM a GROUP BY k WITH ROLLUP", Query({"a": False}, None, True)),
        (
            "SELECT k, explode(collect_list(n)) FROM a GROUP BY k",
            Query({"a": False}, None, True),
        ),
    ],
)
def test_the_tables_and_groups_of_a_query_are_known(text: str, query: Query) -> None:
    assert parsed(text) == query


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("WITH a AS (SELECT * FROM a WHERE n > 0) SELECT * FROM a", {"a": False}),
        ("WITH A AS (SELECT * FROM STREAM(LIVE.a)) SELECT * FROM a", {"LIVE.a": True}),
        ("WITH b AS (SELECT * FROM a), a AS (SELECT * FROM b) SELECT * FROM a", {"a": False}),
        ("SELECT * FROM (WITH a AS (SELECT * FROM b) SELECT * FROM a) JOIN a", ["a", "b"]),
        ("WITH a AS (SELECT * FROM a!) SELECT * FROM a", {"a": False}),
        ("WITH a AS (SELECT * FROM (b)!) SELECT * FROM a", {}),
    ],
)
def test_a_name_of_with_means_a_table_until_it_is_given(text: str, tables: Collection[str]) -> None:
    query = parsed(text)
    assert query is not None
    assert query.tables == (tables if isinstance(tables, dict) else dict.fromkeys(tables, False))


@pytest.mark.parametrize(
    "text",
    [
        "WITH a AS (SELECT k, sum(n) FROM STREAM s GROUP BY k) SELECT * FROM a",
        "WITH a AS (SELECT * FROM STREAM s), b AS (SELECT sum(n) FROM a) SELECT * FROM b",
        "SELECT * FROM (SELECT k, sum(n) FROM STREAM s GROUP BY k)",
        "SELECT k, sum(n) FROM (SELECT k, max(n) AS n FROM STREAM s GROUP BY k) GROUP BY k",
        "SELECT sum(n) FROM STREAM s UNION ALL SELECT n FROM STREAM s",
    ],
)
def test_an_aggregate_of_a_stream_inside_of_a_query_has_no_known_keys(text: str) -> None:
    assert parsed(text) == Query({"s": True}, None, True)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM STREAM s JOIN (SELECT k, max(n) AS m FROM b GROUP BY k) USING (k)",
        "WITH m AS (SELECT k, max(n) AS m FROM b GROUP BY k) SELECT * FROM STREAM s JOIN m",
        "SELECT *, (SELECT max(n) FROM b) AS m FROM STREAM s",
        "SELECT *, sum(n) OVER (ORDER BY at) FROM STREAM s JOIN b",
    ],
)
def test_an_aggregate_that_a_stream_looks_up_is_none_of_the_stream(text: str) -> None:
    assert parsed(text) == Query({"s": True, "b": False})


@pytest.mark.parametrize("text", ["SET x = 1", "CREATE TABLE a AS SELECT 1", "SELECT 1; SELECT 2"])
def test_what_is_not_one_query_is_none(text: str) -> None:
    assert parsed(text) is None


def test_tables_of_the_program_become_views_and_all_else_stays_as_it_is() -> None:
    text = (
        "SELECT a.live, 'LIVE.a' AS t -- from LIVE.a\nFROM STREAM(LIVE.a) JOIN m.s.b ON a.x = b.x,"
        " stream c WHERE b.a > 1"
    )
    assert with_views(text, {"LIVE.a": "a", "m.s.b": "b", "c": "c"}) == (
        "SELECT a.live, 'LIVE.a' AS t -- from LIVE.a\nFROM `a` JOIN `b` ON a.x = b.x,"
        " `c` WHERE b.a > 1"
    )


def test_a_name_that_with_gives_is_no_table_also_where_it_has_a_tables_name() -> None:
    text = "WITH a AS (SELECT * FROM a), c AS (SELECT * FROM STREAM b) SELECT * FROM a JOIN c"
    assert with_views(text, {"a": "x", "b": "y"}) == (
        "WITH a AS (SELECT * FROM `x`), c AS (SELECT * FROM `y`) SELECT * FROM a JOIN c"
    )


def test_a_hint_reads_nothing() -> None:
    assert parsed("SELECT /*+ BROADCAST(o) */ * FROM orders o") == Query({"orders": False})


def test_a_name_of_with_as_of_the_table_that_it_reads_loses_no_edge(tmp_path: Path) -> None:
    loaded = written(
        tmp_path,
        "import dlt\n@dlt.table\ndef orders():\n"
        '    return spark.readStream.format("kafka").option("subscribe", "t").load()\n'
        "@dlt.table\ndef counted():\n"
        '    return spark.sql("WITH orders AS (SELECT * FROM orders WHERE key > 1) '
        'SELECT count(*) AS n FROM orders")\n',
    )
    assert edges(loaded) == {("t", "orders"), ("orders", "counted")}


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT window(at, '1 hour') AS h FROM STREAM(raw) WATERMARK at DELAY OF INTERVAL 1 HOUR "
         "GROUP BY window(at, '1 hour')", "WATERMARK"),
        ("SELECT key FROM LIVE.raw QUALIFY row_number() OVER (ORDER BY offset) = 1", "QUALIFY"),
        ("SELECT value:a.b FROM LIVE.raw", "column:path"),
    ],
)  # fmt: skip
def test_what_only_databricks_reads_in_a_query_is_refused_by_name(
    tmp_path: Path, query: str, what: str
) -> None:
    text = START + (
        "@dlt.table\n"
        "def raw(): return spark.readStream.format('kafka').option('subscribe', 'x').load()\n"
        "@dlt.table\n"
        f'def t(): return spark.sql("{query}")\n'
    )
    assert refused(tmp_path, text) == [f"program.py:6: {what}: Spark's SQL has no such thing"]
