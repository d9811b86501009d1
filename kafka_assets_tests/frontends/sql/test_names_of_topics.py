"""Topics that are named as a table have another name in the graph."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import kafka_assets as ka
from kafka_assets.declarations import Place, Topic
from kafka_assets.declarations.places import DECLARED
from kafka_assets.graph import build_graph
from kafka_assets_tests.frontends.sql.helpers import load

ORDERS = "CREATE STREAMING TABLE orders AS\nSELECT * FROM STREAM read_kafka(subscribe => 'orders')"
CLEAN = "CREATE STREAMING TABLE clean AS SELECT * FROM STREAM(orders)"


@pytest.mark.parametrize("texts", [(f"{ORDERS};{CLEAN}",), (CLEAN, ORDERS)])
def test_a_table_may_be_named_as_its_topic(tmp_path: Path, texts: tuple[str, ...]) -> None:
    found = load(*texts)
    module = ModuleType("shop")
    vars(module)[DECLARED] = list(found.declarations)
    graph = build_graph([module], ka.Settings(lake=str(tmp_path)))
    assert {name: one.topic for name, one in graph.topics.items()} == {"orders_topic": "orders"}
    assert list(graph.tables["orders"].upstreams) == ["orders_topic"]
    assert list(graph.tables["clean"].upstreams) == ["orders"]
    (note,) = found.notes
    assert note.text == "the topic 'orders' is named 'orders_topic': a table is named 'orders'"
    assert note.place.line == 2


def test_a_topic_may_be_named_as_files_that_are_read_before() -> None:
    found = load(
        "CREATE STREAMING TABLE a AS SELECT * FROM STREAM read_files('/in', format => 'text');"
        "CREATE STREAMING TABLE b AS SELECT * FROM STREAM read_kafka(subscribe => 'in')"
    )
    assert [one.name for one in found.declarations] == ["in", "in_topic", "a", "b"]


def test_a_flow_and_a_topic_that_python_names_leave_the_name_as_it_is() -> None:
    flow = ORDERS.replace("STREAMING TABLE orders AS", "FLOW orders AS INSERT INTO t BY NAME")
    assert load(flow).declarations[0].name == "orders"
    topic = Topic("shop", "orders", None, (), Place("a.py", 1))
    found = load(ORDERS, topics=(topic,))
    assert [one.name for one in found.declarations] == ["orders"]
    assert found.notes == ()
