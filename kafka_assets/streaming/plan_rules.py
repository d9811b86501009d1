"""What a plan refuses: results of a function that a table of its kind cannot be made of.

Each refusal names the table, file, line and the fix. How a function is run on empty frames is
`plan`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafka_assets.declarations import RESCUED, Rule
from kafka_assets.errors import PlanError
from kafka_assets.graph import Files, Node, Source
from kafka_assets.streaming import spec
from kafka_assets.streaming.changes import END, START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
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

_VARIES = re.compile(
    r"(?i)\b(current_timestamp|current_date|localtimestamp|now|rand|randn|randstr|uuid|shuffle)\("
)
"""Expressions that give another value each time that a row is computed."""

STATEFUL = {
    r"Deduplicate": "dropDuplicates",
    r"EventTimeWatermark": "withWatermark",
    r"Aggregate\b": "groupBy",
    r"Window\b": "a window function",
    r"GlobalLimit\b": "limit",
    r"(CoGroup|FlatMap\w*Groups|MapGroups|TransformWithState)": "a function of groups",
}
"""Operators of Spark's plans that look at more rows than one, and what an author calls them."""

SEVERAL = {**STATEFUL, r"(Join|Distinct|Intersect|Except)\b": "a join or a comparison of rows"}
"""The same with those that may put rows of the stream beside each other."""

KAFKA_SINK = ("key", "value", "headers", "partition")
"""Columns that a row for a Kafka topic may have."""


def refuse_result(node: Node, result: DataFrame, inputs: Mapping[str, DataFrame]) -> None:
    """Refuse what a table's function, or one of its flows', returned.

    Args:
        node: The table or flow.
        result: What the function made of empty frames.
        inputs: These frames.

    Raises:
        PlanError: Names the table, file, line and the fix.
    """
    schema = result.schema
    _refuse_state(node, result)
    _refuse_names(node, schema)
    _refuse_lost_source(node, schema, inputs)
    _refuse_missing(node, "keys=", node.table.keys, schema)
    _refuse_for_kafka(node, schema)
    for one in node.table.expectations:
        _refuse_rule(node, f"expectation {one.name!r} ({one.place})", one.rule, result)
    # One flow of several may lack columns, which are null then.
    constraints = node.table.options.constraints if node.flow is None else {}
    for name, condition in constraints.items():
        _refuse_rule(node, f"constraint {name!r}", condition, result)


def refuse_columns(node: Node, schema: StructType) -> None:
    """Refuse options and expectations that name columns which the table as a whole does not have.

    Raises:
        PlanError: Names the table, file, line and the fix.
    """
    options = node.table.options
    _refuse_missing(node, "partition_by=", options.partition_by, schema)
    _refuse_missing(node, "cluster_by=", options.cluster_by, schema)
    _refuse_missing(node, "column_comments=", options.column_comments, schema)
    for rule in node.table.table_expectations:
        _refuse_missing(node, f"expectation {rule.name!r} ({rule.place})", rule.columns, schema)


def _refuse_missing(node: Node, what: str, names: Iterable[str], schema: StructType) -> None:
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise plan_error(
            node,
            f"{what} names {', '.join(missing)}, which is no column of its result",
            f"use columns that the function returns: {', '.join(schema.names)}",
        )


def _refuse_state(node: Node, result: DataFrame) -> None:
    """A function that is given a decoded batch knows nothing of the batches before."""
    found = None if node.payload is None else operator_in(analyzed(node, result), STATEFUL)
    if found is not None:
        raise plan_error(
            node,
            f"its function keeps state ({found}), and with schema= it is given each batch alone",
            "decode in this table, and let another streaming_table read it and do that",
        )


def may_be_alone(node: Node, result: DataFrame, columns: Callable[[Source], list[str]]) -> bool:
    """Whether a function that runs as a part of the query could be given each batch by itself.

    It reads one stream, whose rows say which record they came from, and looks at each of them
    without the others.

    Args:
        node: The table or flow.
        result: What the function made of empty frames.
        columns: Gives the columns of what it reads.
    """
    table = node.table
    dies = table.kind == "streaming_table" and table.may_have_dead_letters and not table.keys
    if not dies or node.payload is not None or [i.read for i in node.inputs] != ["stream"]:
        return False
    (only,) = node.inputs
    if isinstance(only.source, Files) or not _is_chain(node):
        return False
    names = set(columns(only.source))
    placed = "_source" in names or {"topic", "partition", "offset", "timestamp"} <= names
    return placed and operator_in(analyzed(node, result), SEVERAL) is None


def _is_chain(node: Node) -> bool:
    """Whether a table, and each view that it reads its source through, has one upstream."""
    if len(node.upstreams) != 1:
        return False
    (upstream,) = node.upstreams.values()
    return not (isinstance(upstream, Node) and upstream.is_view) or _is_chain(upstream)


def varies(node: Node, result: DataFrame) -> bool:
    """Whether the function or a rule asks for the time, or for chance."""
    rules = [spec.Rule(e.name, e.action, e.rule, e.above) for e in node.table.expectations]
    looked_at = result.select("*", *[rule.broken().alias(f"_{i}") for i, rule in enumerate(rules)])
    return _VARIES.search(analyzed(node, looked_at)) is not None


def may_be_endless(node: Node, result: DataFrame) -> bool:
    """Whether it may aggregate a stream of which no group is ever complete."""
    table = node.table
    appends = table.kind == "streaming_table" and not table.keys and not node.decodes
    if not appends or not node.streams:
        return False
    if "_source" in result.columns or {"topic", "partition", "offset"} <= set(result.columns):
        # Rows of one record each: to ask Spark for the plan takes time.
        return False
    return operator_in(analyzed(node, result), {r"Aggregate\b": "groupBy"}) is not None


def refuse_endless(node: Node, result: DataFrame) -> None:
    """Refuse an aggregate whose rows are only appended, and that has no watermark.

    Args:
        node: The table or flow.
        result: What the function made of streams: Spark forgets watermarks of other frames.

    Raises:
        PlanError: Names the table, file, line and the fix.
    """
    plan = analyzed(node, result)
    # What a stream comes through has this sign; a table that is looked up may be aggregated.
    endless = operator_in(plan, {r"~Aggregate\b": "groupBy"})
    if endless and not operator_in(plan, {r"~EventTimeWatermark": "withWatermark"}):
        raise plan_error(
            node,
            "it aggregates a stream without a watermark: no group is ever complete, so no row "
            "would come",
            "name the columns that it groups by in keys=, and its rows are updated; or call "
            "withWatermark and group by a window of that column; or make it a windowed_table or "
            "a materialized_view",
        )


def operator_in(plan: str, operators: Mapping[str, str]) -> str | None:
    """Which of these operators a plan from `analyzed` uses, in the author's words."""
    # An operator begins its line; columns and texts of the same name stand behind one.
    for name, words in operators.items():
        if re.search(rf"(?m)^[\s:+|-]*{name}", plan):
            return words
    return None


def analyzed(node: Node, result: DataFrame) -> str:
    """What a frame is computed by, as Spark understood it."""
    session = result.sparkSession
    view = f"kafka_assets_plan_{node.name}"
    result.createOrReplaceTempView(view)
    plan = str(session.sql(f"EXPLAIN EXTENDED SELECT * FROM {view}").collect()[0][0])  # noqa: S608
    session.catalog.dropTempView(view)
    return plan.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized")[0]


def _refuse_names(node: Node, schema: StructType) -> None:
    seen: set[str] = set()
    for name in schema.names:
        if name.lower() in seen:
            raise plan_error(
                node, f"its function returns two columns {name!r}", "rename or drop one of them"
            )
        known = name in (*OURS, *CHANGE_COLUMNS, START, END, RESCUED)
        free = _is_imported(node) and not OF_BATCHES.fullmatch(name)
        if name.startswith("_") and not known and not free:
            raise plan_error(
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


def _refuse_lost_source(node: Node, schema: StructType, inputs: Mapping[str, DataFrame]) -> None:
    table = node.table
    can_die = table.may_have_dead_letters and table.kind == "streaming_table"
    if "_source" in schema.names or not can_die:
        return
    had = any("_source" in frame.columns for frame in inputs.values())
    if had or node.payload is not None:
        raise plan_error(
            node,
            "its rows can become dead letters, but its function loses _source, which says where a "
            "row came from",
            'keep it: .select("_source", ...); or aggregate in a windowed_table or a '
            "materialized_view",
        )


def _refuse_for_kafka(node: Node, schema: StructType) -> None:
    """What goes to a topic has a value, and nothing that Kafka has no place for."""
    sink = node.table.sink
    if sink is None or not node.goes_to_kafka:
        return
    kinds = {f.name: f.dataType.simpleString() for f in schema.fields}
    texts = ("string", "binary")
    unknown = [name for name in kinds if name not in (*KAFKA_SINK, "_source", "_key", "_headers")]
    if kinds.get("value") not in texts or kinds.get("key", "string") not in texts or unknown:
        raise plan_error(
            node,
            f"the Kafka sink {sink.name!r} takes value and key as string or binary, headers and "
            f"partition, and gets {', '.join(f'{n} {t}' for n, t in kinds.items())}",
            'let the function return .selectExpr("key", "to_json(struct(*)) AS value")',
        )


def _refuse_rule(node: Node, what: str, rule: Rule, result: DataFrame) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    text = rule if isinstance(rule, str) else f"{rule.__name__}()"
    try:
        column = F.expr(rule) if isinstance(rule, str) else rule()
        kind = result.select(column.alias("rule")).schema["rule"].dataType.simpleString()
    except PySparkException as error:
        raise plan_error(
            node,
            f"{what}: {text!r}: {reason(error)}",
            f"use columns that the function returns: {', '.join(result.columns)}",
        ) from None
    if kind != "boolean":
        raise plan_error(
            node,
            f"{what}: {text!r} is of type {kind}, not a condition",
            "compare it with something",
        )


def window_column(node: Node, schema: StructType, inputs: Mapping[str, DataFrame]) -> str | None:
    """Of a windowed table, the column of its result that lies inside the window.

    Raises:
        PlanError: There is none, or it is not clear which.
    """
    table = node.table
    if table.kind != "windowed_table":
        return None
    (frame,) = inputs.values()
    if table.event_time not in frame.columns:
        raise plan_error(
            node,
            f"event_time={table.event_time!r} is no column of {', '.join(map(repr, inputs))}",
            f"use one of {', '.join(frame.columns)}",
        )
    kinds = {f.name: f.dataType.simpleString() for f in schema.fields}
    if frame.schema[str(table.event_time)].dataType.simpleString() != "timestamp":
        raise plan_error(
            node, f"event_time={table.event_time!r} is no timestamp", "cast it upstream"
        )
    times = [name for name, kind in kinds.items() if kind == "timestamp"]
    if table.window_column is not None:
        if table.window_column not in times:
            raise plan_error(
                node,
                f"window_column={table.window_column!r} is no timestamp column of its result",
                f"use one of {', '.join(times) or '(it has none)'}",
            )
        return table.window_column
    if len(times) != 1:
        raise plan_error(
            node,
            f"its result has {len(times)} timestamp columns ({', '.join(times) or 'none'}), so it "
            "is not clear which one says the window",
            "name it with window_column=, and let the function return it",
        )
    return times[0]


def reason(error: Any) -> str:
    """The first line of what Spark says is wrong."""
    text = str(error.getMessage() if hasattr(error, "getMessage") else error)
    return text.split(";\n")[0].split("\n\nJVM stacktrace")[0].splitlines()[0]


def plan_error(node: Node, what: str, fix: str) -> PlanError:
    """An error that names the table, or its flow, and where that is declared."""
    if node.flow is not None:
        about = f"table {node.name!r}, flow {node.flow.name!r} ({node.flow.place})"
    else:
        about = f"table {node.name!r} ({node.table.place})"
    return PlanError(f"{about}: {what}", fix=fix)
