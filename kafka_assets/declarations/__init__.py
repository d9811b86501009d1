"""The words an author writes, as frozen declarations.

Nothing here imports Spark or Dagster, so that importing a pipeline starts no JVM and touches no
network. `model` is what declarations are, the other modules are the words that make them.
"""

from __future__ import annotations

from kafka_assets.declarations.expectations import (
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
    pending_expectations,
    rules_from,
)
from kafka_assets.declarations.files import RESCUED, file_source
from kafka_assets.declarations.flows import (
    append_flow,
    create_auto_cdc_flow,
    create_sink,
    create_streaming_table,
)
from kafka_assets.declarations.latest import latest_per_key
from kafka_assets.declarations.model import (
    Action,
    Author,
    Changes,
    Declaration,
    Expectation,
    ExternalTable,
    FileSource,
    Flow,
    Kind,
    Place,
    Read,
    Rule,
    Sink,
    Table,
    TableExpectation,
    TableOptions,
    Topic,
)
from kafka_assets.declarations.places import DECLARED
from kafka_assets.declarations.tables import (
    external_table,
    kafka_topic,
    materialized_view,
    streaming_table,
    temporary_view,
    windowed_table,
)

__all__ = [
    "DECLARED",
    "RESCUED",
    "Action",
    "Author",
    "Changes",
    "Declaration",
    "Expectation",
    "ExternalTable",
    "FileSource",
    "Flow",
    "Kind",
    "Place",
    "Read",
    "Rule",
    "Sink",
    "Table",
    "TableExpectation",
    "TableOptions",
    "Topic",
    "append_flow",
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
    "pending_expectations",
    "rules_from",
    "streaming_table",
    "temporary_view",
    "windowed_table",
]
