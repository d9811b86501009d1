"""What cannot be mapped is refused by its name, with file, line, column and the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_assets.errors import DeclarationError
from kafka_assets.frontends.sql import load_sql
from kafka_assets_tests.frontends.sql.helpers import refused

STREAMING = "CREATE STREAMING TABLE t AS SELECT * FROM "
PROPERTIES = "CREATE STREAMING TABLE t TBLPROPERTIES ({}) AS SELECT * FROM STREAM x"
COLUMNS = "CREATE STREAMING TABLE t ({}) AS SELECT * FROM STREAM x"


def test_an_error_names_file_line_and_column_and_shows_the_text() -> None:
    error = refused("-- orders\nCREATE STREAMING TABLE t\n\tCLUSTRED BY (a)\nAS SELECT * FROM x")
    file = error.where.rsplit(":", 2)[0]
    assert file.endswith("a.sql")
    assert error.where == f"{file}:3:2"
    assert str(error).splitlines() == [
        f"table 't' ({file}:3:2): the clause CLUSTRED does not exist here",
        "  3 | \tCLUSTRED BY (a)",
        "      \t^",
        "To fix: use COMMENT, TBLPROPERTIES, PARTITIONED BY, CLUSTER BY, AS SELECT, or remove it",
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SELECT 1", "SELECT is no statement that declares something"),
        ("USE CATALOG main", "USE is no statement"),
        ("SET a = b", "SET is no statement"),
        ("INSERT INTO t SELECT 1", "INSERT is no statement"),
        ("CREATE TABLE t (a INT)", "CREATE TABLE declares nothing of a pipeline"),
        ("CREATE VIEW v AS SELECT 1", "CREATE VIEW declares nothing of a pipeline"),
        ("CREATE OR REPLACE FUNCTION f() RETURNS INT", "CREATE OR REPLACE declares nothing"),
        ("CREATE OR REPLACE STREAMING TABLE t AS SELECT 1", "OR REPLACE does not fit here"),
        ("CREATE TEMPORARY STREAMING TABLE t AS SELECT 1", "TEMPORARY does not fit here"),
        ("CREATE PRIVATE TEMPORARY VIEW t AS SELECT 1", "declares nothing of a pipeline"),
        ("CREATE MATERIALIZED VIEW t", "has no AS SELECT"),
        ("CREATE STREAMING TABLE", "ends where a name should come"),
        ("CREATE STREAMING TABLE 'x'", "\"'x'\" stands where a name should"),
        ("CREATE STREAMING TABLE t AS INSERT INTO x", "'INSERT' stands where a SELECT should"),
        ("CREATE STREAMING TABLE t COMMENT 'a' COMMENT 'b'", "COMMENT is said twice"),
        ("CREATE STREAMING TABLE t LOCATION '/x'", "the clause LOCATION does not exist here"),
        ("CREATE STREAMING TABLE t SCHEDULE EVERY 1 HOUR", "the clause SCHEDULE does not exist"),
        ("CREATE STREAMING TABLE t USING PARQUET", "USING PARQUET: every table is Delta"),
        ("CREATE STREAMING TABLE t CLUSTER BY AUTO", "AUTO is no list of columns"),
        ("CREATE STREAMING TABLE t (CONSTRAINT p EXPECT (a > 1", "this bracket is not closed"),
        ("CREATE STREAMING TABLE t FLOW INSERT", "stands where AUTO CDC should"),
        ("CREATE STREAMING TABLE My-Table AS SELECT 1", "the clause - does not exist here"),
        ("CREATE STREAMING TABLE `my table`;", "'my table' is not snake_case"),
        ("CREATE STREAMING TABLE _t;", "'_t' is not snake_case"),
        (
            "CREATE STREAMING TABLE t PARTITIONED BY (a) CLUSTER BY (b)",
            "partition_by= and cluster_by= exclude each other",
        ),
    ],
)
def test_statements_and_clauses_of_other_worlds_are_refused(text: str, what: str) -> None:
    error = refused(text)
    assert what in str(error)
    assert f"\n  1 | {text}\n" in str(error)


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ("a INT NOT NULL", "NOT on the column 'a' cannot be kept"),
        ("a INT GENERATED ALWAYS AS (b)", "GENERATED on the column 'a' cannot be kept"),
        ("a INT DEFAULT 3", "DEFAULT on the column 'a' cannot be kept"),
        ("a INT MASK f", "MASK on the column 'a' cannot be kept"),
        ("a INT, A INT", "the column 'a' is listed twice"),
        ("a FOO", "'FOO' is no type"),
        ("a INT BAR", "'INT BAR' is no type"),
        ("a.b INT", "a column's name has no dots"),
        ("CONSTRAINT p PRIMARY KEY (a)", "CONSTRAINT p PRIMARY KEY cannot be kept"),
        ("CONSTRAINT p EXPECT a > 1", "'a' stands where ( should"),
        ("CONSTRAINT p EXPECT (a > 1) ON VIOLATION IGNORE", "DROP ROW or FAIL UPDATE should"),
        ("CONSTRAINT p EXPECT (a >)", "is not a valid SQL condition"),
        ("CONSTRAINT p EXPECT (a IN (SELECT 1))", "may not read other tables"),
        ("CONSTRAINT p EXPECT (a > 1), CONSTRAINT p EXPECT (b > 1)", "two expectations named 'p'"),
    ],
)
def test_columns_and_constraints_that_cannot_be_kept_are_refused(columns: str, what: str) -> None:
    assert what in str(refused(COLUMNS.format(columns)))


@pytest.mark.parametrize(
    ("properties", "what"),
    [
        ("'kafka_assets.layr' = 'gold'", "did you mean 'kafka_assets.layer'?"),
        ("'kafka_assets.zzz' = 'gold'", "there is no property 'kafka_assets.zzz'"),
        ("'kafka_assets.layer' = 'iron'", "layer='iron' does not exist"),
        ("'kafka_assets.freshness' = 'soon'", "write a number and a unit"),
        ("'kafka_assets.freshness' = '1 second'", "shorter than a minute"),
        ("'kafka_assets.reset_allowed' = 'no'", "write true or false"),
        ("'kafka_assets.max_rows_per_batch' = 'all'", "write a whole number"),
        ("'kafka_assets.max_dead_share' = 2", "is no share"),
        ("'kafka_assets.json.unknown_fields' = 'x'", "choose one of ignore, dead_letter"),
        ("'kafka_assets.json.nothing' = 'x'", "there is no property 'kafka_assets.json.nothing'"),
        ("'kafka_assets.json.unknown_fields' = 'ignore'", "json= without schema="),
        ("'kafka_assets.window' = '1 hour'", "without 'kafka_assets.event_time'"),
        (
            "'kafka_assets.window' = 'hourly', 'kafka_assets.event_time' = 'a'",
            "is no length of time",
        ),
        ("'kafka_assets.reads.x' = 'twice'", "does not fit what the SELECT reads"),
        ("'kafka_assets.reads.y' = 'changes'", "does not fit what the SELECT reads"),
        ("'pipelines.autoOptimize.zOrderCols' = 'a'", "means nothing outside of Databricks"),
        ("'a' = 'b', 'a' = 'c'", "the property 'a' is given twice"),
        ("'a' = current_date()", "stands where the value of 'a' should"),
    ],
)
def test_properties_that_mean_nothing_are_refused(properties: str, what: str) -> None:
    assert what in str(refused(PROPERTIES.format(properties)))


@pytest.mark.parametrize(
    ("relation", "what"),
    [
        ("STREAM read_files('/data', format => 'json')", "nothing says which columns its json"),
        ("STREAM(cloud_files('/data', 'xml'))", "there is no format 'xml'"),
        ("STREAM read_files('/data', 'text', mutiline => true)", "the option mutiline='true' can"),
        ("STREAM read_files('/data', 'text', lineSep => concat('a'))", "is no plain value"),
        ("STREAM read_files('/data', 'text', 'more')", "is no plain value"),
        ("STREAM read_files(format => 'text')", "read_files: names no folder"),
        (
            "STREAM cloud_files('/d', 'text', map('cloudFiles.includeExistingFiles', 'false'))",
            "cloudFiles.includeExistingFiles => 'false': a table has the rows of all files that "
            "are there",
        ),
        (
            "STREAM read_files('/d', 'text', rescuedDataColumn => '_rescued_data')",
            "rescuedDataColumn => '_rescued_data': text files have no such column here",
        ),
        (
            "STREAM read_files('/d', 'text') JOIN STREAM read_files('/d', 'binaryFile')",
            "/d is read in another way at",
        ),
        ("STREAM read_kinesis(stream => 'x')", "the function read_kinesis(...) cannot stand"),
        ("IDENTIFIER('x')", "the function identifier(...) cannot stand"),
        ("STREAM(x) VERSION AS OF 3", "its SELECT cannot be read: Invalid expression"),
        ("STREAM x TIMESTAMP AS OF '2026-01-01'", "x is read at a version"),
        ("STREAM x WITH ('a' = 'b')", "its SELECT cannot be read: Expecting )"),
        ("x VERSION AS OF 3", "x is read at a version"),
        ("delta.`/data/x`", "the path /data/x is no table of this pipeline"),
        ("STREAM x JOIN x AS y", "reads x once as a stream and once as it is"),
        ("STREAM(x AS y)", "STREAM(...) holds more than a name"),
        ("STREAM(SELECT * FROM x)", "STREAM of what is no topic, table or view"),
        ("(WITH w AS (SELECT * FROM x) SELECT * FROM STREAM(w))", "STREAM of what is no topic"),
        ("range(3)", "its SELECT reads no topic and no table"),
        ("STREAM x WHERE", "its SELECT cannot be read: Required keyword: 'this' missing"),
        ("STREAM x WATERMARK at DELAY OF INTERVAL 1 HOUR", "WATERMARK: Spark's SQL has no such"),
        ("STREAM read_kafka('x')", "read_kafka: 'x' has no name"),
        ("STREAM read_kafka(topic => 'x')", "read_kafka: the option topic cannot be kept"),
        ("STREAM read_kafka()", "read_kafka: names no topic"),
        ("STREAM read_kafka(subscribe => 'a,b')", "subscribe => 'a,b' names several topics"),
        ("STREAM read_kafka(subscribe => 'a b')", "is no legal Kafka topic name"),
        ("STREAM read_kafka(subscribe => concat('a'))", "subscribe is no plain value"),
        (
            "STREAM read_kafka(subscribe => 'a', startingOffsets => 'latest')",
            "startingoffsets => 'latest': a table has all that the topic holds",
        ),
    ],
)
def test_what_nothing_here_can_read_is_refused(relation: str, what: str) -> None:
    assert what in str(refused(STREAMING + relation))


def test_the_place_of_what_a_select_reads_is_its_own() -> None:
    error = refused("CREATE STREAMING TABLE t AS\nSELECT *\n  FROM STREAM read_files('/x')")
    assert error.where.endswith("a.sql:3:15")


def test_the_place_of_a_parse_error_is_where_the_parser_stopped() -> None:
    error = refused(
        "CREATE STREAMING TABLE a AS SELECT * FROM STREAM x;\n"
        "CREATE STREAMING TABLE t AS\nSELECT (a FROM x"
    )
    assert error.where.endswith("a.sql:3:11")
    assert "3 | SELECT (a FROM x" in str(error)


def test_a_stream_in_a_materialized_view_is_refused() -> None:
    error = refused("CREATE MATERIALIZED VIEW t AS SELECT * FROM STREAM(x)")
    assert "STREAM in a materialized view" in str(error)


@pytest.mark.parametrize(
    ("view", "what"),
    [
        ("(CONSTRAINT ok EXPECT (a > 0))", "put the expectation on the tables that read the view"),
        ("(a COMMENT 'x')", "a list of columns on a view"),
        ("TBLPROPERTIES ('a' = 'b')", "TBLPROPERTIES on a view"),
        ("PARTITIONED BY (a)", "PARTITIONED BY on a view"),
    ],
)
def test_a_view_has_no_rows_and_no_files_of_its_own(view: str, what: str) -> None:
    assert what in str(refused(f"CREATE TEMPORARY VIEW v {view} AS SELECT * FROM x"))


@pytest.mark.parametrize("open_end", ["'abc", '"abc', "`abc", "/* abc"])
def test_what_does_not_end_is_refused_with_its_file(open_end: str) -> None:
    error = refused(f"CREATE STREAMING TABLE t AS SELECT {open_end}")
    assert "a.sql:1:" in error.where


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.sql"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DeclarationError, match="cannot be read"):
        load_sql(file)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TEMPORARY VIEW v AS SELECT * FROM STREAM read_kafka({})",
        "CREATE STREAMING TABLE t TBLPROPERTIES ('kafka_assets.max_rows_per_batch' = 3) AS "
        "SELECT * FROM STREAM read_kafka({})",
    ],
)
def test_the_size_of_batches_is_said_once_and_where_they_are_written(text: str) -> None:
    error = refused(text.format("subscribe => 'x', maxOffsetsPerTrigger => 5"))
    assert "maxOffsetsPerTrigger here" in str(error)


def test_options_of_a_function_do_not_fit_a_table_that_flows_feed() -> None:
    error = refused("CREATE STREAMING TABLE t TBLPROPERTIES ('kafka_assets.schema' = 'x.json')")
    assert "'kafka_assets.schema' on a table that flows feed" in str(error)
