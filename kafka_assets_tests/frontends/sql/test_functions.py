"""A SELECT becomes a function that can travel, and keeps what its author wrote."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from pyspark import cloudpickle

from kafka_assets.frontends.sql import function
from kafka_assets_tests.frontends.sql.helpers import function_of, table


def sql_of(select: str) -> str:
    """The text that Spark gets, with the frames' names in their places."""
    made = function_of(table(f"CREATE STREAMING TABLE t AS {select}"))
    return str(made.text.format(**{f"frame_{n}": f"<{u}>" for n, u in enumerate(made.upstreams)}))


@pytest.mark.parametrize(
    ("select", "sql"),
    [
        ("SELECT * FROM STREAM(x)", "SELECT * FROM <x> AS `x`"),
        ("SELECT x.a FROM STREAM LIVE.x", "SELECT x.a FROM <x> AS `x`"),
        ("SELECT y.a FROM STREAM(x) AS y", "SELECT y.a FROM <x> AS y"),
        ("SELECT y.a FROM STREAM(x) y", "SELECT y.a FROM <x> y"),
        ("SELECT * FROM STREAM x TABLESAMPLE (1 ROWS)", "SELECT * FROM <x> TABLESAMPLE (1 ROWS)"),
        (
            "SELECT '{x}' AS `{`, 1 -- {\nFROM STREAM x",
            "SELECT '{x}' AS `{`, 1 -- {\nFROM <x> AS `x`",
        ),
        (
            "SELECT * FROM STREAM x JOIN main.s.y ON x.a = y.a JOIN y z",
            "SELECT * FROM <x> AS `x` JOIN <y> AS `y` ON x.a = y.a JOIN <y> z",
        ),
        (
            "WITH x AS (SELECT * FROM STREAM(x)), y AS (SELECT * FROM x) SELECT * FROM y, LIVE.y",
            "WITH x AS (SELECT * FROM <x> AS `x`), y AS (SELECT * FROM x) "
            "SELECT * FROM y, <y> AS `y`",
        ),
        (
            "SELECT * FROM STREAM x WHERE a IN (SELECT a FROM y) UNION ALL SELECT * FROM STREAM z",
            "SELECT * FROM <x> AS `x` WHERE a IN (SELECT a FROM <y> AS `y`) UNION ALL "
            "SELECT * FROM <z> AS `z`",
        ),
        (
            "SELECT /*+ BROADCAST(y) */ * FROM STREAM x JOIN y LATERAL VIEW explode(b) e AS c",
            "SELECT /*+ BROADCAST(y) */ * FROM <x> AS `x` JOIN <y> AS `y` "
            "LATERAL VIEW explode(b) e AS c",
        ),
        (
            "SELECT * FROM STREAM(read_kafka(subscribe => 'k', failOnDataLoss => true)) WHERE a",
            "SELECT * FROM <k> AS `read_kafka` WHERE a",
        ),
        ("FROM STREAM x SELECT a", "FROM <x> AS `x` SELECT a"),
        (
            "SELECT window(at, '1 hour') FROM STREAM x GROUP BY a, window(at, '1 hour')",
            "SELECT window(at, '1 hour') FROM <x> AS `x` GROUP BY a, window(at, '1 hour')",
        ),
        (
            "SELECT sum(a) OVER w FROM STREAM x WINDOW w AS (ORDER BY b)",
            "SELECT sum(a) OVER w FROM <x> AS `x` WINDOW w AS (ORDER BY b)",
        ),
        ("FROM STREAM(x) |> WHERE a > 1", "FROM <x> AS `x` |> WHERE a > 1"),
        (
            "SELECT 'STREAM(x)', stream.a FROM STREAM stream",
            "SELECT 'STREAM(x)', stream.a FROM <stream> AS `stream`",
        ),
        (
            "SELECT a FROM STREAM x, LATERAL explode(x.b) AS e",
            "SELECT a FROM <x> AS `x`, LATERAL explode(x.b) AS e",
        ),
    ],
)
def test_the_authors_text_is_kept_and_only_what_it_reads_is_replaced(select: str, sql: str) -> None:
    assert sql_of(select) == sql


def test_sparks_name_of_a_topics_column_is_there_for_who_uses_it() -> None:
    kafka = "FROM STREAM read_kafka(subscribe => 'k')"
    assert sql_of(f"SELECT timestampType {kafka}") == (
        "SELECT timestampType FROM (SELECT *, timestamp_type AS timestampType FROM <k>) "
        "AS `read_kafka`"
    )
    assert "timestampType" not in sql_of(f"SELECT timestamp_type {kafka}")


def test_its_parameters_are_its_upstreams() -> None:
    made = table("CREATE STREAMING TABLE t COMMENT 'Said.' AS SELECT * FROM STREAM b JOIN a")
    assert list(inspect.signature(made.function).parameters) == ["b", "a"]
    assert (made.function.__name__, inspect.getdoc(made.function)) == ("t", "Said.")


@pytest.mark.parametrize(
    ("frames", "named"), [(("x",), {}), (("x", "y", "z"), {}), (("x",), {"b": "y"}), ((), {"c": 1})]
)
def test_a_frame_too_few_or_too_many_is_refused(
    frames: tuple[str, ...], named: dict[str, object]
) -> None:
    made = table("CREATE STREAMING TABLE t AS SELECT * FROM STREAM b JOIN a")
    with pytest.raises(TypeError, match="t takes the frames b, a; it got"):
        made(*frames, **named)


def test_it_is_sent_by_value_to_where_the_package_is_not() -> None:
    made = table("CREATE STREAMING TABLE t (a INT) AS SELECT * FROM STREAM x").function
    cloudpickle.register_pickle_by_value(function)
    try:
        sent = cloudpickle.dumps(made)
    finally:
        cloudpickle.unregister_pickle_by_value(function)
    program = (
        "import pickle, sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'kafka_assets': raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "made = pickle.loads(sys.stdin.buffer.read())\n"
        "print(made.upstreams, made.columns, made.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True)
    assert done.stdout.decode().strip() == "('x',) (('a', 'INT'),) t", done.stderr.decode()
