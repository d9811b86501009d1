"""What a table's function makes of its inputs, found on empty frames, without a broker.

Finds what only Spark can know, such as an unknown column or a type error; what is refused of a
result stands in `plan_rules`. `kafka-assets plan` does it for all tables; every run does it for its
own, before its first batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from kafka_assets.declarations import Changes, Read, Topic
from kafka_assets.decoding.json import decode_json
from kafka_assets.errors import PlanError
from kafka_assets.graph import Files, Graph, Node, Outside, Source
from kafka_assets.sources import files, kafka
from kafka_assets.sql_rules import Operand, cannot_raise
from kafka_assets.streaming.changes import Folding, fold
from kafka_assets.streaming.plan_records import RAW, Kept, marked, records_of, unmarked
from kafka_assets.streaming.plan_rules import (
    CHANGE_COLUMNS,
    may_be_alone,
    may_be_endless,
    plan_error,
    reason,
    refuse_columns,
    refuse_endless,
    refuse_result,
    varies,
    window_column,
)
from kafka_assets.streaming.tables import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Planned:
    """A table's columns as its function returns them.

    Attributes:
        schema: The columns.
        has_source: Each row says which Kafka record it came from.
        window_column: Of a windowed table, the column that lies inside the window.
        alone: The function runs as a part of the query, and could be given each batch by itself.
        records: Where a row's record is found as it was: in the row, when the function passes on
            all of `RAW`; or in the batch, when the row only says which record it is. None when no
            record is known, or the batch cannot be looked into.
        varies: The function or a rule asks for the time, or for chance.
    """

    schema: StructType
    has_source: bool
    window_column: str | None = None
    alone: bool = False
    records: Kept | None = None
    varies: bool = False


_PLANS: WeakKeyDictionary[Any, WeakKeyDictionary[Node, Planned]] = WeakKeyDictionary()
"""Session -> table -> its plan: the functions of a process do not change."""


def plan_graph(graph: Graph, session: SparkSession) -> dict[str, Planned | PlanError]:
    """Plan every table; a table whose upstream cannot be planned is left out.

    Args:
        graph: The tables and views.
        session: Any session; no data is read.

    Returns:
        Name of a table or view -> its plan, or what is wrong with it.
    """
    planned: dict[str, Planned | PlanError] = {}
    # A view that nothing reads is looked at as well.
    for node in (*graph.tables.values(), *graph.views.values()):
        before = [one.source.name for one in node.inputs if isinstance(one.source, Node)]
        if not all(isinstance(planned.get(name), Planned) for name in before):
            continue
        try:
            planned[node.name] = plan_table(node, session)
        except PlanError as error:
            planned[node.name] = error
    return planned


def plan_table(node: Node, session: SparkSession) -> Planned:
    """Run a table's function, and its upstreams', on empty frames; once in a session.

    Args:
        node: The table.
        session: Any session; no data is read.

    Returns:
        The columns that the table will have.

    Raises:
        PlanError: The function does not fit its inputs; names the table, file, line and the fix.
    """
    known = _PLANS.setdefault(session, WeakKeyDictionary())
    planned = known.get(node)
    if planned is None:
        planned = _plan(node, session)
        # A table of somebody else may have other columns the next time.
        if not any(isinstance(source, Outside) for source in _all_sources(node)):
            known[node] = planned
    return planned


def _all_sources(node: Node) -> Iterator[Source]:
    for one in node.inputs:
        yield one.source
        if isinstance(one.source, Node):
            yield from _all_sources(one.source)


def _plan(node: Node, session: SparkSession) -> Planned:
    if node.flows:
        return _together(node, [plan_table(part, session) for part in node.parts])
    read: list[DataFrame] = []

    def empty(upstream: Source, how: Read) -> DataFrame:
        frame = _empty(node, upstream, how, session)
        read.append(marked(frame, len(read)) if set(frame.columns) >= RAW else frame)
        return read[-1]

    inputs = node.frames(empty)
    if node.payload is not None:
        inputs = {name: _decoded(node, name, frame) for name, frame in inputs.items()}
    result = _call(node, inputs)
    refuse_result(node, result, inputs)
    if may_be_endless(node, result):

        def begun(upstream: Source, how: Read) -> DataFrame:
            frame = _empty(node, upstream, how, session)
            return frame if how == "static" else _stream(frame)

        streams = node.frames(begun)
        refuse_endless(node, _call(node, streams))
    schema = unmarked(result.schema)
    if node.flow is None:
        refuse_columns(node, schema)
    alone = may_be_alone(
        node, result, lambda source: _empty(node, source, "stream", session).columns
    )
    return Planned(
        schema,
        "_source" in schema.names,
        window_column(node, schema, inputs),
        alone,
        records_of(node, result, read, alone=alone),
        node.payload is not None and varies(node, result),
    )


def _stream(like: DataFrame) -> DataFrame:
    """A stream with the columns of a frame, which never starts."""
    from pyspark.sql import functions as F

    columns = [F.lit(None).cast(f.dataType).alias(f.name) for f in like.schema.fields]
    return like.sparkSession.readStream.format("rate").load().select(*columns)


def _together(node: Node, flows: list[Planned]) -> Planned:
    """The columns of a table that several flows feed; a flow leaves out what it does not have."""
    from pyspark.sql.types import StructType

    fields: dict[str, Any] = {}
    for part, planned in zip(node.parts, flows, strict=True):
        for column in planned.schema.fields:
            other = fields.setdefault(column.name.lower(), column)
            if other.dataType.simpleString() != column.dataType.simpleString():
                raise plan_error(
                    part,
                    f"returns {column.name} {column.dataType.simpleString()}, another flow of "
                    f"{node.name!r} {other.name} {other.dataType.simpleString()}",
                    "cast it to one type",
                )
    together = StructType(list(fields.values()))
    refuse_columns(node, together)
    return Planned(together, all(one.has_source for one in flows))


def decoded_frame(raw: DataFrame, node: Node) -> DataFrame:
    """Decode a raw frame for a table with `schema=`.

    Raw bytes are the bulk of a row, so where a bronze table keeps them, only rows that will die
    carry theirs: undecodable ones, and those that break a drop rule already before the function.

    Returns:
        The payload's fields, `_source`, `_key`, `_headers`, and for the batch `_raw` (the value
        as it was) and `_undecodable`.
    """
    from pyspark.sql import functions as F

    if node.payload is None:
        return raw
    keeps = node.table.json.tombstones == "keep"
    dies = F.col("_undecodable")
    for rule in _foreseen(node):
        dies = dies | ~F.coalesce(rule, F.lit(False))
    from_topic = isinstance(node.only_stream, Topic)
    decoded = decode_json(raw, "value", node.payload, node.table.json)
    if keeps:
        told = F.col("value").isNotNull()
        decoded = decoded.withColumn("_undecodable", F.col("_undecodable") & told)
    rows = decoded.select(
        "_decoded.*",
        F.struct("topic", "partition", "offset", "timestamp").alias("_source"),
        F.col("key").alias("_key"),
        F.col("headers").alias("_headers"),
        *([F.col("value").isNull().alias("_tombstone")] if keeps else []),
        F.col("value").alias("_raw"),
        "_undecodable",
    )
    return rows if from_topic else rows.withColumn("_raw", F.when(dies, F.col("_raw")))


def folding(changes: Changes) -> Folding:
    """How changes are applied, as a batch is told."""
    return Folding(
        keys=changes.keys,
        sequence_by=changes.sequence_by,
        deletes=changes.apply_as_deletes,
        truncates=changes.apply_as_truncates,
        columns=changes.columns,
        except_columns=changes.except_columns,
        ignore_nulls=changes.ignore_null_updates,
        scd_type=changes.scd_type,
        track=changes.track_history,
        track_except=changes.track_history_except,
    )


def _foreseen(node: Node) -> list[Column]:
    """Drop rules that can be tried on decoded rows, before the function, without raising."""
    from pyspark.sql import functions as F

    columns = {f.name.lower(): _operand(f.dataType.typeName()) for f in node.payload or ()}
    rules = [e.rule for e in node.table.expectations if e.action == "drop"]
    return [F.expr(r) for r in rules if isinstance(r, str) and cannot_raise(r, columns)]


def _operand(type_name: str) -> Operand:
    if type_name == "string":
        return "string"
    numbers = ("byte", "short", "integer", "long", "float", "double", "decimal")
    return "number" if type_name in numbers else "other"


def _empty(node: Node, upstream: Source, how: Read, session: SparkSession) -> DataFrame:
    """An empty frame with the columns of what a table reads."""
    from pyspark.sql.types import StructType

    if isinstance(upstream, Topic):
        return kafka.empty_frame(session)
    if isinstance(upstream, Files):
        return files.empty_frame(session, upstream)
    if isinstance(upstream, Node):
        schema = plan_table(upstream, session).schema
    else:
        table = LakeTable.open(upstream.path)
        if table is None:
            raise plan_error(
                node,
                f"the external table {upstream.name!r} does not exist at {upstream.path}",
                "let its own pipeline make it first, or correct path= or layer=",
            )
        schema = table.schema
    if how == "changes":
        schema = StructType(list(schema.fields))
        for column, kind in CHANGE_COLUMNS.items():
            schema.add(column, kind)
    return session.createDataFrame([], schema)


def _decoded(node: Node, name: str, frame: DataFrame) -> DataFrame:
    missing = sorted(RAW - set(frame.columns))
    if missing:
        raise plan_error(
            node,
            f"schema={node.table.schema!r} decodes its upstream {name!r}, which has no column "
            f"{', '.join(missing)}",
            f"let {name!r} keep the topic's columns, or remove schema=",
        )
    return decoded_frame(frame, node).drop("_raw", "_undecodable")


def _call(node: Node, inputs: Mapping[str, DataFrame]) -> DataFrame:
    from pyspark.errors import PySparkException

    try:
        result: Any = node.table(*inputs.values())
        if node.table.changes is not None:
            result = fold(result, folding(node.table.changes))
        schema = getattr(result, "schema", None)
    except PySparkException as error:
        known = {name: ", ".join(frame.columns) for name, frame in inputs.items()}
        has = "; ".join(f"{name} has {columns}" for name, columns in known.items())
        raise plan_error(node, reason(error), f"correct the function; {has}") from None
    except Exception as error:
        raise plan_error(
            node, f"its function raised {type(error).__name__}: {error}", "correct the function"
        ) from error
    if schema is None:
        raise plan_error(
            node,
            f"its function returned {type(result).__name__}, not a DataFrame",
            "return a DataFrame",
        )
    frame: DataFrame = result
    return frame
