"""Where the Kafka record of a row is found as it was, told from the plan of empty frames."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from kafka_assets.graph import Node
from kafka_assets.streaming.dead_letters import AT, RECORD
from kafka_assets.streaming.plan_rules import analyzed, operator_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Kept = Literal["row", "batch"]

RAW = {"key", "value", "headers", "topic", "partition", "offset", "timestamp"}
"""Columns that an upstream needs to be decoded."""

_OF_PYTHON = {r"\w*(Map|TransformWith)": "a Python function of rows"}
_UNION = {r"Union\b": "a union"}
_COMPUTED = {rf".*(\bAS ({'|'.join(sorted(RAW))})#|more fields)": "a computed column"}
"""What Spark's plans have where a column's mark says too little; see `_rows_are_records`."""

_MARK = "kafka_assets.read"
"""Says in a column's metadata which frame it was read from, and by which name."""


def records_of(node: Node, result: DataFrame, read: list[DataFrame], *, alone: bool) -> Kept | None:
    """Where the record of a row is found as it was; see `Planned`.

    Args:
        node: The table or flow.
        result: What the function made of empty frames.
        read: The frames that it was given, `marked` where they have records.
        alone: The function could be given each batch by itself.
    """
    held = [frame for frame in read if set(frame.columns) >= RAW]
    if not node.may_have_dead_letters or not held:
        return None
    if _rows_are_records(node, result):
        return "row"
    kinds = dict(result.dtypes)
    told = "_source" in kinds or all(kinds.get(name) == RECORD[name] for name in AT)
    return "batch" if alone and told and "_source" not in held[0].columns else None


def marked(frame: DataFrame, number: int) -> DataFrame:
    """An empty frame whose columns say that they are this frame's."""
    from pyspark.sql.types import StructField, StructType

    columns = [
        StructField(f.name, f.dataType, f.nullable, {**f.metadata, _MARK: f"{number} {f.name}"})
        for f in frame.schema.fields
    ]
    return frame.sparkSession.createDataFrame([], StructType(columns))


def unmarked(schema: StructType) -> StructType:
    """The same columns as they are without marks, also within structs."""

    def without(part: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name != _MARK}

    return type(schema).fromJson(json.loads(schema.json(), object_hook=without))


def _rows_are_records(node: Node, result: DataFrame) -> bool:
    """Whether all columns `RAW` of a result are those of one frame that was read.

    A column that was computed has the name of the one it took the place of, and not its mark. Two
    things pass on the mark alone: a union, which has the marks of its first part for the rows of
    all, and a Python function of rows that is declared with the schema of what it is given.
    """
    marks = {f.name: f.metadata.get(_MARK) for f in result.schema.fields if f.name in RAW}
    numbers = {str(mark).removesuffix(f" {name}") for name, mark in marks.items()}
    if set(marks) != RAW or len(numbers) != 1 or not numbers.pop().isdecimal():
        return False
    plan = analyzed(node, result)
    if operator_in(plan, _OF_PYTHON) is not None:
        return False
    return operator_in(plan, _UNION) is None or operator_in(plan, _COMPUTED) is None
