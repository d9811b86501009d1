"""Names with catalogs and schemas in the graph's flat space, in programs and in SQL."""

from __future__ import annotations

from pathlib import Path

from kafka_assets.frontends.names import may_mean, meant, told_apart
from kafka_assets_tests.frontends.shown import START, edges, load, notes, refused, tables
from kafka_assets_tests.frontends.sql import helpers as sql

BRONZE, SILVER, PLAIN = ("bronze", "orders"), ("shop", "silver", "orders"), ("orders",)

ORDERS = """
CREATE STREAMING TABLE bronze.orders AS SELECT * FROM STREAM read_kafka(subscribe => 'shop-orders');
CREATE STREAMING TABLE silver.orders AS SELECT orders.key FROM STREAM(bronze.orders);
CREATE STREAMING TABLE audit;
CREATE FLOW audited AS INSERT INTO audit BY NAME SELECT key FROM STREAM({});
CREATE STREAMING TABLE gold.orders;
CREATE FLOW newest AS AUTO CDC INTO gold.orders FROM STREAM({}) KEYS (key) SEQUENCE BY key;
"""


def test_names_that_end_alike_are_as_long_as_keeps_them_apart() -> None:
    assert told_apart([BRONZE, SILVER, ("a",)]) == {
        BRONZE: "bronze_orders",
        SILVER: "silver_orders",
    }
    assert told_apart([("a", "s", "x"), ("b", "s", "x")]) == {
        ("a", "s", "x"): "a_s_x",
        ("b", "s", "x"): "b_s_x",
    }
    assert told_apart([BRONZE, BRONZE]) == {}
    assert told_apart([PLAIN, BRONZE]) == {PLAIN: "orders", BRONZE: "bronze_orders"}


def test_a_name_means_the_table_whose_name_it_ends_or_that_ends_it() -> None:
    apart = told_apart([BRONZE, SILVER])
    assert meant(("silver", "orders"), apart) == SILVER
    assert meant(("shop", "bronze", "orders"), apart) == BRONZE
    assert meant(PLAIN, apart) is None
    assert may_mean(PLAIN, apart) == ["bronze.orders", "shop.silver.orders"]
    assert meant(PLAIN, told_apart([PLAIN, BRONZE])) == PLAIN
    assert meant(("other",), apart) is None
    assert may_mean(("other",), apart) == []


def test_a_program_with_one_name_in_several_schemas() -> None:
    loaded = load("schemas_of_one_name.py")
    assert tables(loaded) == {
        "bronze_orders": "bronze streaming_table",
        "silver_orders": "silver streaming_table",
        "gold_orders": "gold materialized_view",
        "audit": "silver streaming_table",
    }
    assert edges(loaded) == {
        ("shop_orders", "bronze_orders"),
        ("bronze_orders", "silver_orders"),
        ("silver_orders", "gold_orders"),
        ("bronze_orders", "gold_orders"),
        ("silver_orders", "audit"),
    }
    assert "8: 'bronze.orders' is named 'bronze_orders'" in notes(loaded)


def test_a_name_that_several_schemas_have_is_refused_where_it_is_read_alone(
    tmp_path: Path,
) -> None:
    text = START + (
        "import pyspark.sql.functions as F\n"
        "@dlt.table(name='a.t')\n"
        "def a(): return spark.readStream.format('kafka').option('subscribe', 'x').load()\n"
        "@dlt.table(name='b.t')\n"
        "def b(): return dlt.read_stream('a.t')\n"
        "@dlt.table\n"
        "def c(): return dlt.read_stream('t')\n"
    )
    assert refused(tmp_path, text) == ["program.py:9: reads 't', which may be a.t or b.t"]


def test_sql_with_one_name_in_several_schemas() -> None:
    found = sql.declared(ORDERS.format("main.silver.orders", "silver.orders"))
    assert {name: getattr(one, "upstreams", ()) for name, one in found.items()} == {
        "shop_orders": (),
        "bronze_orders": ("shop_orders",),
        "silver_orders": ("bronze_orders",),
        "audit": (),
        "audited": ("silver_orders",),
        "gold_orders": (),
        "newest": ("silver_orders",),
    }
    noted = [note.text for note in sql.load(ORDERS.format("silver.orders", "silver.orders")).notes]
    assert noted[0].startswith("bronze.orders is the table bronze_orders")


def test_sql_that_reads_a_name_of_several_schemas_alone_is_refused() -> None:
    error = sql.refused(ORDERS.format("orders", "silver.orders"))
    assert "orders may be bronze.orders or silver.orders or gold.orders" in error.what
    assert "a.sql:5:66" in error.where
    assert "flow 'newest'" in str(sql.refused(ORDERS.format("audit", "orders")))
