"""A folder in which JSON files appear, and tables that read it, for tests of files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

import kafka_assets as ka
from kafka_assets.graph import Graph
from kafka_assets.settings import Settings
from kafka_assets_tests.helpers import graph_of

if TYPE_CHECKING:
    pass

COLUMNS = "id STRING, x INT"


def orders(settings: Settings, landing: Path | str) -> Graph:
    """Rows of JSON files, and those of them that fit their columns."""
    arrived = ka.file_source("arrived", str(landing), format="json", schema=COLUMNS)

    @ka.streaming_table(layer="bronze")
    def raw(arrived: Any) -> Any:
        return arrived.select("*", "_metadata.file_name")

    @ka.streaming_table(layer="silver")
    @ka.expect_or_drop("fits", "_rescued_data IS NULL")
    @ka.expect("positive", "x > 0")
    def clean(raw: Any) -> Any:
        return raw

    return graph_of(settings, arrived, raw, clean)


def put(folder: Path, name: str, *lines: str) -> Path:
    """A file that appears whole, as an upload does."""
    draft = folder / f".{name}"
    draft.write_text("\n".join(lines), encoding="utf-8")
    return draft.rename(folder / name)


def rows(path: str, *columns: str) -> list[tuple[Any, ...]]:
    table = DeltaTable(path).to_pyarrow_table()
    return sorted(
        (tuple(row[c] for c in columns) for row in table.to_pylist()), key=lambda row: str(row)
    )
