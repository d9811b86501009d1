"""Aggregates of streams: by what their rows are updated, and which have no end."""

from __future__ import annotations

import pytest

from kafka_assets_tests.frontends.sql.helpers import declared, load, refused, table

RAW = "CREATE STREAMING TABLE raw AS SELECT * FROM STREAM read_kafka(subscribe => 'x');"


@pytest.mark.parametrize(
    ("select", "keys"),
    [
        ("key AS k, count(*) AS n FROM STREAM(raw) GROUP BY key", ("k",)),
        ("topic, max(offset) AS n FROM STREAM raw GROUP BY 1", ("topic",)),
        ("window(timestamp, '1 day') AS d, count(*) AS n FROM STREAM raw GROUP BY ALL", None),
        (
            "window(timestamp, '1 day') AS d, count(*) AS n FROM STREAM raw "
            "GROUP BY window(timestamp, '1 day')",
            ("d",),
        ),
        # What is declared in Python may have a watermark, with which windows come to an end.
        ("window(at, '1 day') AS d, max(n) AS n FROM STREAM(v) GROUP BY window(at, '1 day')", ()),
        ("id, count(*) AS n FROM STREAM(viewed) GROUP BY id", ("id",)),
        ("count(*) AS n FROM STREAM(raw)", None),
        ("key, count(*) AS n FROM STREAM(raw) GROUP BY key HAVING count(*) > 1", None),
        ("session_window(timestamp, '5 minutes') AS s, count(*) AS n FROM STREAM(raw) "
         "GROUP BY session_window(timestamp, '5 minutes')", None),
    ],
)  # fmt: skip
def test_an_aggregate_of_a_stream_is_updated_by_what_it_groups_by(
    select: str, keys: tuple[str, ...] | None
) -> None:
    text = f"{RAW} CREATE STREAMING TABLE t AS SELECT {select};"
    if keys is None:
        assert "aggregates a stream that never ends" in str(refused(text))
    else:
        made = declared(text)["t"]
        assert made.keys == keys
        noted = [note.text for note in load(text).notes if "updated by" in note.text]
        assert len(noted) == bool(keys)


def test_a_rule_that_drops_rows_of_an_aggregate_without_an_end_is_refused() -> None:
    text = (
        f"{RAW} CREATE STREAMING TABLE t (CONSTRAINT c EXPECT (n > 1) ON VIOLATION DROP ROW) "
        "AS SELECT key, count(*) AS n FROM STREAM(raw) GROUP BY key;"
    )
    assert "a rule that drops rows would leave old ones" in str(refused(text))


def test_keys_make_an_aggregate_that_is_updated() -> None:
    made = table(
        """
        CREATE STREAMING TABLE t TBLPROPERTIES ('kafka_assets.keys' = 'a, b')
        AS SELECT a, b, count(*) AS n FROM STREAM x GROUP BY a, b
        """
    )
    assert made.keys == ("a", "b")
