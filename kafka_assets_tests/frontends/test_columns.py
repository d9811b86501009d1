"""Columns of programs as SQL text: it means what the Column means, or there is none."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.connect import functions as F

from kafka_assets.frontends.programs.columns import name_of, reference_of, selected, sql_of
from kafka_assets.sql_rules import rule_problem

TEXT = F.expr("a > 0 OR b > 0")


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (TEXT, "a > 0 OR b > 0"),
        (TEXT.alias("x"), "a > 0 OR b > 0"),
        (TEXT & (F.col("c") > 0), "(a > 0 OR b > 0) AND (c > 0)"),
        (TEXT.alias("x") & F.expr("c"), "(a > 0 OR b > 0) AND c"),
        (~TEXT, "NOT (a > 0 OR b > 0)"),
        (F.expr("a OR b").isNull(), "(a OR b) IS NULL"),
        (F.expr("a OR b").isin(True), "(a OR b) IN (true)"),
        (F.coalesce(F.expr("a + 1"), "b") * 2 > 0, "(coalesce(a + 1, b) * 2) > 0"),
    ],
)
def test_a_text_inside_of_a_column_keeps_its_meaning(column: Any, text: str) -> None:
    assert sql_of(column) == text
    assert rule_problem(text) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (date(2024, 1, 1), "DATE '2024-01-01'"),
        (date(1969, 12, 31), "DATE '1969-12-31'"),
        (datetime(2024, 1, 1, 5, tzinfo=UTC), "TIMESTAMP '2024-01-01 05:00:00+00:00'"),
        (timedelta(hours=1), "INTERVAL '0 01:00:00.000000' DAY TO SECOND"),
        (timedelta(days=-2, microseconds=-1), "INTERVAL '-2 00:00:00.000001' DAY TO SECOND"),
        (0.5, "0.5D"),
        (3, "3"),
        (True, "true"),
        (None, "NULL"),
        ("it's \\", "'it\\'s \\\\'"),
    ],
)
def test_a_value_keeps_its_type(value: Any, text: str) -> None:
    assert sql_of(F.lit(value)) == text
    assert rule_problem(f"x > {text}") is None


@pytest.mark.parametrize(
    "column",
    [F.lit(b"x"), F.lit(float("nan")), F.col("a").isin([]), F.count_distinct("a"), F.col("a")[0]],
)
def test_what_has_no_simple_text_has_none(column: Any) -> None:
    assert sql_of(column) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("order-id", "`order-id`"),
        ("order date", "`order date`"),
        ("größe", "`größe`"),
        ("a.b-c", "a.`b-c`"),
        ("`a.b`.c", "`a.b`.c"),
        ("`a``b`", "`a``b`"),
        ("current_date", "`current_date`"),
        ("true", "`true`"),
        ("a.true", "a.true"),
        ("offset", "offset"),
        ("timestamp", "timestamp"),
    ],
)
def test_a_name_is_the_same_column_in_sql(name: str, text: str) -> None:
    assert sql_of(F.col(name)) == text
    assert sql_of(F.col(name) > 0) == f"{text} > 0"


def test_trying_to_cast_stays_trying() -> None:
    assert sql_of(F.col("a").try_cast("int")) == "TRY_CAST(a AS int)"


def test_names_in_backticks_are_one_part() -> None:
    assert name_of(F.col("`a.b`")) == name_of("x.`a.b`") == "a.b"
    assert reference_of(F.col("`a`.b")) == "a.b"


def test_a_text_of_a_select_list_has_a_name_and_says_what_it_renames() -> None:
    texts = ("a", "t.a AS b", "sum(a) AS s", "*", "a +")
    assert [selected(text) for text in texts] == [
        ("a", "a"),
        ("t.a", "b"),
        (None, "s"),
        ("*", "*"),
        (None, None),
    ]
