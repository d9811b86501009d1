"""Names with catalogs and schemas in the graph's flat space, in programs and in SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import kafka_assets as ka
from kafka_assets.errors import DeclarationError, PlaceChanged
from kafka_assets.frontends.names import may_mean, meant, told_apart
from kafka_assets.frontends.programs import load_program
from kafka_assets.graph import Graph, build_graph
from kafka_assets.settings import Settings
from kafka_assets.streaming.places import keep_place, refuse_other_place
from kafka_assets_tests.frontends.shown import (
    START,
    edges,
    load,
    notes,
    refused,
    tables,
    written,
)
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
    both = told_apart([PLAIN, BRONZE])
    assert meant(PLAIN, both) == PLAIN
    assert meant(("main", "bronze", "orders"), both) == BRONZE
    # Another schema is no table of the text, and what it is, is not for names to say.
    for other in (("other",), ("crm", "orders")):
        assert meant(other, apart) is None
        assert may_mean(other, apart) == []


def test_an_author_may_say_what_a_table_is_called() -> None:
    assert told_apart([BRONZE, SILVER], {"bronze.orders": "orders"}) == {
        BRONZE: "orders",
        SILVER: "silver_orders",
    }


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


TWO = (
    "@dlt.table(name='orders')\n"
    "def a(): return spark.readStream.format('kafka').option('subscribe', 'x').load()\n"
    "@dlt.table(name='bronze.orders')\n"
    "def b(): return dlt.read_stream('orders')\n"
)


def test_a_whole_name_means_its_table_also_beside_one_without_a_schema(tmp_path: Path) -> None:
    text = TWO + (
        "@dlt.table\n"
        "def c(): return spark.readStream.table('main.bronze.orders')\n"
        "dlt.create_streaming_table('kept')\n"
        "dlt.apply_changes('kept', 'main.bronze.orders', ['k'], sequence_by='s')\n"
    )
    found = edges(written(tmp_path, START + text))
    assert {up for up, table in found if table in ("c", "kept")} == {"bronze_orders"}


def test_a_flow_into_a_name_of_several_schemas_is_refused(tmp_path: Path) -> None:
    text = START + (
        "dlt.create_streaming_table('a.t')\n"
        "dlt.create_streaming_table('b.t')\n"
        "@dlt.append_flow(target='t')\n"
        "def f(): return spark.readStream.format('kafka').option('subscribe', 'x').load()\n"
    )
    assert "program.py:5: feeds 't', which may be a.t or b.t" in refused(tmp_path, text)


def test_python_and_sql_of_one_program_tell_their_names_apart_together(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(START + TWO.replace("'orders'", "'silver.orders'"))
    (tmp_path / "b.sql").write_text(
        "CREATE STREAMING TABLE gold.orders AS SELECT * FROM STREAM(silver.orders);"
        "CREATE STREAMING TABLE summary AS SELECT * FROM STREAM(gold.orders);"
    )
    loaded = load_program(tmp_path)
    assert edges(loaded) - {("x", "silver_orders")} == {
        ("silver_orders", "bronze_orders"),
        ("silver_orders", "gold_orders"),
        ("gold_orders", "summary"),
    }


def test_a_table_that_gets_another_name_beside_a_new_one_does_not_begin_anew_in_silence(
    tmp_path: Path,
) -> None:
    settings = Settings(lake=str(tmp_path / "lake"))

    def graph(*schemas: str, **options: Any) -> Graph:
        text = START + "".join(
            f"@dlt.table(name='{schema}.orders')\n"
            "def f(): return spark.readStream.format('kafka').option('subscribe', 'x').load()\n"
            for schema in schemas
        )
        module = written(tmp_path, text, **options).as_module()
        return build_graph([module], settings)

    alone = graph("bronze").tables["orders"]
    write_deltalake(alone.path, pa.table({"n": [1]}))
    keep_place(alone, settings)
    both = graph("bronze", "other")
    with pytest.raises(PlaceChanged, match=r"'bronze_orders'.* may be what was called 'orders'"):
        refuse_other_place(both.tables["bronze_orders"], settings)
    named = graph("bronze", "other", names={"bronze.orders": "orders"}).tables
    for name in ("orders", "other_orders"):
        refuse_other_place(named[name], settings)


def test_two_tables_that_a_select_would_know_by_one_name_are_refused() -> None:
    text = ORDERS.format("silver.orders", "silver.orders") + (
        "CREATE MATERIALIZED VIEW m AS SELECT 1 AS n FROM silver.orders JOIN bronze.orders;"
    )
    assert "reads silver.orders and bronze.orders under one name" in sql.refused(text).what


def test_a_name_for_a_table_that_there_is_not_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, START + TWO, names={"silver.orders": "orders"})
    assert any(
        "names={'silver.orders': 'orders'}: the program has no such table" in p for p in said
    )
    (tmp_path / "one.sql").write_text("CREATE STREAMING TABLE a.t AS SELECT * FROM STREAM(x);")
    with pytest.raises(DeclarationError, match=r"names= names b\.t, which it does not declare"):
        ka.program(tmp_path / "one.sql", names={"b.t": "t"})
