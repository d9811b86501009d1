"""Programs of other products become the assets, edges and checks that their text says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kafka_assets import program
from kafka_assets.graph import build_graph
from kafka_assets.orchestration.build import graph_defs
from kafka_assets.settings import Settings
from kafka_assets_tests.frontends.shown import PROGRAMS

OPTIONS: dict[str, dict[str, Any]] = {
    "autoloader_orders.py": {"conf": {"landing": "/landing"}},
    "enriched_stream.py": {"tables": {"crm.main.customers": "customers"}},
    "iot_dedupe.py": {"conf": {"env": "prod"}},
}


@pytest.mark.parametrize("file", sorted(PROGRAMS.glob("*.*")), ids=lambda file: file.name)
def test_the_edges_and_checks_in_dagster_are_those_of_the_program(
    file: Path, tmp_path: Path
) -> None:
    loaded = program(file, **OPTIONS.get(file.name, {}))
    settings = Settings(lake=str(tmp_path / "lake"))
    defs = graph_defs(build_graph([loaded.as_module()], settings), settings)
    edges = {
        (dep.asset_key.path[-1], spec.key.path[-1])
        for spec in defs.resolve_all_asset_specs()
        # Dead letters hang on their table's upstreams, and are no table of the program.
        if spec.key.path[0] != "dlq"
        for dep in spec.deps
    }
    assert edges == set(loaded.edges)
    for name, table in loaded.tables.items():
        if table.kind == "temporary_view":
            continue
        key = dg.AssetKey([table.layer, name])
        checks = {
            check.name
            for check in defs.resolve_asset_graph().asset_check_keys
            if check.asset_key == key
        }
        assert checks >= {rule.name for rule in table.expectations}
