"""What the Dagster UI shows of a table: on its definition, and with each materialization.

Numbers are plain ints and floats, because these are what the UI plots. Text that comes from data is
escaped before it becomes Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pyspark.sql.types import StructType

from kafka_assets.declarations import Flow, Topic
from kafka_assets.graph import Node
from kafka_assets.orchestration.history import Position
from kafka_assets.orchestration.names import POSITION, dead_letters_key, uri_of
from kafka_assets.settings import Settings
from kafka_assets.sources.files import FolderState
from kafka_assets.sources.kafka import TopicState
from kafka_assets.streaming.report import RunReport

MOST_CHARACTERS = 120
"""Longer values are cut in samples."""

LETTER_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "failed_rules",
    "reason",
    "key",
    "value",
)
"""What a sample shows of a dead letter, in this order."""


def topic_definition(topic: Topic, settings: Settings) -> dict[str, Any]:
    """Metadata of a topic's definition."""
    uri = f"kafka://{settings.kafka.bootstrap_servers}/{topic.topic}"
    return {"dagster/uri": dg.MetadataValue.text(uri), "topic": topic.topic}


def described(node: Node) -> str | None:
    """What can be said of a table that has no function, and so no docstring, of its own."""
    table = node.table
    sources = ", ".join(f"`{one.source.name}`" for one in node.inputs)
    if table.changes is not None:
        keys = ", ".join(f"`{key}`" for key in table.changes.keys)
        which = "Every state" if table.changes.scd_type == 2 else "The present state"
        order = f"in the order of `{table.changes.sequence_by}`"
        return f"{which} of each {keys}, by the changes in {sources} {order}."
    flows = ", ".join(f"`{part.name}`" for part in _flows(node))
    if table.sink is not None:
        options = table.sink.options
        place = options.get("topic") or options.get("path")
        return f"Rows of {sources} that leave the lake for `{place}`, by {flows}."
    return f"Rows of {sources}, by the flows {flows}." if flows else None


def _flows(node: Node) -> list[Flow]:
    return [part.flow for part in node.parts if part.flow is not None]


def table_definition(node: Node) -> dict[str, Any]:
    """Metadata of a table's definition."""
    metadata: dict[str, Any] = {
        "dagster/uri": dg.MetadataValue.text(uri_of(node.path)),
        "dagster/table_name": f"{node.table.layer}.{node.name}",
    }
    options = node.table.options
    shown = {
        "partition_by": ", ".join(options.partition_by),
        "cluster_by": ", ".join(options.cluster_by),
        "private": "only for this pipeline" if options.private else "",
    }
    metadata |= {name: dg.MetadataValue.text(text) for name, text in shown.items() if text}
    if node.payload is not None:
        metadata["dagster/column_schema"] = _payload_schema(node.payload)
    return metadata


def dead_letters_definition(node: Node) -> dict[str, Any]:
    """Metadata of the definition of a table's dead letters."""
    return {
        "dagster/uri": dg.MetadataValue.text(uri_of(node.dead_letters_path)),
        "dagster/table_name": f"dlq.{node.name}",
    }


def table_run(node: Node, report: RunReport, position: Position) -> dict[str, Any]:
    """Metadata of a table's materialization."""
    numbers: dict[str, int | float | None] = {
        "rows_read": report.rows_read,
        # Of what is computed, what the function made is all that came in.
        "returned": report.returned if report.rows_read is None else None,
        "decoded": report.decoded,
        "undecodable": report.undecodable,
        "raised": report.raised or None,
        **_filtered_or_fan_out(report),
        "kept": report.kept,
        "dead": report.dead if node.may_have_dead_letters else None,
        "lag": report.lag,
        "bytes_written": report.bytes_written,
        "batches": report.batches,
        "seconds": round(report.seconds, 3),
        "delta_version_from": report.version_from,
        "delta_version_to": report.version_to,
        "dagster/row_count": report.rows_total,
    }
    metadata: dict[str, Any] = {k: v for k, v in numbers.items() if v is not None}
    metadata |= dict(report.extra)
    metadata["dagster/column_schema"] = _table_schema(node, report.schema)
    metadata[POSITION] = position.as_metadata()
    if report.offsets:
        metadata["offsets"] = dg.MetadataValue.json(
            {partition: list(ends) for partition, ends in report.offsets.items()}
        )
    if node.may_have_dead_letters:
        metadata["dead_letters"] = dg.MetadataValue.asset(dead_letters_key(node))
    return metadata


def dead_letters_run(report: RunReport) -> dict[str, Any]:
    """Metadata of the materialization of a table's dead letters."""
    metadata: dict[str, Any] = {"dead": report.dead}
    if report.undecodable is not None:
        metadata["undecodable"] = report.undecodable
    for rule in report.rules:
        if rule.action == "drop":
            metadata[f"broken/{rule.name}"] = rule.broken
    if report.dead_letters_sample:
        metadata["sample"] = dg.MetadataValue.md(sample(report.dead_letters_sample))
    return metadata


def topic_state(state: TopicState, lag: int | None) -> dict[str, Any]:
    """Metadata of a topic whose offsets moved."""
    metadata: dict[str, Any] = {
        "records": sum(state.end[p] - state.earliest.get(p, 0) for p in state.end),
        "partitions": len(state.end),
        "end_offsets": dg.MetadataValue.json({str(p): o for p, o in sorted(state.end.items())}),
    }
    if lag is not None:
        metadata["lag"] = lag
    return metadata


def folder_state(state: FolderState) -> dict[str, Any]:
    """Metadata of a folder whose files changed."""
    shown: dict[str, Any] = {"files": state.files, "bytes": state.bytes}
    if state.newest:
        shown["newest_file"] = dg.MetadataValue.timestamp(state.newest)
    return shown


def sample(letters: Sequence[Mapping[str, Any]]) -> str:
    """Dead letters as a Markdown table."""
    # Where the raw bytes are not known, the row that the function returned stands for them.
    letters = [
        letter if letter.get("value") is not None else {**letter, "value": letter.get("row")}
        for letter in letters
    ]
    present = {name for letter in letters for name in letter}
    columns = [name for name in LETTER_COLUMNS if name in present]
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(cell(letter.get(name)) for name in columns) for letter in letters]
    return "\n".join(f"| {line} |" for line in lines)


def cell(value: object) -> str:
    """A value as one cell of a Markdown table: on one line, cut, and without any markup."""
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray):
        text = _decoded(bytes(value))
    elif isinstance(value, list | tuple):
        text = ", ".join(str(part) for part in value)
    else:
        text = str(value)
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]}… ({len(text)} characters)"
    text = "".join(c if c.isprintable() else "�" for c in re.sub(r"\s+", " ", text))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+!|~$^-])", r"\\\1", text)


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value[:MOST_CHARACTERS].hex()}"


def _filtered_or_fan_out(report: RunReport) -> dict[str, int | float | None]:
    filtered = report.filtered
    if filtered is None or filtered >= 0:
        return {"filtered": filtered}
    return {"fan_out": report.returned / report.decoded if report.decoded else None}


def _payload_schema(payload: StructType) -> dg.TableSchema:
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                field.name,
                type=field.dataType.simpleString(),
                description=field.metadata.get("comment"),
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in payload.fields
        ]
    )


def _table_schema(node: Node, columns: Mapping[str, str]) -> dg.TableSchema:
    fields = {} if node.payload is None else {f.name: f for f in node.payload.fields}
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name,
                type=kind,
                description=fields[name].metadata.get("comment") if name in fields else None,
            )
            for name, kind in columns.items()
        ]
    )
