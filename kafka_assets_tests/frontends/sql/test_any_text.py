"""Whatever stands in a file, it is declared or refused with its place, and nothing else happens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_assets.errors import DeclarationError
from kafka_assets_tests.frontends.sql.helpers import load

CREATE = "CREATE OR REFRESH REPLACE PRIVATE TEMPORARY STREAMING LIVE TABLE MATERIALIZED VIEW FLOW"
TABLE = (
    "CONSTRAINT EXPECT ON VIOLATION DROP ROW FAIL UPDATE COMMENT TBLPROPERTIES PARTITIONED CLUSTER"
)
CHANGES = "INSERT INTO BY NAME AUTO CDC APPLY CHANGES KEYS SEQUENCE COLUMNS EXCEPT STORED SCD TYPE"
MORE = (
    "TRACK HISTORY IGNORE NULL UPDATES DELETE TRUNCATE WHEN WHERE WITH GROUP UNION ALL JOIN VERSION"
)
SELECT = (
    "AS SELECT * FROM STREAM x y LIVE.x t read_kafka(subscribe=>'x') read_files('x') count(*) INT"
)
SIGNS = (
    """( ) , . ; 'text' "text" = 'kafka_assets.layer' 'gold' 1 2 { } -- /* */ ` ' > IF NOT EXISTS"""
)
WORDS = " ".join((CREATE, TABLE, CHANGES, MORE, SELECT, SIGNS)).split()
WHOLE = (
    "CREATE STREAMING TABLE t ( a INT COMMENT 'b' , CONSTRAINT c EXPECT ( a > 1 ) ON VIOLATION "
    "DROP ROW ) COMMENT 'd' TBLPROPERTIES ( 'e' = 'f' ) AS SELECT * FROM STREAM ( x ) JOIN y",
    "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM ( x ) KEYS ( id ) IGNORE NULL UPDATES APPLY AS "
    "DELETE WHEN a = 1 SEQUENCE BY at COLUMNS * EXCEPT ( a ) STORED AS SCD TYPE 2 TRACK HISTORY "
    "ON b",
    "CREATE FLOW f AS INSERT INTO t BY NAME SELECT a FROM STREAM read_kafka ( subscribe => 'x' )",
)


def tried(text: str) -> None:
    wrong = None
    try:
        load(text)
    except DeclarationError as error:
        wrong = error
    assert wrong is None or ("a.sql:" in wrong.where and wrong.fix), wrong


@given(st.lists(st.sampled_from(WORDS), max_size=25))
@settings(max_examples=400, deadline=None)
def test_any_words_in_any_order(words: list[str]) -> None:
    tried(" ".join(words))


@given(st.sampled_from(WHOLE), st.data())
@settings(max_examples=400, deadline=None)
def test_a_statement_with_words_lost_doubled_or_put_in(text: str, data: st.DataObject) -> None:
    words = text.split(" ")
    at = data.draw(st.integers(0, len(words) - 1))
    until = data.draw(st.integers(at, min(at + 2, len(words))))
    words[at:until] = data.draw(st.lists(st.sampled_from(WORDS), max_size=2))
    tried(" ".join(words))


@pytest.mark.parametrize("text", WHOLE)
def test_a_statement_cut_off_anywhere(text: str) -> None:
    for end in range(len(text)):
        tried(text[:end])
