"""Programs of other products, unchanged, on a real broker, real Spark and real Delta."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

import kafka_assets as ka
from kafka_assets.graph import Graph, build_graph
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph
from kafka_assets_tests.frontends.shown import PROGRAMS
from kafka_assets_tests.helpers import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("broker", "spark")


class Run:
    """An example program in a lake of its own."""

    def __init__(self, spark: SparkSession, settings: Settings, program: str, **options: Any):
        self.spark, self.settings = spark, settings
        loaded = ka.program(PROGRAMS / program, **options)
        self.graph: Graph = build_graph([loaded.as_module()], settings)

    def produce(self, topic: str, *values: dict[str, Any]) -> None:
        """Send JSON to a topic; it is made when it is not there."""
        bootstrap = self.settings.kafka.bootstrap_servers
        if topic not in AdminClient({"bootstrap.servers": bootstrap}).list_topics().topics:
            create_topic(bootstrap, topic)
        produce(bootstrap, topic, [json.dumps(value) for value in values])

    def run(self) -> None:
        """Run all tables; each run's counts add up."""
        reports = run_graph(self.graph, self.spark, self.settings)
        assert all(c.holds for report in reports.values() for c in report.conservation)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Rows of a table, read without Spark."""
        return _rows(self.graph.tables[table].path, *columns)


def _rows(path: str, *columns: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(path).to_pyarrow_table(columns=list(columns)).to_pylist()
    return sorted((tuple(row[c] for c in columns) for row in found), key=str)


def order(number: int, amount: float, customer: str | None = "c1", day: int = 20) -> dict[str, Any]:
    return {
        "order_id": f"o{number}",
        "customer_id": customer,
        "amount": amount,
        "status": "paid",
        "order_ts": f"2026-11-{day}T10:00:00Z",
    }


def test_a_medallion_program_runs_unchanged_and_again(
    spark: SparkSession, settings: Settings
) -> None:
    program = Run(spark, settings, "medallion_orders.py")
    program.produce("orders", order(1, 10), order(2, -5), order(3, 20, customer=None))
    program.run()
    assert program.rows("orders_clean", "order_id", "amount") == [("o1", 10.0), ("o3", 20.0)]
    letters = program.graph.tables["orders_clean"].dead_letters_path
    assert [
        (r, json.loads(row)["order_id"]) for r, row in _rows(letters, "failed_rules", "row")
    ] == [(["valid_amount"], "o2")]
    program.produce("orders", order(4, 5, day=21))
    program.run()
    assert [
        r for _, r, _ in program.rows("daily_revenue", "order_date", "revenue", "customers")
    ] == [
        30.0,
        5.0,
    ]
    assert program.rows("top_customers", "customer_id", "spent") == [("c1", 15.0), (None, 20.0)]


@pytest.mark.verify
def test_a_row_on_which_a_programs_function_raises_is_a_dead_letter_with_its_record(
    spark: SparkSession, settings: Settings, tmp_path: Path, topic_name: str
) -> None:
    (tmp_path / "numbers.py").write_text(
        "import dlt\nfrom pyspark.sql.functions import col\n"
        "@dlt.table\n@dlt.expect_or_drop('positive', 'x > 0')\n"
        "def numbers():\n"
        "    rows = spark.readStream.format('kafka').option('kafka.bootstrap.servers', 'b:9092')\n"
        f"    rows = rows.option('subscribe', '{topic_name}').load()\n"
        "    return rows.select(col('value').cast('string').cast('int').alias('x'))\n"
    )
    program = Run(spark, settings, str(tmp_path / "numbers.py"))
    create_topic(settings.kafka.bootstrap_servers, topic_name)
    produce(settings.kafka.bootstrap_servers, topic_name, [b"1", b"one", b"-1"])
    program.run()
    assert program.rows("numbers", "x") == [(1,)]
    letters = program.graph.tables["numbers"].dead_letters_path
    assert _rows(letters, "offset", "value", "row") == [
        (1, b"one", None),
        (None, None, '{"x":-1}'),
    ]


@pytest.mark.verify
def test_functions_columns_and_keyed_aggregates_of_a_spark_pipeline_run_unchanged(
    spark: SparkSession, settings: Settings
) -> None:
    program = Run(spark, settings, "sdp_running_totals.py", conf={"totals.topic": "views-of-pages"})
    view = {"url": "https://a.org/x", "user": "u", "at": "2026-11-20T10:10:00Z"}
    program.produce("views-of-pages", view, view, {**view, "url": "https://b.org/"})
    program.run()
    program.produce("views-of-pages", {**view, "at": "2026-11-20T11:10:00Z"})
    program.run()
    assert program.rows("views_by_host", "site", "views") == [("a.org", 3), ("b.org", 1)]
    assert [n for _, n in program.rows("views_by_hour", "start", "views")] == [3, 1]


@pytest.mark.verify
def test_queries_in_sql_run_unchanged(spark: SparkSession, settings: Settings) -> None:
    program = Run(spark, settings, "sdp_queries.py")
    trip = {"driver": "ann", "km": 2.5, "at": "2026-11-20T10:10:00Z"}
    program.produce("trips", trip, {**trip, "km": 1.0}, {**trip, "driver": "bob"})
    program.run()
    assert program.rows("drivers", "driver", "km") == [("ann", 3.5), ("bob", 2.5)]
    assert program.rows("trips_of_known_drivers", "driver", "km") == [
        ("ann", 1.0),
        ("ann", 2.5),
        ("bob", 2.5),
    ]
    assert len(program.rows("calendar", "day", "weekend")) == 7


@pytest.mark.verify
def test_flows_of_several_topics_a_declared_schema_and_a_backfill_run_unchanged(
    spark: SparkSession, settings: Settings
) -> None:
    program = Run(spark, settings, "regions_append.py")
    for region in ("eu", "us", "apac"):
        program.produce(f"sales-{region}", {"n": region})
    program.run()
    assert [r for (r,) in program.rows("sales", "region")] == ["apac", "eu", "us"]
    assert all(day == at.date() for day, at in program.rows("sales", "day", "at"))
    assert [r for (r,) in program.rows("sales_copy", "region")] == ["apac", "eu", "eu", "us"]


@pytest.mark.verify
def test_changes_of_both_types_run_unchanged(spark: SparkSession, settings: Settings) -> None:
    program = Run(spark, settings, "retail_cdc.py")
    first = {"id": 1, "name": "Ann", "city": "Rome", "email": "a@x", "op": "c", "ts_ms": 1}
    moved = {**first, "city": "Oslo", "op": "u", "ts_ms": 3}
    gone = {"id": 2, "name": "Bob", "city": "Bonn", "email": "b@x", "op": "c", "ts_ms": 2}
    topic = "retail.public.customers"
    program.produce(topic, moved, first, gone, {**gone, "op": "d", "ts_ms": 4})
    program.run()
    assert program.rows("customers", "id", "city") == [(1, "Oslo")]
    assert program.rows("customers_history", "id", "city", "__START_AT", "__END_AT") == [
        (1, "Oslo", 3, None),
        (1, "Rome", 1, 3),
        (2, "Bonn", 2, 4),
    ]
    assert program.rows("customers_by_city", "city", "count") == [("Oslo", 1)]


@pytest.mark.verify
def test_a_view_with_rules_and_rows_of_the_program_itself_run_unchanged(
    spark: SparkSession, settings: Settings
) -> None:
    program = Run(spark, settings, "checked_views.py")
    program.produce(
        "accounts",
        {"account": "DE1", "kind": "open", "at": "2026-11-20T10:10:00Z"},
        {"account": "DE2", "at": "2026-11-20T10:10:00Z"},
    )
    program.run()
    assert program.rows("accounts_opened", "account") == [("DE1",)]
    assert program.rows("accounts_broken", "account") == [("DE2",)]
    assert program.rows("accounts_per_country", "country", "count") == [("Germany", 1)]


@pytest.mark.verify
def test_a_flow_to_kafka_runs_unchanged_on_the_broker_of_the_settings(
    spark: SparkSession, settings: Settings
) -> None:
    program = Run(spark, settings, "fraud_alerts.py")
    create_topic(settings.kafka.bootstrap_servers, "fraud-alerts")
    program.produce(
        "card-payments",
        {"card": "c1", "amount": 9000, "country": "DE"},
        {"card": "c2", "amount": 10, "country": "DE"},
        {"amount": 10, "country": "FR"},
    )
    program.run()
    assert program.rows("suspicious", "card", "amount") == [("c1", 9000.0)]
    sent = consumed(settings.kafka.bootstrap_servers, "fraud-alerts", 1)
    assert sent == [(b"c1", {"card": "c1", "amount": 9000.0})]


@pytest.mark.verify
def test_a_stream_at_the_top_and_totals_of_all_rows_run_unchanged(
    spark: SparkSession, settings: Settings
) -> None:
    program = Run(spark, settings, "heart_rates.py")
    event = {"at": "2026-11-20T10:10:00Z", "band": "b1", "pulse": 60}
    program.produce("wrist-bands", event, {**event, "pulse": 80}, {**event, "pulse": -1})
    program.run()
    assert program.rows("band_totals", "events", "highest", "mean") == [(2, 80.0, 70.0)]
    program.produce(
        "wrist-bands", {**event, "band": "b2", "pulse": 100}, {**event, "band": "undef"}
    )
    program.run()
    assert program.rows("band_totals", "events", "highest", "mean") == [(3, 100.0, 80.0)]
    assert program.rows("band_minutes", "band", "mean") == [("b1", 70.0), ("b2", 100.0)]


@pytest.mark.verify
def test_watermarks_keep_doubles_out_and_close_windows_as_they_are_written(
    spark: SparkSession, settings: Settings
) -> None:
    program = Run(spark, settings, "iot_dedupe.py", conf={"env": "test"})
    reading = {"device": "d1", "temp": 20.0, "at": "2026-11-20T10:10:00Z"}
    hot = {**reading, "temp": 500.0, "at": "2026-11-20T10:11:00Z"}
    program.produce(
        "iot-test-readings", reading, reading, hot, {**reading, "at": "2026-11-20T10:40:00Z"}
    )
    program.run()
    assert program.rows("readings_once", "device", "temp") == [("d1", 20.0), ("d1", 20.0)]
    assert program.rows("readings_by_minute", "device", "mean") == [("d1", 20.0)]
    assert [at.minute for (at,) in program.rows("last_seen", "seen")] == [40]


def consumed(bootstrap: str, topic: str, count: int) -> list[tuple[bytes | None, Any]]:
    """The first records of a topic: key, and value as JSON."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "programs"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = consumer.consume(count, timeout=30)
    consumer.close()
    return [(record.key(), json.loads(record.value() or b"null")) for record in records]
