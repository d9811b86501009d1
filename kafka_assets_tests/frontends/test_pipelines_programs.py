"""Programs of Spark Declarative Pipelines, unchanged: tables, layers, rules and every edge."""

from __future__ import annotations

from pathlib import Path

from kafka_assets.declarations import Changes
from kafka_assets_tests.frontends.shown import (
    edges,
    graph_of_program,
    load,
    rules,
    tables,
)


def test_a_spark_pipeline_with_a_view_between_its_tables(tmp_path: Path) -> None:
    loaded = load("sdp_orders.py")
    assert tables(loaded) == {
        "orders_bronze": "bronze streaming_table",
        "orders_parsed": "silver temporary_view",
        "orders_silver": "silver streaming_table",
        "orders_by_state": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("orders", "orders_bronze"),
        ("orders_bronze", "orders_parsed"),
        ("orders_parsed", "orders_silver"),
        ("orders_silver", "orders_by_state"),
    }
    assert rules(loaded) == {}
    graph_of_program(loaded, tmp_path)


def test_changes_ordered_by_a_struct_of_columns(tmp_path: Path) -> None:
    loaded = load("sdp_inventory_cdc.py")
    assert tables(loaded) == {
        "inventory_log": "bronze streaming_table",
        "inventory_changes": "silver streaming_table",
        "inventory": "silver auto_cdc",
        "stock_by_sku": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("inventory_topic", "inventory_log"),
        ("inventory_log", "inventory_changes"),
        ("inventory", "stock_by_sku"),
        ("inventory_changes", "inventory"),
    }
    assert rules(loaded) == {}
    graph_of_program(loaded, tmp_path)
    (flow,) = loaded.flows
    assert flow.name == "inventory_flow"
    assert flow.changes == Changes(
        keys=("sku", "site"),
        sequence_by="struct(seq, offset)",
        apply_as_deletes="op = 'DELETE'",
        columns=("sku", "site", "stock"),
    )


def test_two_topics_in_one_table_and_a_delta_sink_behind_it(tmp_path: Path) -> None:
    loaded = load("sdp_archive_sink.py")
    assert tables(loaded) == {
        "events": "bronze streaming_table",
        "archive": "sink sink",
    }
    assert edges(loaded) == {
        ("app_events", "events"),
        ("web_events", "events"),
        ("events", "archive"),
    }
    assert rules(loaded) == {}
    graph_of_program(loaded, tmp_path)
    assert {flow.name: flow.target for flow in loaded.flows} == {
        "from_app": "events",
        "from_web": "events",
        "to_archive": "archive",
    }


def test_tables_named_in_sql_are_edges_also_behind_temporary_views(tmp_path: Path) -> None:
    loaded = load("sdp_queries.py")
    assert tables(loaded) == {
        "trips_raw": "bronze streaming_table",
        "trips": "silver streaming_table",
        "drivers": "gold materialized_view",
        "trips_of_known_drivers": "silver streaming_table",
        "calendar": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("trips_topic", "trips_raw"),
        ("trips_raw", "trips"),
        ("trips", "drivers"),
        ("trips", "trips_of_known_drivers"),
        ("drivers", "trips_of_known_drivers"),
    }
    assert rules(loaded) == {}
    graph_of_program(loaded, tmp_path)
    assert loaded.tables["trips_of_known_drivers"].reads == {"drivers": "static"}


def test_an_aggregate_without_a_watermark_is_updated_by_its_columns(tmp_path: Path) -> None:
    loaded = load("sdp_running_totals.py")
    assert tables(loaded) == {
        "page_views": "bronze streaming_table",
        "views_by_host": "gold streaming_table",
        "views_by_hour": "gold streaming_table",
    }
    assert edges(loaded) == {
        ("page_views_topic", "page_views"),
        ("page_views", "views_by_host"),
        ("page_views", "views_by_hour"),
    }
    assert rules(loaded) == {}
    graph_of_program(loaded, tmp_path)
    assert loaded.tables["views_by_host"].keys == ("site", "day")
    assert loaded.tables["views_by_hour"].keys == ("start",)
