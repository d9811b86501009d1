"""SQL files beside Python modules and Python modules make one graph."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kafka_assets.errors import DeclarationError
from kafka_assets.graph import Graph, build_graph
from kafka_assets.settings import KafkaSettings, Settings
from kafka_assets_tests.helpers import module_of

PYTHON = """
import kafka_assets as ka

orders = ka.kafka_topic("orders", name="shop_orders")


@ka.streaming_table(layer="silver")
def silver(bronze):
    return bronze
"""
BRONZE = """
CREATE STREAMING TABLE bronze AS
SELECT * FROM STREAM read_kafka(bootstrapServers => 'here:9092', subscribe => 'orders');
"""
GOLD = "CREATE MATERIALIZED VIEW gold AS SELECT count(*) AS n FROM silver;"


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """The folder of a pipeline package `shop_in_sql`."""
    folder = tmp_path / "shop_in_sql"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    yield folder
    sys.path.remove(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop_in_sql"]:
        del sys.modules[name]


def graph(folder: Path, settings: Settings | None = None, **files: str) -> Graph:
    for name, text in files.items():
        name = name.replace("__", "/").replace("_py", ".py").replace("_sql", ".sql")
        path = folder / name.replace("_old/", ".old/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    module = importlib.import_module("shop_in_sql")
    return build_graph(module, settings or Settings(lake="/lake"))


def test_python_and_sql_are_one_graph(package: Path) -> None:
    made = graph(package, orders_py=PYTHON, bronze_sql=BRONZE, more__gold_sql=GOLD)
    assert list(made.topics) == ["shop_orders"]
    assert list(made.tables) == ["bronze", "silver", "gold"]
    assert list(made.tables["bronze"].upstreams) == ["shop_orders"]
    assert [one.name for one in made.downstream_of("shop_orders")] == ["bronze", "silver", "gold"]


def test_brokers_that_the_settings_name_too_are_no_note(package: Path) -> None:
    here = Settings(lake="/lake", kafka=KafkaSettings(bootstrap_servers="here:9092"))
    far = Settings(lake="/lake", kafka=KafkaSettings(bootstrap_servers="far:9092"))
    assert graph(package, here, bronze_sql=BRONZE).notes == ()
    (note,) = graph(package, far, bronze_sql=BRONZE).notes
    assert note.place.file.endswith("bronze.sql")


def test_a_single_module_brings_no_sql_files(package: Path) -> None:
    (package / "orders.py").write_text(PYTHON.replace("bronze", "shop_orders"))
    (package / "gold.sql").write_text(GOLD)
    module = importlib.import_module("shop_in_sql.orders")
    assert list(build_graph([module], Settings(lake="/lake")).tables) == ["silver"]


def test_files_in_hidden_folders_are_passed_over(package: Path) -> None:
    made = graph(package, orders_py=PYTHON, bronze_sql=BRONZE, _old__x_sql="no SQL")
    assert list(made.tables) == ["bronze", "silver"]


def test_an_unknown_upstream_is_named_with_its_place_in_the_file(package: Path) -> None:
    with pytest.raises(DeclarationError, match="'silvr' is no topic and no table") as raised:
        graph(package, gold_sql="\nCREATE LIVE TABLE gold AS SELECT * FROM silvr")
    assert raised.value.where.endswith("gold.sql:2:1")


def test_a_name_that_python_has_too_is_refused(package: Path) -> None:
    text = "CREATE STREAMING TABLE silver AS SELECT * FROM STREAM(bronze)"
    with pytest.raises(
        DeclarationError, match=r"table 'silver' at .*orders.py.* has the same name"
    ):
        graph(package, orders_py=PYTHON, bronze_sql=BRONZE, silver_sql=text)


def test_a_flow_in_sql_feeds_a_table_in_python(package: Path) -> None:
    python = PYTHON + '\nka.create_streaming_table("all_orders", layer="silver")\n'
    flow = "CREATE FLOW f AS INSERT INTO all_orders BY NAME SELECT * FROM STREAM(silver)"
    made = graph(package, orders_py=python, bronze_sql=BRONZE, f_sql=flow)
    assert [part.flow.name for part in made.tables["all_orders"].parts if part.flow] == ["f"]


def test_a_flow_in_python_is_not_cast_to_types_in_sql_and_so_refused(package: Path) -> None:
    python = (
        PYTHON
        + """

@ka.append_flow(target="all_orders")
def f(silver):
    return silver
"""
    )
    text = "CREATE STREAMING TABLE all_orders (id INT)"
    with pytest.raises(DeclarationError, match="only flows in SQL are cast to"):
        graph(package, orders_py=python, bronze_sql=BRONZE, all_sql=text)


def test_changes_in_sql_make_a_table_of_changes(package: Path) -> None:
    text = (
        "CREATE STREAMING TABLE now; CREATE FLOW f AS AUTO CDC INTO now FROM STREAM(silver) "
        "KEYS (id) SEQUENCE BY at"
    )
    made = graph(package, orders_py=PYTHON, bronze_sql=BRONZE, now_sql=text)
    assert made.tables["now"].table.kind == "auto_cdc"


def test_a_graph_can_be_built_again_and_modules_keep_nothing_of_sql(package: Path) -> None:
    flows = (
        "CREATE STREAMING TABLE t; "
        "CREATE FLOW f AS INSERT INTO t BY NAME SELECT * FROM STREAM bronze"
    )
    first = graph(package, orders_py=PYTHON, bronze_sql=BRONZE, t_sql=flows)
    again = graph(package)
    assert {n.name: n.code_version for n in first.tables.values()} == {
        n.name: n.code_version for n in again.tables.values()
    }


def version(package: Path, select: str, columns: str = "") -> str:
    text = f"CREATE STREAMING TABLE t {columns} AS {select}"
    made = graph(package, orders_py=PYTHON, bronze_sql=BRONZE, t_sql=text)
    return made.tables["t"].code_version


def test_the_code_version_follows_the_select_and_not_its_comments(package: Path) -> None:
    plain = version(package, "SELECT a FROM STREAM(silver)")
    assert version(package, "SELECT a -- all\n  FROM /* it */ STREAM( silver )") == plain
    assert version(package, "SELECT b FROM STREAM(silver)") != plain
    assert version(package, "SELECT 'a' FROM STREAM(silver)") != plain
    assert version(package, "SELECT a FROM STREAM(silver)", "(a INT)") != plain


def test_a_module_that_is_no_package_has_no_files() -> None:
    module: ModuleType = module_of()
    assert build_graph([module], Settings(lake="/lake")).tables == {}
