"""Whether a run has so few rows before it that Spark had better not make code for them.

Spark writes, compiles and loads Java code for every query, and the JVM has to get used to it: for a
trickle of rows this is a quarter of a run's work. Without it each row costs more, which only counts
when there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafka_assets.declarations import Topic
from kafka_assets.graph import Files, Node, Outside
from kafka_assets.sources.kafka import TopicState
from kafka_assets.streaming.fence import Position, reached
from kafka_assets.streaming.tables import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = 1_000
"""Rows up to which a run's queries are interpreted."""

MANY_COMMITS = 100
"""To count the rows of more would take longer than it could save."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def engine_conf(
    node: Node,
    session: SparkSession,
    topics: Mapping[str, TopicState] | None = None,
    position: Position | None = None,
) -> dict[str, str]:
    """The engine's settings of one run: the table's own, and how its queries are carried out.

    Args:
        node: The table or flow.
        session: Where it runs; what somebody chose for it is left as it is.
        topics: State of the topics that it reads.
        position: Where its stream goes on; None for a view, which reads all.
    """
    return _conf(node, session, lambda: _rows_before(node, topics or {}, position))


def engine_conf_of_letters(node: Node, session: SparkSession, letters: int) -> dict[str, str]:
    """The same for dead letters that are tried again."""

    def rows() -> float:
        if any(one.read == "static" for one in node.inputs):
            return float("inf")
        # Whether a record has rows already is asked of each row, and that is little work.
        return letters + LakeTable.existing(node.path).rows / 100

    return _conf(node, session, rows)


def _conf(node: Node, session: SparkSession, rows: Callable[[], float]) -> dict[str, str]:
    own = dict(node.table.options.spark_conf)
    if any(name in own or session.conf.get(name, None) is not None for name in INTERPRETED):
        return own
    return {**INTERPRETED, **own} if rows() <= FEW else own


def _rows_before(node: Node, topics: Mapping[str, TopicState], position: Position | None) -> float:
    """About so many rows will be read, as commits and offsets tell; infinity where they do not.

    A folder's rows are not known, nor those of a table that somebody else writes.
    """
    rows = 0.0
    for one in node.inputs:
        if isinstance(one.source, Files | Outside):
            return float("inf")
        if isinstance(one.source, Topic):
            rows += _waiting(topics[one.source.topic], position)
        elif position is None or one.read == "static" or _looks_back(node):
            rows += _rows_of(one.source)
        else:
            rows += _rows_since(one.source, position, changes=one.read == "changes")
    own = LakeTable.open(node.path) if _looks_back(node) else None
    return rows + (0 if own is None else own.rows)


def _looks_back(node: Node) -> bool:
    """Whether its batches read more than their own rows: windows, and rows of the same key."""
    return node.table.kind == "windowed_table" or node.is_merged


def _waiting(topic: TopicState, position: Position | None) -> int:
    begin = dict(topic.earliest)
    if position is not None and position.checkpoint.query_id is not None:
        begin = reached(position.checkpoint, position.committed, topic)
    return sum(max(0, end - begin.get(p, 0)) for p, end in topic.end.items())


def _rows_of(source: Node) -> int:
    table = LakeTable.open(source.path)
    return 0 if table is None else table.rows


def _rows_since(source: Node, position: Position, *, changes: bool) -> float:
    """Rows that were committed since a stream read a table, or changed."""
    table = LakeTable.open(source.path)
    if table is None:
        return 0
    checkpoint = position.checkpoint
    done = checkpoint.position(checkpoint.last_commit, table_id=table.table_id)
    if done is None or done.get("isStartingVersion"):
        # The feed of changes has every state that a row ever had.
        return float("inf") if changes else table.rows
    # The version that it stands at may have been read in part.
    read = int(done["reservoirVersion"]) - 1
    if table.version - read > MANY_COMMITS:
        return float("inf")
    commits = table.commits(after=read)
    if changes:
        return sum(2 * abs(commit.rows) + commit.removed for commit in commits)
    return sum(max(0, commit.rows) for commit in commits)
