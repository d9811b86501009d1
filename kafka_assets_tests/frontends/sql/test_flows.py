"""Flows and changes in SQL become the declarations that Python makes."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import kafka_assets as ka
from kafka_assets.declarations import Changes
from kafka_assets.declarations.places import DECLARED
from kafka_assets.graph import build_graph
from kafka_assets_tests.frontends.sql.helpers import declared, flow, function_of, load, refused

TARGET = "CREATE OR REFRESH STREAMING TABLE target;"


def test_a_table_without_a_select_waits_for_flows() -> None:
    made = declared("CREATE STREAMING TABLE t (CONSTRAINT ok EXPECT (a > 0)) COMMENT 'x'")["t"]
    assert made.waits_for_flows
    assert [e.name for e in made.expectations] == ["ok"]


def test_an_insert_flow_feeds_its_target() -> None:
    made = flow(
        "CREATE FLOW f COMMENT 'Brings orders.' AS INSERT INTO LIVE.target BY NAME "
        "SELECT * FROM STREAM(a) JOIN b"
    )
    assert (made.name, made.target, made.upstreams) == ("f", "target", ("a", "b"))
    assert made.reads == {"b": "static"}
    assert not made.once
    assert made.function.__doc__ == "Brings orders."


def test_a_flow_may_run_once() -> None:
    assert flow("CREATE FLOW f AS INSERT INTO ONCE t BY NAME SELECT * FROM STREAM a").once


@pytest.mark.parametrize(
    ("select", "reads"),
    [
        ("SELECT * FROM a", {}),
        ("SELECT * FROM a JOIN b USING (id)", {"b": "static"}),
        ("SELECT * FROM b WHERE id IN (SELECT id FROM STREAM a)", {"b": "static"}),
        ("SELECT * FROM a UNION ALL SELECT * FROM LIVE.A", {}),
    ],
)
def test_what_a_flow_that_runs_once_reads_first_as_a_whole_is_read_as_a_stream(
    select: str, reads: dict[str, str]
) -> None:
    made = flow(f"CREATE FLOW f AS INSERT INTO ONCE t BY NAME {select}")
    assert made.once
    assert made.reads == reads
    again = flow("CREATE FLOW f AS INSERT INTO t BY NAME SELECT * FROM a")
    assert again.reads == {"a": "static"}


def test_a_flow_that_runs_once_fits_into_a_graph(tmp_path: Path) -> None:
    found = load(
        "CREATE STREAMING TABLE a AS SELECT * FROM STREAM read_kafka(subscribe => 'x');"
        "CREATE STREAMING TABLE c;"
        "CREATE FLOW f AS INSERT INTO ONCE c BY NAME SELECT * FROM a"
    )
    module = ModuleType("shop")
    vars(module)[DECLARED] = list(found.declarations)
    graph = build_graph([module], ka.Settings(lake=str(tmp_path)))
    assert [part.flow.once for part in graph.tables["c"].parts if part.flow] == [True]


def test_a_flows_result_is_cast_to_the_types_that_its_target_lists() -> None:
    made = flow(
        "CREATE FLOW f AS INSERT INTO t BY NAME SELECT * FROM STREAM a;"
        "CREATE STREAMING TABLE t (a INT, b STRING)"
    )
    assert function_of(made).columns == (("a", "INT"), ("b", "STRING"))


@pytest.mark.parametrize(
    "head",
    [
        "CREATE FLOW f AS AUTO CDC INTO target",
        "CREATE FLOW f AS APPLY CHANGES INTO LIVE.target",
    ],
)
@pytest.mark.parametrize("source", ["STREAM(src)", "STREAM src", "stream(LIVE.src)"])
def test_changes_are_read_in_both_words(head: str, source: str) -> None:
    made = flow(f"{head} FROM {source} KEYS (id) SEQUENCE BY at")
    assert (made.name, made.target, made.upstreams) == ("f", "target", ("src",))
    assert made.changes == Changes(keys=("id",), sequence_by="at")


def test_every_clause_of_changes_is_kept() -> None:
    made = flow(
        """
        CREATE FLOW f AS AUTO CDC INTO target FROM STREAM(src)
        KEYS (id, `orderRegion`)
        IGNORE NULL UPDATES
        APPLY AS DELETE WHEN op = 'DELETE' OR (op = 'SEQUENCE BY')
        APPLY AS TRUNCATE WHEN op = "TRUNCATE"
        SEQUENCE BY struct(at, n)
        COLUMNS * EXCEPT (op, at)
        STORED AS SCD TYPE 1
        """
    )
    assert made.changes == Changes(
        keys=("id", "orderRegion"),
        sequence_by="struct(at, n)",
        apply_as_deletes="op = 'DELETE' OR (op = 'SEQUENCE BY')",
        apply_as_truncates='op = "TRUNCATE"',
        except_columns=("op", "at"),
        ignore_null_updates=True,
    )


@pytest.mark.parametrize(
    ("track", "some", "others"),
    [("a, b", ("a", "b"), ()), ("(a)", ("a",), ()), ("* EXCEPT (c)", None, ("c",))],
)
def test_history_is_kept_of_the_columns_that_are_tracked(
    track: str, some: tuple[str, ...] | None, others: tuple[str, ...]
) -> None:
    made = flow(
        "APPLY CHANGES INTO target FROM STREAM(src) KEYS (id) SEQUENCE BY at COLUMNS (id, a, b) "
        f"STORED AS SCD TYPE 2 TRACK HISTORY ON {track}"
    )
    assert made.changes is not None
    assert (made.changes.scd_type, made.changes.columns) == (2, ("id", "a", "b"))
    assert (made.changes.track_history, made.changes.track_history_except) == (some, others)


def test_changes_without_a_flows_name_are_named_after_their_target() -> None:
    assert (
        flow("APPLY CHANGES INTO target FROM STREAM(s) KEYS (id) SEQUENCE BY at").name == "target"
    )


def test_a_table_may_say_its_changes_itself() -> None:
    found = load(
        "CREATE STREAMING TABLE t COMMENT 'x' FLOW AUTO CDC FROM STREAM(s) KEYS (id) SEQUENCE BY n"
    ).declarations
    made, changes = found
    assert isinstance(made, ka.Table)
    assert isinstance(changes, ka.Flow)
    assert (made.name, changes.target, changes.upstreams) == ("t", "t", ("s",))


@pytest.mark.parametrize(
    ("clauses", "what"),
    [
        ("SEQUENCE BY at", "has no KEYS"),
        ("KEYS (id)", "has no SEQUENCE BY"),
        ("KEYS (id) KEYS (id) SEQUENCE BY at", "KEYS is said twice"),
        ("KEYS (id) WHERE a > 1 SEQUENCE BY at", "the clause WHERE does not exist in changes"),
        ("KEYS (id) SEQUENCE BY at STORED AS SCD TYPE 3", "SCD TYPE 3 does not exist"),
        ("KEYS (id) SEQUENCE BY", "ends where an expression should come"),
        ("KEYS (id) SEQUENCE BY at +", "'at +' is no expression"),
        ("KEYS (id) APPLY AS DELETE WHEN a > SEQUENCE BY at", "'a >' is no expression"),
        ("KEYS (id) SEQUENCE BY at APPLY AS DELETE WHEN count(a) > 1", "no aggregates"),
        ("KEYS (id) SEQUENCE BY at TRACK HISTORY ON a", "keeps no history"),
        ("KEYS () SEQUENCE BY at", "')' stands where a key column should"),
        (
            "KEYS (id) SEQUENCE BY at STORED AS SCD TYPE 2 APPLY AS TRUNCATE WHEN a = 1",
            "apply_as_truncates on a table that keeps history",
        ),
    ],
)
def test_changes_that_cannot_be_applied_are_refused(clauses: str, what: str) -> None:
    error = refused(f"{TARGET}\nAUTO CDC INTO target FROM STREAM(s) {clauses}")
    assert what in str(error)
    assert "a.sql:2:" in error.where
    assert "2 | AUTO CDC INTO target" in str(error)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("AUTO CDC INTO t FROM src KEYS (id) SEQUENCE BY at", "not from src"),
        ("AUTO CDC INTO t FROM STREAM(read_kafka(subscribe => 'x')) KEYS (a)", "from one table"),
        ("AUTO CDC FROM SNAPSHOT s KEYS (id)", "changes FROM cannot be applied here"),
        ("CREATE FLOW f AS AUTO CDC ONCE INTO t FROM STREAM(s)", "changes ONCE cannot"),
        ("CREATE FLOW f COMMENT 'x' AS AUTO CDC INTO t FROM STREAM(s)", "COMMENT on a flow"),
        ("CREATE FLOW f AS INSERT INTO t SELECT * FROM STREAM(s)", "should come BY NAME"),
        ("CREATE FLOW f AS SELECT 1", "stands where INSERT INTO should"),
        (
            "CREATE STREAMING TABLE t (id INT); AUTO CDC INTO t FROM STREAM(s) KEYS (id) "
            "SEQUENCE BY at",
            "lists id INT",
        ),
        (
            "CREATE FLOW f AS INSERT INTO t BY NAME SELECT * FROM STREAM read_kafka("
            "subscribe => 'x', maxOffsetsPerTrigger => 5)",
            "maxOffsetsPerTrigger here: the table that is written",
        ),
    ],
)
def test_flows_that_mean_nothing_here_are_refused(text: str, what: str) -> None:
    error = refused(text)
    words = what.replace("should come BY NAME", "stands where BY NAME should")
    assert words in str(error)
