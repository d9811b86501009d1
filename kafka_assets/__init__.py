"""The words that an author of pipelines imports, and nothing else.

Importing this starts no JVM and touches no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_assets.declarations import (
    Changes,
    Expectation,
    ExternalTable,
    FileSource,
    Flow,
    Sink,
    Table,
    TableExpectation,
    Topic,
    append_flow,
    create_auto_cdc_flow,
    create_sink,
    create_streaming_table,
    expect,
    expect_all,
    expect_all_or_drop,
    expect_all_or_fail,
    expect_fresh,
    expect_new_rows,
    expect_or_drop,
    expect_or_fail,
    expect_row_count,
    expect_unique,
    expect_values_in,
    external_table,
    file_source,
    kafka_topic,
    latest_per_key,
    materialized_view,
    rules_from,
    streaming_table,
    temporary_view,
    windowed_table,
)
from kafka_assets.frontends import program
from kafka_assets.options import JsonOptions
from kafka_assets.settings import Settings

if TYPE_CHECKING:
    from kafka_assets.orchestration.build import build_defs

__version__ = "0.1.0"

__all__ = [
    "Changes",
    "Expectation",
    "ExternalTable",
    "FileSource",
    "Flow",
    "JsonOptions",
    "Settings",
    "Sink",
    "Table",
    "TableExpectation",
    "Topic",
    "append_flow",
    "build_defs",
    "create_auto_cdc_flow",
    "create_sink",
    "create_streaming_table",
    "expect",
    "expect_all",
    "expect_all_or_drop",
    "expect_all_or_fail",
    "expect_fresh",
    "expect_new_rows",
    "expect_or_drop",
    "expect_or_fail",
    "expect_row_count",
    "expect_unique",
    "expect_values_in",
    "external_table",
    "file_source",
    "kafka_topic",
    "latest_per_key",
    "materialized_view",
    "program",
    "rules_from",
    "streaming_table",
    "temporary_view",
    "windowed_table",
]


def __getattr__(name: str) -> Any:
    # Dagster takes a second to import; an author's unit test does not need it.
    if name == "build_defs":
        from kafka_assets.orchestration.build import build_defs

        return build_defs
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
