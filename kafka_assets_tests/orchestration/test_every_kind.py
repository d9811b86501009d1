"""What Dagster shows of a pipeline with every kind of table is what its author declared."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from kafka_assets.graph import Graph, build_graph
from kafka_assets.orchestration.build import graph_defs
from kafka_assets.settings import Settings
from kafka_assets_tests import every_kind

DECLARED_EDGES = """
bronze/coupons_kept <- files/coupons
bronze/customer_changes <- kafka/customers_topic
bronze/orders_raw <- kafka/orders_topic
dlq/customer_changes <- kafka/customers_topic
dlq/customers_now_changes <- kafka/customers_topic
dlq/movements <- kafka/returns_topic, silver/countries, silver/orders
dlq/orders <- view/orders_with_value
files/coupons <-
gold/balances <- silver/movements
gold/closed_hours <- silver/orders
gold/customer_feed <- silver/customers
gold/hourly <- silver/orders
gold/spent <- silver/orders
kafka/customers_topic <-
kafka/orders_topic <-
kafka/returns_topic <-
silver/countries <-
silver/customer_states <- bronze/customer_changes
silver/customers <- bronze/customer_changes
silver/customers_now <- silver/customers_now_changes
silver/customers_now_changes <- kafka/customers_topic
silver/movements <- kafka/returns_topic, silver/countries, silver/orders
silver/orders <- view/orders_with_value
silver/orders_abroad <- silver/countries, silver/orders
silver/orders_once <- silver/orders
silver/orders_with_twins <- silver/orders, silver/orders_once
sink/alerts <- silver/orders
sink/archive <- silver/orders
view/orders_with_value <- bronze/orders_raw
"""

DECLARED_CHECKS = """
bronze/coupons_kept: fits, rows_returned
bronze/customer_changes: rows_read, rows_returned
gold/balances: not_empty, one_row_a_customer, rows_returned
gold/hourly: rows_returned
gold/spent: rows_returned
silver/customer_states: changes_have_sequence, rows_returned
silver/customers: changes_have_sequence, rows_returned
silver/customers_now: changes_have_sequence, rows_returned
silver/customers_now_changes: rows_read, rows_returned
silver/movements: has_id, rows_read, rows_returned
silver/orders: customer_known, positive, rows_read, rows_returned
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    (tmp_path / "every_order.ddl").write_text(
        "id STRING, customer STRING, amount INT, at TIMESTAMP", encoding="utf-8"
    )
    (tmp_path / "every_customer.ddl").write_text(
        "id STRING, seq INT, op STRING, name STRING", encoding="utf-8"
    )
    settings = Settings(lake=str(tmp_path / "lake"), schemas=tmp_path)
    return build_graph([every_kind], settings)


def test_the_edges_in_dagster_are_those_that_are_declared(graph: Graph, tmp_path: Path) -> None:
    specs = _defs(graph, tmp_path).resolve_all_asset_specs()
    shown = sorted(
        f"{spec.key.to_user_string()} <- "
        + ", ".join(sorted(dep.asset_key.to_user_string() for dep in spec.deps))
        for spec in specs
    )
    assert [line.strip() for line in shown] == DECLARED_EDGES.strip().splitlines()


def test_the_checks_in_dagster_are_those_that_are_declared(graph: Graph, tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    for key in _defs(graph, tmp_path).resolve_asset_graph().asset_check_keys:
        found.setdefault(key.asset_key.to_user_string(), []).append(key.name)
    shown = sorted(f"{asset}: {', '.join(sorted(names))}" for asset, names in found.items())
    assert shown == DECLARED_CHECKS.strip().splitlines()


def test_a_table_without_a_function_of_its_own_is_described_by_what_feeds_it(
    graph: Graph, tmp_path: Path
) -> None:
    specs = _defs(graph, tmp_path).resolve_all_asset_specs()
    told = {spec.key.path[-1]: spec.description for spec in specs if spec.key.path[0] != "dlq"}
    assert told["movements"] == (
        "Rows of `orders`, `returns_topic`, `countries`, by the flows `from_orders`, "
        "`from_returns`, `from_before`."
    )
    assert told["customer_states"] == (
        "Every state of each `id`, by the changes in `customer_changes` in the order of `seq`."
    )
    assert str(told["alerts"]).startswith("Rows of `orders` that leave the lake for `")
    assert told["spent"] == "What each customer spent."


def test_a_declaration_that_is_assigned_to_no_variable_is_in_the_graph(graph: Graph) -> None:
    # create_auto_cdc_flow(...) stands alone in the module.
    assert [part.name for part in graph.tables["customers"].flows] == ["customers"]


def _defs(graph: Graph, folder: Path) -> dg.Definitions:
    return graph_defs(graph, Settings(lake=str(folder / "lake"), schemas=folder))
