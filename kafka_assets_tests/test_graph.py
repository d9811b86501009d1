"""Declarations become one graph, or a message that says which of them does not fit and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kafka_assets as ka
from kafka_assets.errors import DeclarationError
from kafka_assets.graph import Graph, build_graph
from kafka_assets_tests.helpers import module_of

EVENTS = ka.kafka_topic("events")


@ka.streaming_table(layer="bronze")
def raw(events: Any) -> Any:
    return events


@ka.streaming_table(layer="silver", schema="event.ddl")
@ka.expect_or_drop("positive", "x > 0")
def clean(raw: Any) -> Any:
    return raw


@ka.materialized_view(layer="gold")
def summary(clean: Any) -> Any:
    return clean


def graph(tmp_path: Path, *declarations: Any) -> Graph:
    (tmp_path / "event.ddl").write_text("x INT NOT NULL")
    settings = ka.Settings(lake=str(tmp_path / "lake"), schemas=tmp_path)
    return build_graph([module_of(*declarations)], settings)


def refused(tmp_path: Path, *declarations: Any) -> str:
    with pytest.raises(DeclarationError) as raised:
        graph(tmp_path, *declarations)
    assert "test_graph.py:" in raised.value.what
    assert raised.value.fix
    return str(raised.value)


def test_tables_come_after_their_upstreams_wherever_they_are_declared(tmp_path: Path) -> None:
    assert list(graph(tmp_path, summary, clean, raw, EVENTS).tables) == ["raw", "clean", "summary"]


def test_the_chain_of_a_topic_is_all_that_depends_on_it(tmp_path: Path) -> None:
    found = graph(tmp_path, EVENTS, raw, clean, summary).downstream_of("events")
    assert [node.name for node in found] == ["raw", "clean", "summary"]


def test_each_table_has_its_own_place_dead_letters_and_checkpoint(tmp_path: Path) -> None:
    node = graph(tmp_path, EVENTS, raw, clean).tables["clean"]
    lake = tmp_path / "lake"
    assert node.path == f"{lake}/silver/clean"
    assert node.dead_letters_path == f"{lake}/dlq/clean"
    assert node.checkpoint == f"{lake}/_checkpoints/silver/clean"


def test_the_same_declaration_imported_by_two_modules_is_one(tmp_path: Path) -> None:
    settings = ka.Settings(lake=str(tmp_path), schemas=tmp_path)
    assert list(build_graph([module_of(EVENTS, raw), module_of(EVENTS, raw)], settings).tables) == [
        "raw"
    ]


def test_an_unknown_upstream_is_named_with_the_closest_known_name(tmp_path: Path) -> None:
    @ka.streaming_table(layer="silver")
    def typo(rwa: Any) -> Any:
        return rwa

    message = refused(tmp_path, EVENTS, raw, typo)
    assert "its parameter 'rwa' is no topic and no table" in message
    assert "did you mean 'raw'?" in message


def test_a_cycle_is_shown_whole(tmp_path: Path) -> None:
    @ka.materialized_view(layer="gold")
    def one(two: Any) -> Any:
        return two

    @ka.materialized_view(layer="gold")
    def two(one: Any) -> Any:
        return one

    assert "is its own upstream: " in refused(tmp_path, one, two)


def test_two_tables_of_one_name_are_refused_with_both_places(tmp_path: Path) -> None:
    def other() -> ka.Table:
        @ka.streaming_table(layer="silver")
        def raw(events: Any) -> Any:
            return events

        return raw

    message = refused(tmp_path, EVENTS, raw, other())
    assert "has the same name" in message
    assert message.count("test_graph.py:") == 2


def test_a_topic_and_a_table_of_one_name_are_refused(tmp_path: Path) -> None:
    assert "has the same name" in refused(tmp_path, ka.kafka_topic("raw"), EVENTS, raw)


def test_two_tables_at_one_path_are_refused_also_when_only_case_differs(tmp_path: Path) -> None:
    @ka.streaming_table(layer="silver", path="bronze/RAW")
    def copy(raw: Any) -> Any:
        return raw

    assert "is in the way of table 'raw'" in refused(tmp_path, EVENTS, raw, copy)


@pytest.mark.parametrize(
    "path", ["../outside", "/etc", "_checkpoints/x", "a/../../b", "s3://b/x", "dlq/x"]
)
def test_a_path_that_leaves_the_lake_is_refused(tmp_path: Path, path: str) -> None:
    @ka.streaming_table(layer="silver", path=path)
    def lost(raw: Any) -> Any:
        return raw

    assert "is no place for a table" in refused(tmp_path, EVENTS, raw, lost)


def test_a_missing_schema_file_is_named_with_the_folders_searched(tmp_path: Path) -> None:
    @ka.streaming_table(layer="silver", schema="missing.json")
    def lost(raw: Any) -> Any:
        return raw

    message = refused(tmp_path, EVENTS, raw, lost)
    assert "missing.json" in message
    assert str(tmp_path) in message


def test_a_damaged_schema_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"type": "struct",\n "fields": [}')

    @ka.streaming_table(layer="silver", schema="broken.json")
    def lost(raw: Any) -> Any:
        return raw

    assert "broken.json:2: not JSON" in refused(tmp_path, EVENTS, raw, lost)


def test_decoding_what_is_decoded_already_is_refused(tmp_path: Path) -> None:
    @ka.streaming_table(layer="silver", schema="event.ddl")
    def again(clean: Any) -> Any:
        return clean

    assert "is decoded already" in refused(tmp_path, EVENTS, raw, clean, again)


def test_a_stream_from_a_table_that_is_rewritten_is_refused(tmp_path: Path) -> None:
    @ka.streaming_table(layer="gold")
    def appended(summary: Any) -> Any:
        return summary

    message = refused(tmp_path, EVENTS, raw, clean, summary, appended)
    assert "whose rows are replaced, not only appended" in message


def test_a_view_of_a_topic_is_refused(tmp_path: Path) -> None:
    @ka.materialized_view(layer="gold")
    def view(events: Any) -> Any:
        return events

    assert "cannot read the topic 'events'" in refused(tmp_path, EVENTS, view)


def test_expectations_on_a_plain_function_are_refused(tmp_path: Path) -> None:
    @ka.expect("a", "x > 0")
    def helper(frame: Any) -> Any:
        return frame

    assert "which is no table" in refused(tmp_path, EVENTS, helper)


def test_a_source_that_is_declared_twice_is_one_and_the_declaration_that_says_more_counts(
    tmp_path: Path,
) -> None:
    owned = ka.kafka_topic("events", owners=["team:shop"])
    for given in ((EVENTS, owned), (owned, EVENTS)):
        assert graph(tmp_path, raw, *given).topics["events"].owners == ("team:shop",)
    other = ka.kafka_topic("events", owners=["team:bank"])
    assert "has the same name" in refused(tmp_path, raw, owned, other)
    text = [ka.file_source("landed", "in", format=f) for f in ("text", "text", "binaryFile")]
    assert list(graph(tmp_path, EVENTS, raw, *text[:2]).files) == ["landed"]
    assert "has the same name" in refused(tmp_path, EVENTS, raw, *text)


def test_one_kafka_topic_under_two_names_is_refused(tmp_path: Path) -> None:
    again = ka.kafka_topic("events", name="again")
    assert "is declared as 'events'" in refused(tmp_path, EVENTS, raw, again)


def test_the_code_version_follows_the_function_the_rules_and_the_schema(tmp_path: Path) -> None:
    before = graph(tmp_path, EVENTS, raw, clean).tables["clean"].code_version
    again = graph(tmp_path, EVENTS, raw, clean).tables["clean"].code_version
    ruled = graph(tmp_path, EVENTS, raw, ka.expect("new", "x < 9")(clean))
    assert before == again != ruled.tables["clean"].code_version


def test_a_comment_or_docstring_changes_no_code_version(tmp_path: Path) -> None:
    def plain() -> ka.Table:
        @ka.streaming_table(layer="silver")
        def copy(raw: Any) -> Any:
            return raw

        return copy

    def commented() -> ka.Table:
        @ka.streaming_table(layer="silver")
        def copy(raw: Any) -> Any:
            """A copy."""
            # For no reason.
            return raw

        return copy

    def other() -> ka.Table:
        @ka.streaming_table(layer="silver")
        def copy(raw: Any) -> Any:
            return raw.limit(1)

        return copy

    versions = [
        graph(tmp_path, EVENTS, raw, make()).tables["copy"].code_version
        for make in (plain, commented, other)
    ]
    assert versions[0] == versions[1] != versions[2]
