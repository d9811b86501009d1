"""Whether checkpoint, table and source still fit together, before anything is written.

Allowed are two states: clean, and one batch that an earlier run began and did not finish. Anything
else is refused by name. Why each of them would lose or double rows is said in its message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_assets.declarations import Topic
from kafka_assets.errors import FenceRefused
from kafka_assets.graph import Node
from kafka_assets.sources.kafka import TopicState
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.tables import LakeTable


@dataclass(frozen=True)
class Position:
    """Where a stream may go on.

    Attributes:
        checkpoint: The checkpoint as found.
        committed: The last batch that the table has, or -1.
        replayed: The batch that an earlier run began and did not finish, or -1.
    """

    checkpoint: Checkpoint
    committed: int
    replayed: int


def check(node: Node, table: LakeTable, topics: Mapping[str, TopicState]) -> Position:
    """Compare checkpoint, table and source.

    Args:
        node: The table's place in the graph.
        table: The table as it lies in the lake.
        topics: State of the topic that the table reads; empty for a table that reads a table.

    Returns:
        Where the stream may go on.

    Raises:
        FenceRefused: They do not fit; names the state, what would be lost or doubled, and the fix.
    """
    try:
        checkpoint = Checkpoint.read(node.checkpoint)
    except ValueError as error:
        raise FenceRefused(
            "checkpoint_damaged",
            f"table {node.name!r}: {error}; nothing was read or written",
            fix=f"restore {node.checkpoint} from a backup, whole",
        ) from None
    _refuse_lost_checkpoint(node, table, checkpoint)
    sources = source_ids(node, topics)
    record = {"table_id": table.table_id, "sources": sources}
    if checkpoint.query_id is None:
        checkpoint.write_record(record)
        return Position(checkpoint, committed=-1, replayed=-1)
    _refuse_other_table(node, table, checkpoint)
    _refuse_other_sources(node, checkpoint, sources)
    if not checkpoint.record:
        checkpoint.write_record(record)
    for state in topics.values():
        _refuse_lost_offsets(node, checkpoint, state)
    committed = table.transaction(checkpoint.query_id)
    _refuse_unknown_batches(node, checkpoint, committed)
    begun = checkpoint.last_offsets
    return Position(
        checkpoint,
        committed=committed,
        replayed=begun if begun > checkpoint.last_commit else -1,
    )


def source_ids(node: Node, topics: Mapping[str, TopicState]) -> dict[str, str]:
    """What a table reads, by ids that change when it is deleted and made anew."""
    ids: dict[str, str] = {}
    for name, upstream in node.upstreams.items():
        if isinstance(upstream, Topic):
            ids[name] = topics[upstream.topic].topic_id
        else:
            found = LakeTable.open(upstream.path)
            ids[name] = found.table_id if found is not None else "(none)"
    return ids


def _refuse_lost_checkpoint(node: Node, table: LakeTable, checkpoint: Checkpoint) -> None:
    if checkpoint.query_id is not None or (checkpoint.last_offsets < 0 and table.rows == 0):
        return
    raise FenceRefused(
        "checkpoint_lost",
        f"table {node.name!r} has {table.rows} rows at {node.path}, but its checkpoint "
        f"{node.checkpoint} is not there or has no metadata; starting anew would double the rows",
        fix=f"restore {node.checkpoint} from a backup; to start over, move {node.path} and "
        f"{node.checkpoint} away together",
    )


def _refuse_other_table(node: Node, table: LakeTable, checkpoint: Checkpoint) -> None:
    recorded = checkpoint.record.get("table_id", table.table_id)
    if recorded != table.table_id and checkpoint.last_offsets >= 0:
        raise FenceRefused(
            "table_replaced",
            f"table {node.name!r} at {node.path} is not the table (id {table.table_id}) that "
            f"its checkpoint wrote (id {recorded}); the rows written before would be missing",
            fix=f"restore the table, or move {node.path} and {node.checkpoint} away together",
        )


def _refuse_other_sources(node: Node, checkpoint: Checkpoint, sources: Mapping[str, str]) -> None:
    recorded: Mapping[str, Any] = checkpoint.record.get("sources", {})
    for name, now in sources.items():
        before = recorded.get(name, now)
        if before != now and checkpoint.last_offsets >= 0:
            raise FenceRefused(
                "source_recreated",
                f"table {node.name!r}: its upstream {name!r} was deleted and made anew (id "
                f"{before} before, {now} now); going on from the saved offsets would skip its "
                "first rows",
                fix=f"move {node.path} and {node.checkpoint} away together to read {name!r} from "
                "its start",
            )


def _refuse_lost_offsets(node: Node, checkpoint: Checkpoint, state: TopicState) -> None:
    done = checkpoint.end_offsets(checkpoint.last_commit) if checkpoint.last_commit >= 0 else []
    saved = done[0].get(state.topic, {}) if done else {}
    for partition, offset in saved.items():
        earliest = state.earliest.get(int(partition))
        end = state.end.get(int(partition))
        where = f"{state.topic}/{partition}"
        if earliest is None or end is None:
            raise FenceRefused(
                "partition_gone",
                f"table {node.name!r} has read {where} up to {offset}, and that partition is gone",
                fix="restore the topic",
            )
        if earliest > offset:
            raise FenceRefused(
                "offsets_lost",
                f"table {node.name!r} has read {where} up to {offset}, and the topic now begins at "
                f"{earliest}: {earliest - offset} offsets [{offset}, {earliest}) are gone",
                fix="restore the records; what was read before is kept",
            )
        if end < offset:
            raise FenceRefused(
                "offsets_went_back",
                f"table {node.name!r} has read {where} up to {offset}, and the topic now ends at "
                f"{end}: records that the table has are gone from the topic",
                fix="restore the topic",
            )


def _refuse_unknown_batches(node: Node, checkpoint: Checkpoint, committed: int) -> None:
    begun, finished = checkpoint.last_offsets, checkpoint.last_commit
    consistent = begun in (finished, finished + 1)
    if consistent and committed in (finished, begun):
        return
    raise FenceRefused(
        "batches_disagree",
        f"table {node.name!r}: its checkpoint {node.checkpoint} began batch {begun} and finished "
        f"batch {finished}, and the table has batch {committed} of it; going on would lose or "
        "double a batch",
        fix=f"restore {node.checkpoint} and {node.path} from the same moment",
    )
