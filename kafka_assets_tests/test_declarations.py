"""A declaration says what an author meant, or fails at once, naming table, file, line and fix."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import kafka_assets as ka
from kafka_assets.errors import DeclarationError


def declare(**options: Any) -> ka.Table:
    @ka.streaming_table(**{"layer": "silver", **options})
    def clean(raw: Any) -> Any:
        """Cleaned rows."""
        return raw

    return clean


def test_a_tables_name_upstreams_and_comment_come_from_its_function() -> None:
    table = declare()
    assert (table.name, table.upstreams, table.comment) == ("clean", ("raw",), "Cleaned rows.")


def test_a_table_called_with_a_frame_is_its_function() -> None:
    assert declare()("rows") == "rows"


def test_a_topics_name_is_its_kafka_name_in_snake_case() -> None:
    assert ka.kafka_topic("Tracker.Events-v2").name == "tracker_events_v2"
    assert ka.kafka_topic("Tracker.Events-v2", name="tracker").name == "tracker"


def test_expectations_keep_their_written_order_whatever_their_form() -> None:
    @ka.streaming_table(layer="silver")
    @ka.expect("a", "x > 0")
    @ka.expect_all_or_drop({"b": "x > 1", "c": "x > 2"})
    @ka.expect_or_fail("d", "x > 3")
    def clean(raw: Any) -> Any:
        return raw

    assert [(e.name, e.action) for e in clean.expectations] == [
        ("a", "warn"),
        ("b", "drop"),
        ("c", "drop"),
        ("d", "fail"),
    ]


def test_an_expectation_above_the_table_decorator_counts_too() -> None:
    table = ka.expect("positive", "x > 0")(declare())
    assert [e.name for e in table.expectations] == ["positive"]


def test_only_decoding_and_drop_rules_make_dead_letters_possible() -> None:
    assert not declare().may_have_dead_letters
    assert not ka.expect("a", "x > 0")(declare()).may_have_dead_letters
    assert ka.expect_or_drop("a", "x > 0")(declare()).may_have_dead_letters
    assert declare(schema="s.json").may_have_dead_letters


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": "brass"}, "layer='brass' does not exist"),
        ({"freshness": timedelta(seconds=5)}, "shorter than a minute"),
        ({"json": ka.JsonOptions()}, "json= without schema="),
        ({"owners": ["me"]}, "owner 'me' is neither an email nor a team"),
    ],
)
def test_a_wrong_option_names_the_table_its_place_and_the_fix(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DeclarationError) as raised:
        declare(**options)
    assert message in raised.value.what
    assert "table 'clean'" in raised.value.what
    assert "test_declarations.py:" in raised.value.what
    assert raised.value.fix


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("heart_bpm >", "heart_bpm >"),
        ("", "it is empty"),
        ("x IN (SELECT y FROM other)", "may not read other tables"),
        ("count(*) > 1", "about one row"),
        ("x > 0; DROP TABLE t", "Expecting )"),
        ("x > 0) OR (y > 0", "more than one condition"),
    ],
)
def test_an_expectation_that_is_no_sql_condition_names_its_line(rule: str, message: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        ka.expect("plausible", rule)
    assert message in raised.value.what
    assert "expectation 'plausible'" in raised.value.what
    assert "test_declarations.py:" in raised.value.what


def test_two_expectations_of_one_name_are_refused() -> None:
    with pytest.raises(DeclarationError, match="two expectations named 'a'"):
        ka.expect("a", "x > 0")(ka.expect_or_drop("a", "x > 1")(declare()))


def test_a_function_without_named_upstreams_is_refused() -> None:
    with pytest.raises(DeclarationError, match="has no parameter"):

        @ka.streaming_table(layer="bronze")
        def nothing() -> None: ...

    with pytest.raises(DeclarationError, match=r"takes \*frames"):

        @ka.materialized_view(layer="gold")
        def anything(*frames: Any) -> None: ...


def test_a_window_that_is_no_length_of_time_is_refused() -> None:
    with pytest.raises(DeclarationError, match="window='hourly' is no length of time"):

        @ka.windowed_table(layer="gold", event_time="time", window="hourly")
        def hourly(clean: Any) -> Any:
            return clean


@pytest.mark.parametrize("topic", ["", "a b", "a/b", "..", "x" * 250])
def test_an_illegal_topic_name_is_refused(topic: str) -> None:
    with pytest.raises(DeclarationError, match=r"no legal Kafka topic name|is not snake_case"):
        ka.kafka_topic(topic)


def test_a_json_option_that_does_not_exist_is_refused_with_its_value() -> None:
    with pytest.raises(ValueError, match="unknown_fields='keep'"):
        ka.JsonOptions(unknown_fields="keep")  # type: ignore[arg-type]
