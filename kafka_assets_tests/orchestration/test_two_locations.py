"""Two teams with a code location each: what one reads of the other is one line of assets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_assets_tests.web import asked, web_server

pytestmark = [pytest.mark.verify, pytest.mark.dagster_dev]

FIRST = """
import sys
import kafka_assets as ka

events = ka.kafka_topic("shop-events", name="events")

@ka.streaming_table(layer="bronze")
def raw(events):
    return events

defs = ka.build_defs(sys.modules[__name__])
"""

SECOND = """
import sys
import kafka_assets as ka

raw = ka.external_table("raw", layer="bronze")

@ka.materialized_view(layer="gold")
def totals(raw):
    return raw.groupBy("partition").count()

defs = ka.build_defs(sys.modules[__name__])
"""

QUESTION = "{assetNodes{assetKey{path} dependencyKeys{path} repository{location{name}}}}"


def test_lineage_goes_across_code_locations(tmp_path: Path) -> None:
    lines = ["load_from:"]
    for name, text in (("first", FIRST), ("second", SECOND)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        lines += [
            "  - python_file:",
            f"      relative_path: {name}.py",
            f"      location_name: {name}",
        ]
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text("\n".join(lines), encoding="utf-8")
    with web_server(workspace, tmp_path) as address:
        nodes = asked(address, QUESTION)["data"]["assetNodes"]
    shown = {
        "/".join(node["assetKey"]["path"]): (
            node["repository"]["location"]["name"],
            ["/".join(key["path"]) for key in node["dependencyKeys"]],
        )
        for node in nodes
    }
    assert shown == {
        "kafka/events": ("first", []),
        "bronze/raw": ("first", ["kafka/events"]),
        "gold/totals": ("second", ["bronze/raw"]),
    }
