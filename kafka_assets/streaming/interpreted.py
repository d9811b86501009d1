"""Whether a run has so few rows before it that Spark had better not make code for them.

Spark writes, compiles and loads Java code for every query, and the JVM has to get used to it: for a
trickle of rows this is a quarter of a run's work. Without it each row costs more, which only counts
when there are many.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_assets.declarations import Topic
from kafka_assets.graph import Files, Node, Outside
from kafka_assets.settings import Settings
from kafka_assets.sources.kafka import TopicState
from kafka_assets.streaming.fence import Position, reached
from kafka_assets.streaming.tables import LakeTable

FEW = 1_000
"""Rows up to which a run's queries are interpreted."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def engine_conf(
    node: Node,
    settings: Settings,
    topics: Mapping[str, TopicState] | None = None,
    position: Position | None = None,
) -> dict[str, str]:
    """The engine's settings of one run: the table's own, and how its queries are carried out.

    Args:
        node: The table or flow.
        settings: Those of the session that somebody chose are left as they are.
        topics: State of the topics that it reads.
        position: Where its stream goes on; None for a view, which reads all.
    """
    own = dict(node.table.options.spark_conf)
    if any(name in own or name in settings.spark.conf for name in INTERPRETED):
        return own
    few = _rows_before(node, topics or {}, position) <= FEW
    return {**INTERPRETED, **own} if few else own


def _rows_before(node: Node, topics: Mapping[str, TopicState], position: Position | None) -> float:
    """At most so many rows will be read, as far as that is known without reading them."""
    rows = 0.0
    for one in node.inputs:
        if isinstance(one.source, Files):
            return float("inf")
        if isinstance(one.source, Topic):
            rows += _waiting(topics[one.source.topic], position)
        else:
            whole = position is None or one.read == "static" or _looks_back(node)
            rows += _rows_of(one.source, None if whole else position)
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


def _rows_of(source: Outside | Node, position: Position | None) -> int:
    """Rows of a table, or those that were committed since a stream read it."""
    table = LakeTable.open(source.path)
    if table is None:
        return 0
    done = None
    if position is not None:
        checkpoint = position.checkpoint
        done = checkpoint.position(checkpoint.last_commit, table_id=table.table_id)
    if done is None:
        return table.rows
    # The version that it stands at may have been read in part.
    return sum(c.rows for c in table.commits(after=int(done["reservoirVersion"]) - 1))
