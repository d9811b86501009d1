"""Tables in SQL, run on a real broker, real Spark and real Delta, beside tables in Python."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import kafka_assets as ka
from kafka_assets.errors import PlanError
from kafka_assets.graph import Graph
from kafka_assets.settings import Settings
from kafka_assets.streaming.plan import plan_table
from kafka_assets.streaming.run import run_graph
from kafka_assets.streaming.tables import LakeTable
from kafka_assets_tests.frontends.sql.helpers import load, table
from kafka_assets_tests.helpers import create_topic, graph_of, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")

SQL = """
CREATE OR REFRESH STREAMING TABLE orders_raw
TBLPROPERTIES ('kafka_assets.reset_allowed' = false)
AS SELECT * FROM STREAM read_kafka(bootstrapServers => 'elsewhere:1', subscribe => '{topic}');

CREATE OR REFRESH STREAMING TABLE orders_checked (
  id STRING NOT NULL COMMENT 'Names the order.',
  amount BIGINT,
  label STRING,
  initial STRING GENERATED ALWAYS AS (upper(left(id, 1))),
  CONSTRAINT labelled CHECK (label LIKE '{{%}}'),
  CONSTRAINT positive EXPECT (amount > 0) ON VIOLATION DROP ROW
)
COMMENT 'Orders with an amount.'
TBLPROPERTIES ('kafka_assets.schema' = 'order.ddl')
AS SELECT _source, concat('{{', orders_raw.id, '}}') AS label, id, amount
FROM STREAM(orders_raw);

CREATE TEMPORARY VIEW large AS SELECT * FROM STREAM(orders_named) WHERE amount >= 10;

CREATE OR REFRESH STREAMING TABLE orders_large AS SELECT id, amount FROM STREAM(large);

CREATE OR REFRESH MATERIALIZED VIEW totals AS
WITH sums AS (SELECT name, sum(amount) AS total FROM LIVE.orders_named GROUP BY name)
SELECT s.name, s.total, l.id AS largest
FROM sums s LEFT JOIN orders_large l ON l.amount = s.total;
"""


@ka.streaming_table(layer="silver")
def orders_named(orders_checked: Any) -> Any:
    """Orders with the name of who placed them, in Python between two tables in SQL."""
    return orders_checked.withColumnRenamed("initial", "name")


@pytest.fixture
def graph(settings: Settings, topic_name: str) -> Graph:
    assert settings.schemas is not None
    (settings.schemas / "order.ddl").write_text("id STRING NOT NULL, amount INT")
    create_topic(settings.kafka.bootstrap_servers, topic_name)
    loaded = load(SQL.format(topic=topic_name)).declarations
    return graph_of(settings, *loaded, orders_named)


def rows(graph: Graph, name: str, *columns: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(graph.tables[name].path).to_pyarrow_table(columns=list(columns)).to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in found)


@pytest.mark.usefixtures("broker")
def test_sql_and_python_tables_run_as_one_pipeline(
    graph: Graph, spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    def send(*orders: tuple[str, int]) -> None:
        values = [json.dumps({"id": id, "amount": amount}) for id, amount in orders]
        produce(settings.kafka.bootstrap_servers, topic_name, values)

    send(("a1", 10), ("a2", -1), ("b1", 7))
    reports = run_graph(graph, spark, settings)
    assert rows(graph, "orders_raw", "offset") == [(0,), (1,), (2,)]
    assert rows(graph, "orders_checked", "id", "amount", "label") == [
        ("a1", 10, "{a1}"),
        ("b1", 7, "{b1}"),
    ]
    assert reports["orders_checked"].dead == 1
    held = LakeTable.existing(graph.tables["orders_checked"].path).properties
    assert held["delta.constraints.id_not_null"] == "`id` IS NOT NULL"
    assert held["delta.constraints.labelled"] == "label LIKE '{%}'"
    assert all(one.holds for report in reports.values() for one in report.conservation)
    assert rows(graph, "orders_large", "id") == [("a1",)]
    assert rows(graph, "totals", "name", "total", "largest") == [("A", 10, "a1"), ("B", 7, None)]

    send(("b2", 1))
    run_graph(graph, spark, settings)
    assert rows(graph, "totals", "name", "total", "largest") == [("A", 10, "a1"), ("B", 8, None)]
    assert [report.batches for report in run_graph(graph, spark, settings).values()] == [0] * 5


@pytest.mark.usefixtures("broker")
def test_a_select_reads_a_stream_and_a_table_as_it_is(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    create_topic(settings.kafka.bootstrap_servers, topic_name)
    produce(settings.kafka.bootstrap_servers, topic_name, ["x", "y"])
    loaded = load(
        f"""
        CREATE STREAMING TABLE raw AS
        SELECT CAST(value AS STRING) AS id, timestampType AS kind
        FROM STREAM read_kafka(subscribe => '{topic_name}');
        CREATE STREAMING TABLE all_ids;
        CREATE FLOW f AS INSERT INTO all_ids BY NAME
        SELECT raw.id, kind, more.id AS other FROM STREAM(raw) JOIN known more ON more.id = raw.id;
        CREATE STREAMING TABLE known AS SELECT id FROM STREAM(raw) WHERE id = 'x';
        """
    )
    graph = graph_of(settings, *loaded.declarations)
    run_graph(graph, spark, settings)
    assert rows(graph, "all_ids", "id", "kind", "other") == [("x", 0, "x")]


def test_a_function_runs_on_plain_frames(spark: SparkSession) -> None:
    made = table(
        "CREATE STREAMING TABLE t (b INT, a) AS SELECT x.*, '{y}' AS b2 FROM STREAM x JOIN y"
        " ON x.a = y.a".replace("x.*, '{y}' AS b2", "x._source, '1' AS B, x.a")
    )
    left = spark.createDataFrame([("k", 1)], "a STRING, _source INT")
    right = spark.createDataFrame([("k",)], "a STRING")
    result = made(left, y=right)
    assert result.columns == ["b", "a", "_source"]
    assert [tuple(row) for row in result.collect()] == [(1, "k", 1)]
    assert not [one.name for one in spark.catalog.listTables() if "pyspark" in one.name]


def test_a_view_of_a_cached_frame_leaves_it_cached(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1,)], "a INT").persist()
    made = table("CREATE STREAMING TABLE t AS SELECT a + 1 AS b FROM STREAM x")
    try:
        assert made(frame).collect()[0].b == 2
        assert frame.storageLevel.useMemory
    finally:
        frame.unpersist()


def test_what_spark_refuses_is_named_with_file_and_line(
    spark: SparkSession, settings: Settings
) -> None:
    loaded = load(
        "CREATE STREAMING TABLE raw AS SELECT * FROM STREAM read_kafka(subscribe => 'x');\n"
        "CREATE STREAMING TABLE wrong AS SELECT no_column FROM STREAM(raw);\n"
        "CREATE STREAMING TABLE other (a INT) AS SELECT value FROM STREAM(raw);"
    )
    graph = graph_of(settings, *loaded.declarations)
    with pytest.raises(PlanError, match=r"a\.sql:2:1.*no_column"):
        plan_table(graph.tables["wrong"], spark)
    with pytest.raises(PlanError, match=r"a\.sql:3:1.*lacks a and has value besides"):
        plan_table(graph.tables["other"], spark)
