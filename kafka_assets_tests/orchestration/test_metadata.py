"""What a run's report becomes in the UI."""

from __future__ import annotations

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafka_assets as ka
from kafka_assets.errors import ExpectationFailed
from kafka_assets.graph import build_graph
from kafka_assets.orchestration import checks, metadata
from kafka_assets.orchestration.assets import position_after
from kafka_assets.orchestration.history import Position
from kafka_assets.settings import Settings
from kafka_assets.streaming.report import Conservation
from kafka_assets_tests.orchestration.harness import pipeline, report_of


@pytest.fixture
def silver():
    module = pipeline()
    module.events_silver = ka.expect("whole", "amount = round(amount)")(module.events_silver)
    return build_graph([module], Settings(lake="/lake")).tables["events_silver"]


def results(node, report):
    return {result.check_name: result for result in checks.check_results(node, report)}


def test_every_check_has_a_result_also_without_rows(silver):
    specs = {spec.name for spec in checks.check_specs(silver)}
    found = results(silver, report_of(silver))
    assert set(found) == specs == {"positive", "sane", "whole", "rows_returned"}
    assert all(result.passed for result in found.values())


def test_a_check_has_a_result_also_when_the_report_has_no_equality(silver):
    found = results(silver, report_of(silver, conservation=()))
    assert found["rows_returned"].passed


def test_changes_without_a_place_in_the_order_are_warned_of():
    module = pipeline()
    module.newest = ka.create_streaming_table("newest", layer="silver")
    module.changes = ka.create_auto_cdc_flow(
        target="newest", source="events_silver", keys=["event_id"], sequence_by="amount"
    )
    node = build_graph([module], Settings(lake="/lake")).tables["newest"]
    found = results(node, report_of(node, extra={"unsequenced": 2}))["changes_have_sequence"]
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert found.description.startswith(
        "2 changes were passed over, because amount is null; events_silver has them."
    )
    assert results(node, report_of(node))["changes_have_sequence"].passed


def test_a_broken_drop_rule_warns_and_leads_to_the_dead_letters(silver):
    found = results(silver, report_of(silver, kept=9, broken={"positive": 1}))["positive"]
    assert not found.passed
    assert found.severity == dg.AssetCheckSeverity.WARN
    assert found.description == (
        "1 of 10 rows break amount > 0, first at events/0 offset 7; moved to the dead letters."
    )
    assert found.metadata["broken"].value == 1
    assert found.metadata["share"].value == 0.1
    assert found.metadata["first"].value == "events/0 offset 7"
    assert found.metadata["dead_letters"].value == dg.AssetKey(["dlq", "events_silver"])


def test_a_broken_warn_rule_keeps_the_rows(silver):
    found = results(silver, report_of(silver, kept=10, broken={"whole": 2}))["whole"]
    assert not found.passed
    assert found.severity == dg.AssetCheckSeverity.WARN
    assert "dead_letters" not in found.metadata


def test_only_fail_rules_and_conservation_block(silver):
    blocking = {spec.name for spec in checks.check_specs(silver) if spec.blocking}
    assert blocking == {"sane", "rows_returned"}


def test_rows_that_are_unaccounted_for_are_an_error_with_both_sides(silver):
    lost = Conservation("rows_returned", 10, 9, {"kept": 8, "dead": 1})
    found = results(silver, report_of(silver, conservation=(lost,)))["rows_returned"]
    assert not found.passed
    assert found.severity == dg.AssetCheckSeverity.ERROR
    assert found.description == "rows returned: 10 ≠ 8 kept + 1 dead"


def test_a_stopped_batch_fails_the_rules_that_stopped_it(silver):
    error = ExpectationFailed(
        "stopped",
        rules={"sane": {"broken": 3, "first": {"topic": "events", "partition": 1, "offset": 4}}},
        fix="mend it",
    )
    (found,) = checks.failed_results(silver, error)
    assert (found.check_name, found.passed) == ("sane", False)
    assert found.severity == dg.AssetCheckSeverity.ERROR
    assert "3 rows break amount < 1000000, first at events/1 offset 4" in (found.description or "")


def test_figures_are_numbers_so_that_the_ui_plots_them(silver):
    report = report_of(silver, kept=9, broken={"positive": 1}, rows_total=100, lag=3)
    found = metadata.table_run(silver, report, Position())
    numbers = {name: value for name, value in found.items() if isinstance(value, int | float)}
    assert numbers == {
        "returned": 10,
        "kept": 9,
        "dead": 1,
        "lag": 3,
        "bytes_written": 100,
        "batches": 1,
        "seconds": 1.5,
        "delta_version_from": 1,
        "delta_version_to": 2,
        "dagster/row_count": 100,
    }


def test_a_function_that_returns_more_rows_has_a_fan_out_instead_of_filtered_rows(silver):
    report = report_of(silver, kept=20, decoded=10)
    found = metadata.table_run(silver, report, Position())
    assert found["fan_out"] == 2.0
    assert "filtered" not in found


def test_columns_come_with_each_materialization(silver):
    found = metadata.table_run(silver, report_of(silver), Position())
    schema = found["dagster/column_schema"]
    assert [(c.name, c.type) for c in schema.columns] == [("amount", "bigint")]


def test_a_sample_of_dead_letters_is_a_table():
    letters: list[dict[str, object]] = [
        {
            "topic": "events",
            "partition": 0,
            "offset": 7,
            "failed_rules": ["positive"],
            "value": b"{}",
        },
        {"topic": "events", "partition": 0, "offset": 8, "failed_rules": [], "value": b"\xff\xfe"},
        {"topic": None, "partition": None, "offset": None, "value": None, "row": "whole"},
    ]
    assert metadata.sample(letters).splitlines() == [
        "| topic | partition | offset | failed_rules | value |",
        "| --- | --- | --- | --- | --- |",
        r"| events | 0 | 7 | positive | \{\} |",
        "| events | 0 | 8 |  | 0xfffe |",
        "|  |  |  |  | whole |",
    ]


def test_long_values_are_cut():
    assert metadata.cell("x" * 500).endswith(r"xx… \(500 characters\)")


@given(st.one_of(st.text(), st.binary(), st.lists(st.text())))
def test_no_value_gets_out_of_its_cell(value):
    cell = metadata.cell(value)
    assert "\n" not in cell
    assert "<" not in cell
    unescaped = cell.replace("\\\\", "").replace("\\|", "").replace("\\`", "")
    assert "|" not in unescaped
    assert "`" not in unescaped


def test_a_position_keeps_partitions_that_a_run_did_not_read(silver):
    before = Position("id", 1, {"t/0": 5, "t/1": 6})
    report = report_of(silver, data_version="id:2", offsets={"t/1": (6, 9)})
    assert position_after(before, report) == Position("id", 2, {"t/0": 5, "t/1": 9})


def test_a_table_made_anew_has_read_nothing(silver):
    before = Position("old", 1, {"t/0": 5})
    assert position_after(before, report_of(silver, data_version="new:2")).offsets == {}
