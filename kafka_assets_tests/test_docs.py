"""The examples in docs/tables.md are one pipeline, and it runs; so does the test in the README."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_assets.graph import Graph, build_graph
from kafka_assets.options import JsonOptions
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph
from kafka_assets_tests.helpers import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[1] / "docs" / "tables.md"
README = PAGE.parents[1] / "README.md"

SCHEMAS = {
    "order.ddl": "id STRING, customer STRING, item STRING, amount DOUBLE, at TIMESTAMP",
    "price.ddl": "item STRING, price DOUBLE",
    "customer.ddl": "id STRING, version INT, op STRING, name STRING",
}


def page(settings: Settings) -> Graph:
    """The graph of the page's examples."""
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    module = ModuleType("tables_page")
    exec(compile("\n".join(examples), str(PAGE), "exec"), module.__dict__)
    assert settings.schemas is not None
    for name, ddl in SCHEMAS.items():
        (settings.schemas / name).write_text(ddl, encoding="utf-8")
    return build_graph([module], settings)


def order(id_: str, customer: str, amount: float, at: str) -> str:
    about = {"id": id_, "customer": customer, "item": "tea", "amount": amount}
    return json.dumps({**about, "at": f"2026-11-20T{at}:00Z"})


@pytest.mark.verify
def test_the_examples_run(spark: SparkSession, settings: Settings) -> None:
    bootstrap = settings.kafka.bootstrap_servers
    for topic, values in {
        "shop-orders": [
            order("1", "ann", 150, "10:00"),
            order("1", "ann", 150, "10:01"),
            order("2", "bob", 20, "10:30"),
            order("3", "bob", -1, "10:31"),
        ],
        "shop-returns": [order("2", "bob", 20, "10:45")],
        "shop-customers": [
            '{"id": "ann", "version": 2, "op": "put", "name": "Ann B."}',
            '{"id": "ann", "version": 1, "op": "put", "name": "Ann A."}',
        ],
        "shop-prices": ['{"item": "tea", "price": 3}'],
        "shop-alerts": [],
    }.items():
        create_topic(bootstrap, topic)
        produce(bootstrap, topic, values)
    countries = pa.table({"customer": ["ann"], "country": ["NL"]})
    write_deltalake(f"{settings.lake}/silver/countries", countries)
    coupons = Path(settings.lake, "landing", "coupons")
    coupons.mkdir(parents=True)
    (coupons / "1.json").write_text('{"code": "a", "off": 1}\n{"code": "b", "off": "much"}\n')
    graph = page(settings)
    reports = run_graph(graph, spark, settings)

    def rows(table: str, *columns: str) -> list[tuple[Any, ...]]:
        found = DeltaTable(graph.tables[table].path).to_pyarrow_table(columns=list(columns))
        return sorted(tuple(row[c] for c in columns) for row in found.to_pylist())

    assert rows("shop_order", "id") == [("1",), ("1",), ("2",)]
    assert rows("orders_once", "id") == [("1",), ("2",)]
    assert rows("balance", "customer", "amount") == [("ann", 300.0), ("bob", 0.0)]
    assert rows("spent", "customer", "amount") == [("ann", 300.0), ("bob", 20.0)]
    assert rows("hourly", "amount") == [(320.0,)]
    assert rows("priced", "price") == [(3.0,)] * 3
    assert rows("order_and_return", "id") == [("2",)]
    assert rows("customers", "id", "name") == [("ann", "Ann B.")]
    assert rows("customer_history", "name", "__END_AT") == [("Ann A.", 2), ("Ann B.", None)]
    assert rows("abroad", "country") == [("NL",), ("NL",)]
    assert reports["alerts"].kept == 2
    assert (rows("coupon", "code", "off"), reports["coupon"].dead) == ([("a", 1)], 1)
    assert all(rule.holds for rule in reports["balance"].table_rules)


def test_the_pipeline_in_the_readme_is_one(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)
    pipeline, choices = [block for block in blocks if "def test_" not in block]
    chosen = f"{choices}def chosen(tracker_bronze):\n    return tracker_bronze\n"
    module = ModuleType("readme")
    exec(compile(f"{pipeline}\n{chosen}", str(README), "exec"), module.__dict__)
    (tmp_path / "orders.ddl").write_text("id STRING", encoding="utf-8")
    graph = build_graph([module], Settings(lake=str(tmp_path), schemas=tmp_path))
    assert set(graph.tables) == {"tracker_bronze", "chosen", "tracker_silver", "tracker_hourly"}
    assert graph.tables["chosen"].table.json == JsonOptions()


@pytest.mark.verify
def test_the_test_in_the_readme_passes(spark: SparkSession, settings: Settings) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)
    (text,) = [block for block in blocks if "def test_" in block]
    module = ModuleType("readme_test")
    exec(compile(text, str(README), "exec"), module.__dict__)
    module.test_a_refund_is_a_dead_letter(spark, settings)
