"""The rest of the example programs, unchanged, on a real broker, real Spark and real Delta."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph
from kafka_assets_tests.frontends.test_programs_run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("broker", "spark"), pytest.mark.verify]


def test_tables_made_in_a_loop_with_rules_and_a_quarantine_run_unchanged(
    spark: SparkSession, settings: Settings
) -> None:
    program = Run(spark, settings, "rules_in_a_loop.py")
    program.produce(
        "erp.invoices", {"id": "1", "total": 5, "paid": False}, {"id": "2", "total": -1}
    )
    program.produce(
        "erp.shipments", {"id": "1", "carrier": "x", "weight": 2}, {"id": "3", "weight": -1}
    )
    program.run()
    assert program.rows("invoices_silver", "id") == [("1",)]
    assert program.rows("invoices_quarantine", "id") == [("2",)]
    assert program.rows("shipments_quarantine", "id") == [("3",)]
    assert program.rows("open_shipments", "id", "carrier") == [("1", "x")]


def test_a_stream_looks_things_up_in_its_own_and_in_another_teams_table_unchanged(
    spark: SparkSession, settings: Settings
) -> None:
    customers = pa.table({"customer_id": ["c1"], "segment": ["gold"]})
    write_deltalake(f"{settings.lake}/silver/customers", customers)
    program = Run(spark, settings, "enriched_stream.py", tables={"crm.main.customers": "customers"})
    program.produce("products", {"product_id": "p", "title": "Tea", "price": 2.5})
    line = {"order_id": "o", "product_id": "p", "customer_id": "c1", "quantity": 2}
    program.produce("order-events", line, {**line, "product_id": "q", "customer_id": "c2"})
    program.run()
    assert program.rows("order_lines", "title", "segment", "total") == [
        ("Tea", "gold", 5.0),
        (None, None, None),
    ]


def test_a_spark_pipeline_with_a_view_and_partitions_runs_unchanged(
    spark: SparkSession, settings: Settings
) -> None:
    program = Run(spark, settings, "sdp_orders.py")
    program.produce("orders", {"id": "1", "state": "new", "amount": 1.5}, {"id": "2", "state": "x"})
    program.run()
    mine = [row for row in program.rows("orders_silver", "id", "state") if row[1] == "new"]
    assert mine == [("1", "new")]
    assert ("new", 1) in program.rows("orders_by_state", "state", "orders")


def test_a_program_with_one_name_in_several_schemas_runs_unchanged(
    spark: SparkSession, settings: Settings
) -> None:
    program = Run(spark, settings, "schemas_of_one_name.py")
    program.produce("shop-orders", {"id": "1", "amount": 5}, {"id": "2", "amount": 0})
    program.run()
    assert program.rows("silver_orders", "id") == [("1",)]
    assert program.rows("gold_orders", "id", "amount", "events") == [("1", 5, 1)]
    assert program.rows("audit", "id") == [("1",)]


def test_a_medallion_program_in_sql_runs_unchanged(spark: SparkSession, settings: Settings) -> None:
    program = Run(spark, settings, "sql_medallion.sql")

    def order(number: int, amount: float, country: str | None) -> dict[str, object]:
        return {"order_id": f"o{number}", "customer_id": "c", "amount": amount, "country": country}

    program.produce("shop-orders-sql", order(1, 5, "FR"), order(2, -1, "FR"), order(3, 2, None))
    program.run()
    program.produce("shop-orders-sql", order(4, 10, "FR"))
    program.run()
    assert program.rows("shop_orders_clean", "order_id") == [("o1",), ("o3",), ("o4",)]
    assert program.rows("shop_orders_by_country", "country", "orders", "revenue") == [
        ("FR", 2, 15.0),
        (None, 1, 2.0),
    ]
    assert program.rows("shop_best_customers", "customer_id", "spent") == [("c", 17.0)]


def test_changes_in_sql_run_unchanged(spark: SparkSession, settings: Settings) -> None:
    program = Run(spark, settings, "sql_cdc.sql")

    def change(id: str | None, city: str, seq: int, operation: str = "UPDATE") -> dict[str, object]:
        return {"id": id, "name": "n", "city": city, "seq": seq, "operation": operation}

    program.produce("customers-sql", change("a", "Rome", 2), change("a", "Oslo", 1))
    program.produce("customers-sql", change("b", "Bonn", 1), change(None, "x", 9))
    program.run()
    program.produce("customers-sql", change("b", "", 2, "DELETE"))
    program.run()
    assert program.rows("cdc_silver_customers", "id", "city") == [("a", "Rome")]
    found = program.rows("customer_states", "id", "city", "__START_AT", "__END_AT")
    assert found[:2] == [("a", "Oslo", 1, 2), ("a", "Rome", 2, None)]


def test_flows_of_a_spark_pipeline_run_unchanged(spark: SparkSession, settings: Settings) -> None:
    program = Run(spark, settings, "sdp_archive_sink.py")
    program.produce("app-events", {"n": 1})
    program.produce("web-events", {"n": 2}, {"n": 3})
    # The sink is a folder of a machine that this one is not.
    run_graph(program.graph, spark, settings, names=("events",))
    assert [source for (source,) in program.rows("events", "source")] == [
        "app-events",
        "web-events",
        "web-events",
    ]


def test_sessions_behind_a_watermark_and_a_udf_run_unchanged(
    spark: SparkSession, settings: Settings
) -> None:
    program = Run(spark, settings, "clickstream_sessions.py")
    click = {"user_id": "u", "url": "/a", "agent": "Mobile", "at": "2026-11-20T10:00:00Z"}
    later = {**click, "url": "/b", "at": "2026-11-20T10:10:00Z"}
    program.produce("web-clicks", click, later, {**click, "at": "2026-11-20T20:00:00Z"})
    program.run()
    program.produce("web-clicks", {**click, "at": "2026-11-20T20:01:00Z"})
    program.run()
    assert program.rows("sessions", "device", "clicks", "first_url") == [("mobile", 2, "/a")]
    assert program.rows("page_views", "url", "users") == [("/a", 1), ("/b", 1)]


def test_an_exported_notebook_runs_unchanged(spark: SparkSession, settings: Settings) -> None:
    program = Run(spark, settings, "payments_notebook.py")
    program.produce("payments", {"payment_id": "1", "amount": 2.5, "currency": "EUR"})
    program.run()
    assert program.rows("payments_silver", "payment_id", "currency") == [("1", "EUR")]


def test_changes_of_a_spark_pipeline_run_unchanged(spark: SparkSession, settings: Settings) -> None:
    program = Run(spark, settings, "sdp_inventory_cdc.py")
    row = {"sku": "s", "site": "a", "stock": 5, "op": "PUT", "seq": 2}
    program.produce("inventory", row, {**row, "stock": 9, "seq": 1}, {**row, "site": "b"})
    program.produce("inventory", {**row, "site": "b", "op": "DELETE", "seq": 3})
    program.run()
    assert program.rows("inventory", "sku", "site", "stock") == [("s", "a", 5)]


def test_a_program_with_auto_loader_runs_unchanged_and_reads_each_file_once(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    program = Run(spark, settings, "autoloader_orders.py", conf={"landing": str(tmp_path)})
    folder = tmp_path / "orders"
    folder.mkdir()
    (tmp_path / "items.csv").write_text("item,kind\ntea,drink\n")
    order = {"order_id": "1", "ordered_at": "2026-11-20T10:00:00Z"}
    lines = [{"item": "tea", "price": 2.5}, {"item": "cup", "price": 4}]
    rows = [{**order, "lines": lines}, {**order, "order_id": "2", "lines": "many"}]
    (folder / "1.json").write_text("\n".join(map(json.dumps, rows)))
    program.run()
    (folder / "2.json").write_text(json.dumps({**order, "order_id": "3", "lines": lines[:1]}))
    program.run()
    program.run()
    assert program.rows("orders_bronze", "order_id", "_rescued_data") == [
        ("1", None),
        ("2", json.dumps(rows[1])),
        ("3", None),
    ]
    assert program.rows("orders_silver", "order_id", "file") == [("1", "1.json"), ("3", "2.json")]
    found = program.rows("revenue", "item", "kind", "revenue")
    assert [(item, kind, float(price)) for item, kind, price in found] == [
        ("cup", None, 4.0),
        ("tea", "drink", 5.0),
    ]
