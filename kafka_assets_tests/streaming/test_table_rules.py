"""Expectations of whole tables, and how much of a rule's breaking a threshold puts up with."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import ExpectationFailed
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph, run_table
from kafka_assets_tests.helpers import Send, graph_of, ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.graph import Graph


def test_whole_table_expectations_say_what_the_run_left(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, app, send = two_topics

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def known(app: Any) -> Any:
        return app

    @ka.streaming_table(layer="silver", schema="event.ddl")
    @ka.expect_unique("one_row_an_id", "id")
    @ka.expect_row_count("not_empty", at_least=1, blocking=True)
    @ka.expect_new_rows("a_few", at_most=2)
    @ka.expect_values_in("ids_known", "id", "known")
    @ka.expect_fresh("of_today", "at", within=timedelta(days=1))
    @ka.expect_fresh("of_this_second", "long_ago", within=timedelta(seconds=1))
    def clean(web: Any) -> Any:
        at = F.col("_source.timestamp")
        return web.withColumns({"at": at, "long_ago": at - F.expr("INTERVAL 1 HOUR")})

    graph: Graph = graph_of(settings, web, app, known, clean)
    send("app", ("a", 1), ("b", 1))
    empty = run_graph(graph, spark, settings)["clean"].table_rules
    assert {r.name: r.holds for r in empty} == {
        "one_row_an_id": True,
        "not_empty": False,
        "a_few": True,
        "ids_known": True,
        "of_today": True,
        "of_this_second": True,
    }
    send("web", ("a", 1), ("a", 2), ("z", 3))
    broken = run_graph(graph, spark, settings)["clean"].table_rules
    assert [(r.name, r.holds) for r in broken[4:]] == [
        ("of_today", True),
        ("of_this_second", False),
    ]
    assert [(r.name, r.holds, r.found) for r in broken[:4]] == [
        ("one_row_an_id", False, 1),
        ("not_empty", True, 3),
        ("a_few", False, 3),
        ("ids_known", False, 1),
    ]
    assert broken[3].sample == ({"value": "z"},)


def test_a_fail_rule_puts_up_with_what_its_threshold_says_and_no_more(
    spark: SparkSession, settings: Settings, two_topics: tuple[Any, Any, Send]
) -> None:
    web, _, send = two_topics

    @ka.streaming_table(layer="silver", schema="event.ddl")
    @ka.expect_or_fail("mostly_positive", "x > 0", above=0.5)
    @ka.expect_or_fail("few_sevens", "x <> 7", above=1)
    def clean(web: Any) -> Any:
        return web

    node = graph_of(settings, web, clean).tables["clean"]
    send("web", ("a", -1), ("b", 7))
    report = run_table(node, spark, settings)
    assert (report.kept, [rule.broken for rule in report.rules]) == (2, [1, 1])
    send("web", ("c", -1), ("d", -1), ("e", -1), ("f", 7), ("g", 7))
    with pytest.raises(ExpectationFailed) as failed:
        run_table(node, spark, settings)
    assert "mostly_positive: 3 of 5 rows" in failed.value.what
    assert "few_sevens: 2 of 5 rows" in failed.value.what
    assert ids(node.path) == ["a", "b"]
