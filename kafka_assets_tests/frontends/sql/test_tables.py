"""Statements that make tables and views become the declarations that Python makes."""

from __future__ import annotations

from datetime import timedelta

import pytest

import kafka_assets as ka
from kafka_assets.declarations import Table
from kafka_assets.options import JsonOptions
from kafka_assets_tests.frontends.sql.helpers import declared, function_of, load, table


@pytest.mark.parametrize(
    ("create", "kind", "private"),
    [
        ("CREATE OR REFRESH STREAMING TABLE", "streaming_table", False),
        ("CREATE STREAMING TABLE", "streaming_table", False),
        ("create or refresh streaming live table", "streaming_table", False),
        ("CREATE STREAMING TABLE IF NOT EXISTS", "streaming_table", False),
        ("CREATE OR REFRESH PRIVATE STREAMING TABLE", "streaming_table", True),
        ("CREATE TEMPORARY STREAMING LIVE TABLE", "streaming_table", True),
        ("CREATE OR REFRESH MATERIALIZED VIEW", "materialized_view", False),
        ("CREATE MATERIALIZED VIEW", "materialized_view", False),
        ("CREATE PRIVATE MATERIALIZED VIEW", "materialized_view", True),
        ("CREATE OR REFRESH LIVE TABLE", "materialized_view", False),
        ("CREATE LIVE TABLE", "materialized_view", False),
        ("CREATE TEMPORARY VIEW", "temporary_view", False),
        ("CREATE OR REPLACE TEMP VIEW", "temporary_view", False),
        ("CREATE TEMPORARY LIVE VIEW", "temporary_view", False),
        ("CREATE LIVE VIEW", "temporary_view", False),
        ("CREATE TEMPORARY STREAMING LIVE VIEW", "temporary_view", False),
    ],
)
def test_each_form_of_create_makes_its_kind_of_table(create: str, kind: str, private: bool) -> None:
    made = table(f"{create} t AS SELECT * FROM x")
    assert (made.kind, made.options.private, made.upstreams) == (kind, private, ("x",))


def test_what_is_read_by_stream_is_a_stream_and_the_rest_is_read_as_it_is() -> None:
    made = table(
        """
        CREATE STREAMING TABLE t AS
        SELECT * FROM STREAM(a) JOIN STREAM b JOIN STREAM(LIVE.c) JOIN STREAM LIVE.d JOIN e
        JOIN LIVE.f
        """
    )
    assert made.upstreams == ("a", "b", "c", "d", "e", "f")
    assert made.reads == {"e": "static", "f": "static"}


def test_a_materialized_view_reads_all_as_it_is_without_saying_so() -> None:
    assert table("CREATE MATERIALIZED VIEW t AS SELECT * FROM a, b").reads == {}


def test_comments_columns_and_layout_become_options() -> None:
    made = table(
        """
        CREATE STREAMING TABLE t (
          id STRING COMMENT 'names it; really',
          `amount` DECIMAL(10, 2),
          tags ARRAY<STRUCT<a: INT, b: MAP<STRING, INT>>> COMMENT "of it",
          note COMMENT 'free'
        )
        USING DELTA
        PARTITIONED BY (day, `hour`)
        COMMENT 'Orders, checked.'
        TBLPROPERTIES ('delta.appendOnly' = 'true', my.key = 3, "other" 'x')
        AS SELECT * FROM STREAM(raw)
        """
    )
    assert made.comment == "Orders, checked."
    assert made.options.column_comments == {
        "id": "names it; really",
        "tags": "of it",
        "note": "free",
    }
    assert made.options.partition_by == ("day", "hour")
    assert made.options.properties == {"delta.appendOnly": "true", "my.key": "3", "other": "x"}


def test_listed_types_are_what_the_result_is_cast_to() -> None:
    made = table(
        "CREATE STREAMING TABLE t (a INT, bC MAP<STRING,INT>, c) AS SELECT * FROM STREAM x"
    )
    assert function_of(made).columns == (("a", "INT"), ("bC", "MAP<STRING,INT>"), ("c", None))


def test_cluster_by_names_columns() -> None:
    made = table("CREATE STREAMING TABLE t CLUSTER BY (a, b) AS SELECT * FROM STREAM x")
    assert made.options.cluster_by == ("a", "b")


def test_constraints_are_expectations_in_written_order() -> None:
    made = table(
        """
        CREATE STREAMING TABLE t (
          CONSTRAINT kept EXPECT (a > 0),
          id STRING,
          CONSTRAINT dropped EXPECT (b IN (1, 2) AND c != ')') ON VIOLATION DROP ROW,
          CONSTRAINT failed EXPECT (id IS NOT NULL) ON VIOLATION FAIL UPDATE
        ) AS SELECT * FROM STREAM x
        """
    )
    assert [(e.name, e.action, e.rule) for e in made.expectations] == [
        ("kept", "warn", "a > 0"),
        ("dropped", "drop", "b IN (1, 2) AND c != ')'"),
        ("failed", "fail", "id IS NOT NULL"),
    ]
    assert [e.place.line for e in made.expectations] == [3, 5, 6]


def test_columns_can_be_computed_and_rows_held_to_conditions() -> None:
    text = """
        CREATE STREAMING TABLE t (
          id STRING NOT NULL PRIMARY KEY NOT ENFORCED RELY COMMENT 'Names it.',
          at TIMESTAMP FOREIGN KEY REFERENCES times,
          day DATE GENERATED ALWAYS AS (to_date(at)) COMMENT 'Of at.',
          item STRING CONSTRAINT known REFERENCES items (id) NOT ENFORCED,
          CONSTRAINT Positive CHECK (amount > 0) ENFORCED,
          CONSTRAINT key PRIMARY KEY (id, at TIMESERIES) RELY,
          FOREIGN KEY (item) REFERENCES items ON DELETE NO ACTION,
          CONSTRAINT seen EXPECT (at IS NOT NULL)
        ) AS SELECT * FROM STREAM(raw)
        """
    loaded = load(text)
    (made,) = loaded.declarations
    assert isinstance(made, ka.Table)
    assert function_of(made).columns == (("id", "STRING"), ("at", "TIMESTAMP"), ("item", "STRING"))
    assert made.options.generated == {"day": "CAST(to_date(at) AS DATE)"}
    assert made.options.constraints == {"id_not_null": "`id` IS NOT NULL", "positive": "amount > 0"}
    assert made.options.column_comments == {"id": "Names it.", "day": "Of at."}
    assert [(rule.name, rule.action) for rule in made.expectations] == [("seen", "warn")]
    assert [note.text for note in loaded.notes] == [
        "PRIMARY KEY on id is not enforced",
        "FOREIGN KEY REFERENCES times on at is not enforced",
        "REFERENCES items (id) on item is not enforced",
        "PRIMARY KEY (id, at TIMESERIES) is not enforced",
        "FOREIGN KEY (item) REFERENCES items is not enforced",
    ]


def test_our_options_are_properties() -> None:
    made = table(
        """
        CREATE STREAMING TABLE t TBLPROPERTIES (
          'kafka_assets.layer' = 'silver',
          'kafka_assets.schema' = 'x.json',
          'kafka_assets.json.unknown_fields' = 'dead_letter',
          'kafka_assets.freshness' = '10 minutes',
          'kafka_assets.reset_allowed' = false,
          'kafka_assets.owners' = 'team:data, a@b.org',
          'kafka_assets.tags.domain' = 'shop',
          'kafka_assets.path' = 'silver/other',
          'kafka_assets.max_rows_per_batch' = 1000,
          'kafka_assets.max_dead_share' = 0.5,
          'kafka_assets.spark_conf.spark.sql.shuffle.partitions' = 4
        ) AS SELECT * FROM STREAM(raw)
        """
    )
    assert (made.layer, made.schema) == ("silver", "x.json")
    assert made.json == JsonOptions(unknown_fields="dead_letter")
    assert made.freshness == timedelta(minutes=10)
    assert not made.reset_allowed
    assert made.owners == ("team:data", "a@b.org")
    assert made.tags == {"domain": "shop"}
    assert (made.path, made.max_dead_share) == ("silver/other", 0.5)
    assert made.options.max_rows_per_batch == 1000
    assert made.options.spark_conf == {"spark.sql.shuffle.partitions": "4"}
    assert made.options.properties == {}


def test_reset_allowed_has_the_name_that_databricks_gives_it_too() -> None:
    text = "CREATE STREAMING TABLE t TBLPROPERTIES (pipelines.reset.allowed = false) AS SELECT * "
    assert not table(text + "FROM STREAM x").reset_allowed


def test_event_time_and_window_make_a_windowed_table() -> None:
    made = table(
        """
        CREATE STREAMING TABLE t TBLPROPERTIES (
          'kafka_assets.event_time' = 'at', 'kafka_assets.window' = '1 hour'
        ) AS SELECT hour, count(*) AS n FROM STREAM x GROUP BY hour
        """
    )
    assert (made.kind, made.event_time, made.window) == ("windowed_table", "at", "1 hour")


def test_a_change_feed_is_asked_for_by_a_property() -> None:
    text = "CREATE STREAMING TABLE t TBLPROPERTIES ('kafka_assets.reads.x' = 'changes') "
    assert table(text + "AS SELECT * FROM STREAM(x) JOIN y").reads == {
        "x": "changes",
        "y": "static",
    }


@pytest.mark.parametrize(
    ("text", "layer"),
    [
        ("CREATE STREAMING TABLE t AS SELECT * FROM STREAM read_kafka(subscribe => 'x')", "bronze"),
        ("CREATE STREAMING TABLE t AS SELECT * FROM STREAM x", "silver"),
        ("CREATE STREAMING TABLE t AS SELECT a, sum(b) OVER (ORDER BY c) FROM STREAM x", "silver"),
        ("CREATE STREAMING TABLE t AS SELECT a, count(*) FROM STREAM x GROUP BY a", "gold"),
        ("CREATE STREAMING TABLE t AS SELECT max(a) FROM STREAM x", "gold"),
        ("CREATE MATERIALIZED VIEW t AS SELECT * FROM x", "gold"),
        (
            "CREATE MATERIALIZED VIEW t TBLPROPERTIES ('kafka_assets.layer' = 'silver') "
            "AS SELECT * FROM x",
            "silver",
        ),
        (
            "CREATE STREAMING TABLE t TBLPROPERTIES ('quality' = 'gold') AS SELECT * FROM STREAM x",
            "gold",
        ),
        (
            "CREATE STREAMING TABLE t; CREATE FLOW f AS INSERT INTO t BY NAME "
            "SELECT * FROM STREAM read_kafka(subscribe => 'x')",
            "bronze",
        ),
    ],
)
def test_a_layer_that_is_not_said_follows_from_the_select(text: str, layer: str) -> None:
    assert table(text).layer == layer


def test_a_table_that_reads_a_topic_by_name_is_bronze_in_any_file() -> None:
    found = declared(
        "CREATE STREAMING TABLE t AS SELECT * FROM STREAM(orders)",
        "CREATE STREAMING TABLE u AS SELECT * FROM STREAM read_kafka(subscribe => 'orders')",
    )
    assert found["t"].layer == "bronze"


def test_a_table_that_flows_feed_is_bronze_when_one_reads_a_topic_of_another_file() -> None:
    found = declared(
        "CREATE STREAMING TABLE t; CREATE FLOW f AS INSERT INTO t BY NAME SELECT * FROM STREAM k",
        "CREATE STREAMING TABLE u AS SELECT * FROM STREAM read_kafka(subscribe => 'k')",
    )
    assert found["t"].layer == "bronze"


def test_read_kafka_declares_its_topic_once_for_all_files() -> None:
    text = (
        "CREATE STREAMING TABLE {} AS SELECT * FROM STREAM(read_kafka(subscribe => 'Shop.Orders'))"
    )
    found = load(text.format("a"), text.format("b")).declarations
    topics = [one for one in found if isinstance(one, ka.Topic)]
    assert [(one.name, one.topic) for one in topics] == [("shop_orders", "Shop.Orders")]
    assert [one.upstreams for one in found if isinstance(one, ka.Table)] == [("shop_orders",)] * 2


def test_a_topic_that_python_declares_is_used_by_its_name_there() -> None:
    topic = ka.kafka_topic("orders", name="shop")
    text = "CREATE STREAMING TABLE t AS SELECT * FROM STREAM read_kafka(subscribe => 'orders')"
    (made,) = load(text, topics=(topic,)).declarations
    assert isinstance(made, ka.Table)
    assert made.upstreams == ("shop",)


def test_brokers_in_the_text_are_noted_not_used() -> None:
    text = """
        CREATE STREAMING TABLE t AS
        SELECT * FROM STREAM read_kafka(bootstrapServers => 'far:9092', subscribe => 'x')
        """
    (note,) = load(text).notes
    assert note.servers == "far:9092"
    assert note.place.line == 3
    assert "far:9092 are not used" in str(note)


def test_records_of_a_batch_and_values_that_always_hold_are_kept() -> None:
    made = table(
        """
        CREATE STREAMING TABLE t AS SELECT * FROM STREAM read_kafka(
          subscribe => 'x', startingOffsets => 'earliest', failOnDataLoss => true,
          maxOffsetsPerTrigger => 500)
        """
    )
    assert made.options.max_rows_per_batch == 500


def test_read_kafka_alone_is_a_stream_with_the_word_or_without() -> None:
    loaded = load("CREATE STREAMING TABLE t AS SELECT * FROM read_kafka(subscribe => 'x')")
    (made,) = [one for one in loaded.declarations if isinstance(one, ka.Table)]
    assert made.reads == {}
    assert [note.text[:10] for note in loaded.notes] == ["read_kafka"]


def test_catalogs_and_schemas_are_noted_and_left_off() -> None:
    loaded = load("CREATE STREAMING TABLE main.shop.t AS SELECT * FROM STREAM(main.shop.x)")
    (made,) = loaded.declarations
    assert isinstance(made, ka.Table)
    assert (made.name, made.upstreams) == ("t", ("x",))
    assert [note.text.split()[0] for note in loaded.notes] == ["main.shop.t", "main.shop.x"]


def test_comments_semicolons_in_strings_and_empty_statements_are_read_as_sql_means_them() -> None:
    found = declared(
        """
        -- the first; not the last
        CREATE STREAMING TABLE a AS SELECT ';' AS semi, "--" AS dash FROM STREAM x; ;
        /* CREATE STREAMING TABLE no; */
        CREATE /* here too */ STREAMING TABLE b -- and here
        AS SELECT * FROM STREAM `y`;
        """
    )
    assert list(found) == ["a", "b"]
    assert found["b"].upstreams == ("y",)


def test_names_mean_the_same_in_any_case() -> None:
    made = table("CREATE STREAMING TABLE Orders AS SELECT * FROM STREAM(LIVE.Raw)", "orders")
    assert made.upstreams == ("raw",)


def test_a_declaration_knows_file_line_and_column() -> None:
    made = table("\n  CREATE STREAMING TABLE t AS SELECT * FROM STREAM x")
    assert (made.place.line, made.place.column) == (2, 1)
    assert made.place.file.endswith("a.sql")


FROM_DATABRICKS = """
CREATE OR REFRESH STREAMING TABLE raw CLUSTER BY AUTO
TBLPROPERTIES ('pipelines.autoOptimize.managed' = 'true', 'quality' = 'bronze')
AS SELECT * FROM STREAM read_kafka(
  bootstrapServers => 'b:9092', subscribe => 'x', startingOffsets => 'latest',
  failOnDataLoss => false, `kafka.security.protocol` => 'SASL_SSL',
  `kafka.sasl.jaas.config` => 'Module required password="hunter2";');

CREATE TEMPORARY STREAMING LIVE VIEW checked (
  CONSTRAINT `Valid id` EXPECT (key IS NOT NULL) ON VIOLATION DROP ROW
) AS SELECT * FROM STREAM(LIVE.raw);

CREATE LIVE VIEW sums (CONSTRAINT some EXPECT (n > 0)) AS
SELECT count(*) AS n FROM LIVE.checked;
"""


def test_what_only_databricks_has_is_noted_and_the_program_taken_as_it_is() -> None:
    found = load(FROM_DATABRICKS)
    tables = {one.name: one for one in found.declarations if isinstance(one, Table)}
    assert {name: one.kind for name, one in tables.items()} == {
        "raw": "streaming_table",
        "checked": "streaming_table",
        "sums": "materialized_view",
    }
    assert [name for name, one in tables.items() if one.options.private] == ["checked", "sums"]
    (rule,) = tables["checked"].expectations
    assert (rule.name, rule.action) == ("valid_id", "drop")
    noted = "\n".join(note.text for note in found.notes)
    for said in (
        "the property 'pipelines.autoOptimize.managed' means nothing outside of Databricks",
        "CLUSTER BY AUTO: nobody chooses columns here",
        "read_kafka's startingoffsets is always 'earliest'",
        "read_kafka's failondataloss is always 'true'",
        "read_kafka's kafka.security.protocol is not used",
        "the view 'checked' becomes a private table",
        "the view 'sums' becomes a private table",
        "the expectation 'Valid id' is named 'valid_id'",
    ):
        assert said in noted
    assert "hunter2" not in noted
