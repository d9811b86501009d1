"""The examples in docs/sql.md are one pipeline, and it runs."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kafka_assets.demo.broker import Broker
from kafka_assets.graph import Graph, build_graph
from kafka_assets.settings import KafkaSettings, Settings
from kafka_assets.streaming.run import run_graph
from kafka_assets_tests.helpers import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "sql.md"
EXAMPLE = re.compile(r"^```(sql|python)\n(?:--|#) (shop/\S+)\n(.*?)^```$", re.M | re.S)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The page's examples as a package."""
    page = PAGE.read_text(encoding="utf-8")
    examples = EXAMPLE.findall(page)
    assert len(examples) == page.count("```") // 2
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    for _, name, text in examples:
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("shop")
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def rows(graph: Graph, name: str, *columns: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(graph.tables[name].path).to_pyarrow_table(columns=list(columns)).to_pylist()
    return sorted(tuple(str(row[column]) for column in columns) for row in found)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """The examples of another page have topics of the same names."""
    with Broker(tmp_path / "broker") as broker:
        yield broker


@pytest.mark.verify
@pytest.mark.broker
def test_the_examples_run(
    shop: Any, spark: SparkSession, settings: Settings, own_broker: Broker
) -> None:
    kafka = KafkaSettings(bootstrap_servers=own_broker.bootstrap)
    settings = settings.model_copy(update={"kafka": kafka})
    assert settings.schemas is not None
    (settings.schemas / "order.ddl").write_text(
        "id STRING, customer STRING, amount DOUBLE, at TIMESTAMP"
    )
    orders = [
        {"id": "1", "customer": "ann", "amount": 12.5, "at": "2026-11-20T10:10:00Z"},
        {"id": "2", "customer": "bob", "amount": 3, "at": "2026-11-20T10:20:00Z"},
        {"id": "3", "customer": "ann", "amount": 20, "at": "2026-11-20T11:00:00Z"},
        {"id": "4", "customer": "ann", "amount": -1, "at": "2026-11-20T12:00:00Z"},
    ]
    for topic, values in {
        "shop-orders": [json.dumps(order) for order in orders],
        "card": ["paid"],
        "bill": ["sent"],
    }.items():
        create_topic(settings.kafka.bootstrap_servers, topic)
        produce(settings.kafka.bootstrap_servers, topic, values)
    graph = build_graph(shop, settings)
    run_graph(graph, spark, settings)
    assert rows(graph, "orders_clean", "id", "amount") == [
        ("1", "12.50"),
        ("2", "3.00"),
        ("3", "20.00"),
    ]
    assert rows(graph, "revenue", "customer", "revenue") == [("ann", "32.50")]
    assert rows(graph, "payments", "text", "kind") == [("paid", "card"), ("sent", "bill")]
    assert rows(graph, "last_orders", "customer", "id") == [("ann", "3"), ("bob", "2")]
    assert rows(graph, "orders_followed", "id", "last_id") == [("1", "3")]
    assert [count for _, count in rows(graph, "orders_hourly", "hour", "orders")] == ["2", "1"]
