"""What a table's function makes of its inputs, found on empty frames, without a broker.

Finds what only Spark can know: an unknown column, a type error, a rule that is no condition, a
`_source` that got lost. `kafka-assets plan` does it for all tables; every run does it for its own,
before its first batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from kafka_assets.declarations import Changes, Expectation, Read, Topic
from kafka_assets.decoding.json import decode_json
from kafka_assets.errors import PlanError
from kafka_assets.graph import Graph, Node, Outside
from kafka_assets.sources import kafka
from kafka_assets.sql_rules import Operand, cannot_raise
from kafka_assets.streaming.changes import END, START, Folding, fold
from kafka_assets.streaming.tables import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

OURS = ("_source", "_key", "_headers", "_tombstone")
"""Columns that begin with an underscore and that a table may have."""

CHANGE_COLUMNS = {
    "_change_type": "string",
    "_commit_version": "long",
    "_commit_timestamp": "timestamp",
}
"""Columns that Delta adds to the change feed of a table, with their types."""

OF_BATCHES = re.compile(
    r"_(broken_\d+|dead|undecodable|raw|decoded|seq|at|gone|cleared|clears|removed|row|n|next|life"
    r"|begins|state|source|key|headers|tombstone)"
)
"""Columns that a batch adds for itself. A table of an imported program may have others with _."""

STATEFUL = {
    r"\bDeduplicate": "dropDuplicates",
    r"\bEventTimeWatermark": "withWatermark",
    r"\bAggregate ": "groupBy",
    r"\bWindow \[": "a window function",
}
"""Operators of Spark's plans that look at more rows than one, and what an author calls them."""

KAFKA_SINK = ("key", "value", "headers", "partition")
"""Columns that a row for a Kafka topic may have."""

RAW = {"key", "value", "headers", "topic", "partition", "offset", "timestamp"}
"""Columns that an upstream needs to be decoded."""


@dataclass(frozen=True)
class Planned:
    """A table's columns as its function returns them.

    Attributes:
        schema: The columns.
        has_source: Each row says which Kafka record it came from.
        window_column: Of a windowed table, the column that lies inside the window.
    """

    schema: StructType
    has_source: bool
    window_column: str | None = None


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


def _all_sources(node: Node) -> Iterator[Topic | Outside | Node]:
    for one in node.inputs:
        yield one.source
        if isinstance(one.source, Node):
            yield from _all_sources(one.source)


def _plan(node: Node, session: SparkSession) -> Planned:
    if node.flows:
        return _together(node, [plan_table(part, session) for part in node.parts])
    inputs = node.frames(lambda upstream, how: _empty(node, upstream, how, session))
    if node.payload is not None:
        inputs = {name: _decoded(node, name, frame) for name, frame in inputs.items()}
    result = _call(node, inputs)
    schema = result.schema
    _refuse_state(node, result)
    _refuse_names(node, schema)
    sources = [name for name in schema.names if name == "_source"]
    _refuse_lost_source(node, sources, inputs)
    _refuse_missing_keys(node, schema)
    _refuse_for_kafka(node, schema)
    for expectation in node.table.expectations:
        _refuse_rule(node, expectation, result)
    if node.flow is None:
        _refuse_table_rules(node, schema)
        _refuse_layout(node, schema)
    return Planned(schema, bool(sources), _window_column(node, schema, inputs))


def _together(node: Node, flows: list[Planned]) -> Planned:
    """The columns of a table that several flows feed; a flow leaves out what it does not have."""
    from pyspark.sql.types import StructType

    fields: dict[str, Any] = {}
    for part, planned in zip(node.parts, flows, strict=True):
        for column in planned.schema.fields:
            other = fields.setdefault(column.name.lower(), column)
            if other.dataType.simpleString() != column.dataType.simpleString():
                raise _error(
                    part,
                    f"returns {column.name} {column.dataType.simpleString()}, another flow of "
                    f"{node.name!r} {other.name} {other.dataType.simpleString()}",
                    "cast it to one type",
                )
    together = StructType(list(fields.values()))
    _refuse_table_rules(node, together)
    _refuse_layout(node, together)
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


def _empty(
    node: Node, upstream: Topic | Outside | Node, how: Read, session: SparkSession
) -> DataFrame:
    """An empty frame with the columns of what a table reads."""
    from pyspark.sql.types import StructType

    if isinstance(upstream, Topic):
        return kafka.empty_frame(session)
    if isinstance(upstream, Node):
        schema = plan_table(upstream, session).schema
    else:
        table = LakeTable.open(upstream.path)
        if table is None:
            raise _error(
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
        raise _error(
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
        raise _error(node, _reason(error), f"correct the function; {has}") from None
    except Exception as error:
        raise _error(
            node, f"its function raised {type(error).__name__}: {error}", "correct the function"
        ) from error
    if schema is None:
        raise _error(
            node,
            f"its function returned {type(result).__name__}, not a DataFrame",
            "return a DataFrame",
        )
    frame: DataFrame = result
    return frame


def _reason(error: Any) -> str:
    text = str(error.getMessage() if hasattr(error, "getMessage") else error)
    return text.split(";\n")[0].split("\n\nJVM stacktrace")[0].splitlines()[0]


def _refuse_names(node: Node, schema: StructType) -> None:
    seen: set[str] = set()
    for name in schema.names:
        if name.lower() in seen:
            raise _error(
                node, f"its function returns two columns {name!r}", "rename or drop one of them"
            )
        known = name in (*OURS, *CHANGE_COLUMNS, START, END)
        free = _is_imported(node) and not OF_BATCHES.fullmatch(name)
        if name.startswith("_") and not known and not free:
            raise _error(
                node,
                f"its function returns the column {name!r}: names that begin with _ are reserved",
                "give it another name",
            )
        seen.add(name.lower())


def _is_imported(node: Node) -> bool:
    """Whether a table comes from a program of another product, or only passes such rows on."""
    if hasattr(node.table.function, "of_program"):
        return True
    passes_on = node.table.changes is not None
    return passes_on and any(
        isinstance(u, Node) and _is_imported(u) for u in node.upstreams.values()
    )


def _refuse_state(node: Node, result: DataFrame) -> None:
    """A function that is given a decoded batch knows nothing of the batches before."""
    if node.payload is None:
        return
    session = result.sparkSession
    view = f"kafka_assets_plan_{node.name}"
    result.createOrReplaceTempView(view)
    plan = str(session.sql(f"EXPLAIN EXTENDED SELECT * FROM {view}").collect()[0][0])  # noqa: S608
    session.catalog.dropTempView(view)
    analyzed = plan.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized")[0]
    found = next((words for name, words in STATEFUL.items() if re.search(name, analyzed)), None)
    if found is not None:
        raise _error(
            node,
            f"its function keeps state ({found}), and with schema= it is given each batch alone",
            "decode in this table, and let another streaming_table read it and do that",
        )


def _refuse_lost_source(node: Node, sources: list[str], inputs: Mapping[str, DataFrame]) -> None:
    table = node.table
    if sources or not table.may_have_dead_letters or table.kind != "streaming_table":
        return
    had = any("_source" in frame.columns for frame in inputs.values())
    if had or node.payload is not None:
        raise _error(
            node,
            "its rows can become dead letters, but its function loses _source, which says where a "
            "row came from",
            'keep it: .select("_source", ...); or aggregate in a windowed_table or a '
            "materialized_view",
        )


def _refuse_for_kafka(node: Node, schema: StructType) -> None:
    """What goes to a topic has a value, and nothing that Kafka has no place for."""
    sink = node.table.sink
    if sink is None or sink.format != "kafka":
        return
    kinds = {f.name: f.dataType.simpleString() for f in schema.fields}
    texts = ("string", "binary")
    unknown = [name for name in kinds if name not in (*KAFKA_SINK, "_source", "_key", "_headers")]
    if kinds.get("value") not in texts or kinds.get("key", "string") not in texts or unknown:
        raise _error(
            node,
            f"the Kafka sink {sink.name!r} takes value and key as string or binary, headers and "
            f"partition, and gets {', '.join(f'{n} {t}' for n, t in kinds.items())}",
            'let the function return .selectExpr("key", "to_json(struct(*)) AS value")',
        )


def _refuse_layout(node: Node, schema: StructType) -> None:
    options = node.table.options
    for option, names in (
        ("partition_by", options.partition_by),
        ("cluster_by", options.cluster_by),
        ("column_comments", tuple(options.column_comments)),
    ):
        missing = [name for name in names if name not in schema.names]
        if missing:
            raise _error(
                node,
                f"{option}= names {', '.join(missing)}, which is no column of the table",
                f"use columns that the function returns: {', '.join(schema.names)}",
            )


def _refuse_table_rules(node: Node, schema: StructType) -> None:
    for rule in node.table.table_expectations:
        missing = [name for name in rule.columns if name not in schema.names]
        if missing:
            raise _error(
                node,
                f"expectation {rule.name!r} ({rule.place}) is about {', '.join(missing)}, which "
                "is no column of the table",
                f"use columns that the function returns: {', '.join(schema.names)}",
            )


def _refuse_missing_keys(node: Node, schema: StructType) -> None:
    missing = [key for key in node.table.keys if key not in schema.names]
    if missing:
        raise _error(
            node,
            f"keys={list(node.table.keys)}: its result has no column {', '.join(missing)}",
            f"use columns that the function returns: {', '.join(schema.names)}",
        )


def _refuse_rule(node: Node, expectation: Expectation, result: DataFrame) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    rule = expectation.rule
    try:
        column = F.expr(rule) if isinstance(rule, str) else rule()
        kind = result.select(column.alias("rule")).schema["rule"].dataType.simpleString()
    except PySparkException as error:
        raise _error(
            node,
            f"expectation {expectation.name!r} ({expectation.place}): {expectation.text!r}: "
            f"{_reason(error)}",
            f"use columns that the function returns: {', '.join(result.columns)}",
        ) from None
    if kind != "boolean":
        raise _error(
            node,
            f"expectation {expectation.name!r} ({expectation.place}): {expectation.text!r} is of "
            f"type {kind}, not a condition",
            "compare it with something",
        )


def _window_column(node: Node, schema: StructType, inputs: Mapping[str, DataFrame]) -> str | None:
    table = node.table
    if table.kind != "windowed_table":
        return None
    (frame,) = inputs.values()
    if table.event_time not in frame.columns:
        raise _error(
            node,
            f"event_time={table.event_time!r} is no column of {', '.join(map(repr, inputs))}",
            f"use one of {', '.join(frame.columns)}",
        )
    kinds = {f.name: f.dataType.simpleString() for f in schema.fields}
    if frame.schema[str(table.event_time)].dataType.simpleString() != "timestamp":
        raise _error(node, f"event_time={table.event_time!r} is no timestamp", "cast it upstream")
    times = [name for name, kind in kinds.items() if kind == "timestamp"]
    if table.window_column is not None:
        if table.window_column not in times:
            raise _error(
                node,
                f"window_column={table.window_column!r} is no timestamp column of its result",
                f"use one of {', '.join(times) or '(it has none)'}",
            )
        return table.window_column
    if len(times) != 1:
        raise _error(
            node,
            f"its result has {len(times)} timestamp columns ({', '.join(times) or 'none'}), so it "
            "is not clear which one says the window",
            "name it with window_column=, and let the function return it",
        )
    return times[0]


def _error(node: Node, what: str, fix: str) -> PlanError:
    if node.flow is not None:
        about = f"table {node.name!r}, flow {node.flow.name!r} ({node.flow.place})"
    else:
        about = f"table {node.name!r} ({node.table.place})"
    return PlanError(f"{about}: {what}", fix=fix)
