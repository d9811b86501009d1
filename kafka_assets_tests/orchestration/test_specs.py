"""What Dagster shows of the shipped pipelines before anything runs: reviewed here, in diffs."""

from __future__ import annotations

import subprocess
import sys

import dagster as dg
import pytest

import kafka_assets as ka
import kafka_assets.pipelines
from kafka_assets.orchestration.build import build_defs
from kafka_assets.orchestration.checks import check_specs
from kafka_assets.settings import Settings
from kafka_assets_tests.helpers import graph_of

LINEAGE = {
    "kafka/tracker_events": [],
    "bronze/tracker_bronze": ["kafka/tracker_events"],
    "silver/tracker_silver": ["bronze/tracker_bronze"],
    "dlq/tracker_silver": ["bronze/tracker_bronze"],
    "gold/tracker_hourly": ["silver/tracker_silver"],
    "kafka/orders": [],
    "bronze/orders_bronze": ["kafka/orders"],
    "silver/orders_silver": ["bronze/orders_bronze"],
    "dlq/orders_silver": ["bronze/orders_bronze"],
    "gold/orders_hourly": ["silver/orders_silver"],
}

KINDS = {
    "kafka": {"kafka"},
    "bronze": {"spark", "deltalake", "bronze"},
    "silver": {"spark", "deltalake", "silver"},
    "gold": {"spark", "deltalake", "gold"},
    "dlq": {"deltalake", "dead_letters"},
}

CHECKS = {
    ("silver/tracker_silver", "plausible_heart_rate", False),
    ("silver/tracker_silver", "model_known", False),
    ("silver/tracker_silver", "rows_read", True),
    ("silver/tracker_silver", "rows_returned", True),
    ("gold/tracker_hourly", "rows_returned", True),
    ("silver/orders_silver", "positive_amount", False),
    ("silver/orders_silver", "customer_known", False),
    ("silver/orders_silver", "status_known", False),
    ("silver/orders_silver", "rows_read", True),
    ("silver/orders_silver", "rows_returned", True),
    ("gold/orders_hourly", "rows_returned", True),
}


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    return build_defs(kafka_assets.pipelines, Settings(lake="/lake"))


@pytest.fixture(scope="module")
def specs(defs):
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def test_the_definitions_load(defs):
    dg.Definitions.validate_loadable(defs)


def test_lineage(specs):
    found = {
        name: [dep.asset_key.to_user_string() for dep in spec.deps] for name, spec in specs.items()
    }
    assert found == LINEAGE


def test_kinds_tell_the_layer(specs):
    assert {name: spec.kinds for name, spec in specs.items()} == {
        name: KINDS[name.split("/")[0]] for name in LINEAGE
    }


def test_a_group_is_a_pipeline_module(specs):
    assert {name: spec.group_name for name, spec in specs.items()} == {
        name: "orders" if "orders" in name else "tracker_events" for name in LINEAGE
    }


def test_everything_has_an_owner_and_a_description(specs):
    assert {tuple(spec.owners) for spec in specs.values()} == {("team:data-platform",)}
    assert all(str(spec.description) for spec in specs.values())


def test_checks_and_which_of_them_block(defs):
    specs = defs.resolve_asset_graph().asset_check_keys
    graph = defs.resolve_asset_graph()
    found = {
        (k.asset_key.to_user_string(), k.name, graph.get_check_spec(k).blocking) for k in specs
    }
    assert found == CHECKS


def test_only_dead_letters_may_be_left_out_of_a_run(specs):
    assert {name for name, spec in specs.items() if spec.skippable} == {
        "dlq/tracker_silver",
        "dlq/orders_silver",
    }


def test_each_table_has_a_pool_of_its_own(defs):
    pools = {
        node.op.pool
        for node in defs.resolve_asset_graph().assets_defs
        if node.is_executable
        for node in [node]
    }
    assert pools == {name for name in LINEAGE if not name.startswith(("kafka/", "dlq/"))}


def test_a_decoded_table_shows_its_columns_before_it_ever_ran(specs):
    schema = specs["silver/orders_silver"].metadata["dagster/column_schema"]
    columns = {c.name: (c.type, c.constraints.nullable) for c in schema.columns}
    assert columns["amount"] == ("decimal(12,2)", True)
    assert columns["order_id"] == ("string", False)
    assert all(column.description for column in schema.columns)


def test_freshness_warns_as_declared_and_fails_after_twice_that(specs):
    policy = specs["silver/tracker_silver"].freshness_policy
    assert policy.warn_window.to_timedelta().total_seconds() == 600
    assert policy.fail_window.to_timedelta().total_seconds() == 1200
    assert specs["bronze/tracker_bronze"].freshness_policy is None


def test_uris_say_where_things_are(specs):
    assert specs["kafka/orders"].metadata["dagster/uri"].value == "kafka://127.0.0.1:9092/orders"
    assert (
        specs["bronze/orders_bronze"].metadata["dagster/uri"].value
        == "file:///lake/bronze/orders_bronze"
    )
    assert specs["gold/orders_hourly"].metadata["dagster/table_name"] == "gold.orders_hourly"


def test_both_sensors_run_by_default(defs):
    sensors = {s.name: s.default_status for s in defs.sensors}
    assert sensors == {
        "kafka_lag": dg.DefaultSensorStatus.RUNNING,
        "kafka_automation": dg.DefaultSensorStatus.RUNNING,
    }


def test_only_tables_below_a_late_one_or_another_table_start_by_themselves(specs):
    assert {name for name, spec in specs.items() if spec.automation_condition is None} == {
        "kafka/tracker_events",
        "kafka/orders",
        "dlq/tracker_silver",
        "dlq/orders_silver",
    }


def test_runs_use_one_process(defs):
    assert defs.executor is dg.in_process_executor


def test_loading_starts_no_jvm():
    code = (
        "import kafka_assets.definitions, pyspark; "
        "assert pyspark.SparkContext._gateway is None; "
        "assert pyspark.sql.SparkSession.getActiveSession() is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_check_of_a_rule_with_a_threshold_says_how_many_rows_may_break_it():
    @ka.streaming_table(layer="bronze")
    @ka.expect_or_fail("few", "offset > 0", above=0.01)
    @ka.expect_or_fail("none", "offset > 0")
    def raw(events):
        return events

    graph = graph_of(Settings(lake="/lake"), ka.kafka_topic("events"), raw)
    said = {spec.name: str(spec.description) for spec in check_specs(graph.tables["raw"])}
    assert "in which more than 0.01 of its rows break it" in said["few"]
    assert "with a row that breaks it" in said["none"]
