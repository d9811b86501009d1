"""SQL texts of programs: which tables they name, and what Spark is asked instead."""

from __future__ import annotations

import pytest

from kafka_assets.frontends.programs.queries import Query, parsed, with_views


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("SELECT * FROM LIVE.a", Query({"LIVE.a": False})),
        ("SELECT * FROM STREAM(LIVE.a) s", Query({"LIVE.a": True})),
        ("SELECT * FROM stream a JOIN b USING (id)", Query({"a": True, "b": False})),
        ("WITH x AS (SELECT * FROM a) SELECT * FROM x", Query({"a": False})),
        (
            "SELECT a.id AS k, to_date(at) AS day, sum(n) FROM a GROUP BY a.id, 2",
            Query({"a": False}, ("k", "day"), True),
        ),
        ("SELECT sum(n) FROM a GROUP BY id", Query({"a": False}, None, True)),
        ("SELECT max(n) OVER (ORDER BY at) AS m FROM a", Query({"a": False})),
        (
            "SELECT window.start AS w, count(1) FROM STREAM(a) GROUP BY window(at, '1 hour')",
            Query({"a": True}, None, True),
        ),
    ],
)
def test_the_tables_and_groups_of_a_query_are_known(text: str, query: Query) -> None:
    assert parsed(text) == query


@pytest.mark.parametrize("text", ["SET x = 1", "CREATE TABLE a AS SELECT 1", "SELECT 1; SELECT 2"])
def test_what_is_not_one_query_is_none(text: str) -> None:
    assert parsed(text) is None


def test_tables_of_the_program_become_views_and_all_else_stays_as_it_is() -> None:
    text = (
        "SELECT a.live, 'LIVE.a' AS t -- from LIVE.a\nFROM STREAM(LIVE.a) JOIN m.s.b ON a.x = b.x,"
        " stream c WHERE b.a > 1"
    )
    assert with_views(text, {"LIVE.a": "a", "m.s.b": "b", "c": "c"}) == (
        "SELECT a.live, 'LIVE.a' AS t -- from LIVE.a\nFROM `a` JOIN `b` ON a.x = b.x,"
        " `c` WHERE b.a > 1"
    )
