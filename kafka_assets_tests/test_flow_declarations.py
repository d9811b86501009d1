"""What is wrong with flows, changes, sinks and shared rules is said when definitions load."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import kafka_assets as ka
from kafka_assets.errors import DeclarationError
from kafka_assets.graph import build_graph
from kafka_assets.settings import Settings
from kafka_assets_tests.helpers import graph_of

events = ka.kafka_topic("events")


@ka.streaming_table(layer="bronze")
def raw(events: Any) -> Any:
    return events


def refusal(*declarations: Any) -> str:
    """What the graph says of these declarations beside a topic and its bronze table."""
    with pytest.raises(DeclarationError) as refused:
        graph_of(Settings(lake="/lake"), events, raw, *declarations)
    assert refused.value.fix
    return refused.value.what


def flow(target: str, **options: Any) -> Any:
    @ka.append_flow(target=target, **options)
    def rows(raw: Any) -> Any:
        return raw

    return rows


def cdc(target: str = "present", **options: Any) -> Any:
    how = {"source": "raw", "keys": "key", "sequence_by": "offset", **options}
    return ka.create_auto_cdc_flow(target=target, **how)


def test_a_flow_into_a_table_that_does_not_exist_names_the_one_that_was_meant() -> None:
    movements = ka.create_streaming_table("movements", layer="silver")
    with pytest.raises(DeclarationError, match="did you mean 'movements'"):
        graph_of(Settings(lake="/lake"), events, raw, movements, flow("movement"))


def test_a_flow_into_a_table_with_a_function_of_its_own_is_refused() -> None:
    assert "its target 'raw'" in refusal(flow("raw"))


def test_a_table_that_no_flow_feeds_is_refused() -> None:
    assert "is fed by no flow" in refusal(ka.create_streaming_table("lonely", layer="silver"))


def test_two_flows_of_one_name_are_refused() -> None:
    both = ka.create_streaming_table("both", layer="silver")
    assert "another flow of 'both' has this name" in refusal(both, flow("both"), flow("both"))


def test_changes_and_other_rows_in_one_table_are_refused() -> None:
    present = ka.create_streaming_table("present", layer="silver")
    assert "changes from one flow alone" in refusal(present, cdc(), flow("present"))


def test_changes_into_a_sink_are_refused() -> None:
    sink = ka.create_sink("out", "kafka", {"topic": "t"})
    assert "changes cannot be applied to the sink 'out'" in refusal(sink, cdc("out"))


def test_a_drop_rule_on_a_table_of_changes_is_refused() -> None:
    present = ka.create_streaming_table(
        "present", layer="silver", expect_all_or_drop={"known": "key IS NOT NULL"}
    )
    assert "would drop rows that later changes need" in refusal(present, cdc())


def test_a_stream_of_a_table_that_is_merged_is_refused_and_the_change_feed_named() -> None:
    present = ka.create_streaming_table("present", layer="silver")

    @ka.streaming_table(layer="gold")
    def reader(present: Any) -> Any:
        return present

    with pytest.raises(DeclarationError, match=r'reads=\{"present": "changes"\}'):
        graph_of(Settings(lake="/lake"), events, raw, present, cdc(), reader)


def test_the_change_feed_of_a_table_that_has_none_is_refused() -> None:
    @ka.streaming_table(layer="silver", reads={"raw": "changes"})
    def reader(raw: Any) -> Any:
        return raw

    assert "whose rows are only appended" in refusal(reader)


def test_a_streaming_table_that_reads_no_stream_is_refused() -> None:
    @ka.streaming_table(layer="silver", reads={"raw": "static"})
    def copy(raw: Any) -> Any:
        return raw

    assert "reads no stream" in refusal(copy)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"apply_as_deletes": "a b"}, "apply_as_deletes='a b' is not valid SQL"),
        ({"sequence_by": " "}, "sequence_by=' ' is not valid SQL"),
        ({"sequence_by": "reflect('java.lang.System', 'exit', 1)"}, "runs code that is not SQL"),
        ({"sequence_by": "(SELECT 1)"}, "may not read other tables"),
        ({"keys": []}, "is no list of different column names"),
        ({"column_list": ["a"], "except_column_list": ["b"]}, "are both given"),
        ({"stored_as_scd_type": 3}, "stored_as_scd_type=3 does not exist"),
        ({"track_history_column_list": ["a"]}, "keeps no history"),
        ({"apply_as_truncates": "a = 1", "stored_as_scd_type": 2}, "keeps history"),
    ],
)
def test_a_wrong_option_of_a_change_flow_is_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        cdc(**options)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("format_", "options", "problem"),
    [
        ("jdbc", {}, "format='jdbc' does not exist"),
        ("kafka", {}, "a kafka sink has no topic"),
        ("kafka", {"topic": "t", "checkpointLocation": "x"}, "unknown options checkpointLocation"),
        ("delta", {"path": "somewhere"}, "is not absolute"),
    ],
)
def test_a_wrong_sink_is_named(format_: Any, options: dict[str, str], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        ka.create_sink("out", format_, options)


RULES = [
    {"name": "positive", "constraint": "amount > 0", "tag": "orders"},
    {"name": "known", "constraint": "customer IS NOT NULL", "tag": "people"},
]


def test_rules_are_shared_by_tag_from_a_file_and_from_a_delta_table(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(RULES), encoding="utf-8")
    write_deltalake(str(tmp_path / "rules"), pa.Table.from_pylist(RULES))
    for source in (file, tmp_path / "rules"):
        assert ka.rules_from(source, tag="orders") == {"positive": "amount > 0"}
        assert set(ka.rules_from(source)) == {"positive", "known"}


def test_shared_rules_that_cannot_be_had_are_named(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(RULES), encoding="utf-8")
    with pytest.raises(DeclarationError, match=r"no rule has the tag 'order'\n.*orders, people"):
        ka.rules_from(file, tag="order")
    file.write_text('{"name": "positive"}', encoding="utf-8")
    with pytest.raises(DeclarationError, match="cannot be read: TypeError: it is no list"):
        ka.rules_from(file)
    with pytest.raises(DeclarationError, match="cannot be read: FileNotFoundError"):
        ka.rules_from(tmp_path / "nothing.json")


def test_a_table_expectation_about_a_table_that_does_not_exist_is_refused() -> None:
    @ka.streaming_table(layer="silver")
    @ka.expect_values_in("known", "key", "customers")
    def copy(raw: Any) -> Any:
        return raw

    assert "its table 'customers' is no table" in refusal(copy)


def test_bounds_that_bound_nothing_are_refused() -> None:
    with pytest.raises(DeclarationError, match="are no bounds"):
        ka.expect_row_count("some")


def test_options_about_batches_and_letters_go_to_the_table_that_decodes(
    tmp_path: Path,
) -> None:
    (tmp_path / "price.ddl").write_text("item STRING")
    module = ModuleType("prices")
    text = """
import kafka_assets as ka
events = ka.kafka_topic("events")

@ka.latest_per_key(layer="silver", schema="price.ddl", max_dead_share=0.1, owners=("team:a",))
def price_now(events):
    return events
"""
    exec(compile(text, str(tmp_path / "prices.py"), "exec"), module.__dict__)
    tables = build_graph([module], Settings(lake="/lake", schemas=tmp_path)).tables
    assert tables["price_now_changes"].table.max_dead_share == 0.1
    assert tables["price_now"].table.max_dead_share is None
    assert tables["price_now"].table.owners == ("team:a",)


def test_generated_columns_of_a_table_that_changes_are_applied_to_are_refused() -> None:
    target = ka.create_streaming_table("newest", layer="silver", generated={"two": "1 + 1"})
    changes = ka.create_auto_cdc_flow(target=target, source=raw, keys="key", sequence_by="offset")
    assert "changes are applied to 'newest', which has generated=" in refusal(target, changes)


def test_expectations_on_what_has_no_rows_of_its_own_are_refused() -> None:
    rule = ka.expect_or_drop("positive", "amount > 0")
    whole = ka.expect_row_count("filled", at_least=1)
    target = ka.create_streaming_table("all_of_them", layer="silver")

    def rows(raw: Any) -> Any:
        return raw

    flow = ka.append_flow(target=target)(rows)
    view = ka.temporary_view()(rows)
    ruled = rule(rows)
    with pytest.raises(DeclarationError, match="has the expectation 'positive', and no rows"):
        ka.append_flow(target=target)(ruled)
    for one in (rule, whole):
        with pytest.raises(DeclarationError, match="stands above the view 'rows'"):
            one(view)
        with pytest.raises(DeclarationError, match="stands above the flow 'rows'"):
            one(flow)
