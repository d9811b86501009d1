"""A single file of SQL is a program too: what its author may say about it from outside."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import kafka_assets as ka
from kafka_assets.errors import DeclarationError
from kafka_assets.graph import build_graph
from kafka_assets_tests.frontends.shown import edges


def test_a_file_of_sql_is_taken_in_by_the_same_word(tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(
        "CREATE OR REFRESH STREAMING TABLE raw AS SELECT * FROM STREAM read_kafka("
        "bootstrapServers => '127.0.0.1:9092', subscribe => 'orders');\n"
        "CREATE OR REFRESH MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM raw;\n"
        "CREATE STREAMING TABLE copied (day DATE GENERATED ALWAYS AS (DATE(timestamp)));\n"
        "CREATE FLOW copy AS INSERT INTO copied BY NAME SELECT * FROM STREAM raw;\n"
    )
    module = ModuleType("team_shop")
    # The file lies in a package, all of whose files of SQL are loaded.
    module.__path__ = [str(tmp_path)]
    text = "import kafka_assets as ka\nloaded = ka.program('shop.sql')\n"
    exec(compile(text, str(tmp_path / "pipeline.py"), "exec"), vars(module))
    assert edges(module.loaded) == {("orders", "raw"), ("raw", "counted"), ("raw", "copied")}
    graph = build_graph([module], ka.Settings(lake=str(tmp_path / "lake")))
    assert sorted(graph.tables) == ["copied", "counted", "raw"]


def test_options_that_a_file_of_sql_does_not_take_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text("CREATE STREAMING TABLE t AS SELECT * FROM STREAM(x);")
    with pytest.raises(DeclarationError, match="layers= names u, which it does not declare"):
        ka.program(tmp_path / "tables.sql", layers={"u": "gold"})
    with pytest.raises(DeclarationError, match="which it does not read without a schema"):
        ka.program(tmp_path / "tables.sql", schemas={"/landing": "id BIGINT"})


@pytest.mark.parametrize("alone", [True, False])
def test_sql_gets_its_values_and_the_columns_of_its_files_from_outside(
    tmp_path: Path, alone: bool
) -> None:
    (tmp_path / "tables.sql").write_text(
        "CREATE STREAMING TABLE ${layer}_t AS\n"
        "SELECT * FROM STREAM read_files('/landing/${team}/', format => 'json')"
    )
    if not alone:
        (tmp_path / "more.py").write_text(
            "import dlt\n@dlt.table\ndef u():\n    return dlt.read('raw_t')\n"
        )
    loaded = ka.program(
        tmp_path / "tables.sql" if alone else tmp_path,
        conf={"layer": "raw", "team": "shop", "n": 7},  # type: ignore[dict-item]
        schemas={"/landing/shop": "id BIGINT"},
    )
    (files,) = [one for one in loaded.declarations if isinstance(one, ka.FileSource)]
    assert (files.path, files.schema) == ("/landing/shop/", "id BIGINT")
    assert "raw_t" in [one.name for one in loaded.declarations]


def test_a_file_of_sql_takes_other_layers_and_tables_of_others(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(
        "CREATE STREAMING TABLE t AS SELECT * FROM STREAM(main.crm.people);"
        "CREATE MATERIALIZED VIEW customers AS SELECT * FROM main.crm.customers JOIN t;"
        "CREATE MATERIALIZED VIEW shown AS SELECT * FROM customers;"
    )
    loaded = ka.program(
        tmp_path / "tables.sql",
        layers={"t": "bronze"},
        tables={"main.crm.people": "people", "main.crm.customers": "crm_customers"},
    )
    assert edges(loaded) == {
        ("people", "t"),
        ("crm_customers", "customers"),
        ("t", "customers"),
        ("customers", "shown"),
    }
    assert loaded.tables["t"].layer == "bronze"
    assert loaded.borrowed == ("people", "crm_customers")
