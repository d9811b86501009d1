"""What a checkpoint belongs to: its table, its flow, its dead letters, and what it reads, by ids.

The record of it lies beside the checkpoint and is made before the first batch; every commit names
the ids of what was read as well. Whether the rest of a checkpoint fits is `fence`'s to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_assets.declarations import Topic
from kafka_assets.errors import FenceRefused
from kafka_assets.graph import Files, Node
from kafka_assets.sources.kafka import TopicState
from kafka_assets.streaming.checkpoint import RECORD, Checkpoint
from kafka_assets.streaming.tables import LakeTable


def open_letters(node: Node) -> LakeTable | None:
    """The dead letters that a run of a table has to do with; None where there are none.

    Those of rows that are computed anew go with these rows, also when there is no rule any more.
    """
    computed = node.table.kind in ("windowed_table", "materialized_view")
    open_ = node.may_have_dead_letters or computed
    return LakeTable.open(node.dead_letters_path) if open_ else None


def record_of(
    node: Node, table: LakeTable, letters: LakeTable | None, topics: Mapping[str, TopicState]
) -> dict[str, Any]:
    """What a checkpoint belongs to, kept beside it.

    Args:
        node: The table or flow.
        table: The table as it lies in the lake.
        letters: Its dead letters.
        topics: State of the topics that it reads.

    Returns:
        `table_id`, `flow`, `letters_id` and `sources`; None for what there is none of.
    """
    return {
        "table_id": table.table_id,
        "flow": None if node.flow is None else node.flow.name,
        "letters_id": None if letters is None else letters.table_id,
        "sources": _source_ids(node, topics),
    }


def _source_ids(node: Node, topics: Mapping[str, TopicState]) -> dict[str, str]:
    """What a table reads, by ids that change when it is deleted and made anew."""
    ids: dict[str, str] = {}
    for upstream in node.streams:
        if isinstance(upstream, Topic):
            # By the broker's name: that in the graph may change.
            ids[upstream.topic] = topics[upstream.topic].topic_id
        elif isinstance(upstream, Files):
            ids[upstream.name] = upstream.path
        else:
            found = LakeTable.open(upstream.path)
            ids[upstream.name] = found.table_id if found is not None else "(none)"
    return ids


def complete_record(checkpoint: Checkpoint, now: Mapping[str, Any]) -> None:
    """Take up what has come since the record was made: a source, the first drop rule."""
    begun = checkpoint.last_offsets >= 0
    before = {name: v for name, v in checkpoint.record.items() if begun and v is not None}
    sources = {**now["sources"], **before.get("sources", {})}
    whole = {**now, **before, "sources": sources}
    if whole != checkpoint.record:
        checkpoint.write_record(whole)


def refuse_others(
    node: Node, table: LakeTable, checkpoint: Checkpoint, record: Mapping[str, Any]
) -> None:
    """Refuse a checkpoint that belongs to something else than it did.

    Args:
        node: The table or flow.
        table: The table as it lies in the lake.
        checkpoint: The checkpoint.
        record: What it would belong to today.

    Raises:
        FenceRefused: `record_lost`, `table_replaced`, `checkpoint_damaged` for that of another
            flow, `letters_replaced`, `other_folder` or `source_recreated`.
    """
    if checkpoint.last_offsets < 0:
        return
    _refuse_lost_record(node, checkpoint)
    _refuse_other_table(node, table, checkpoint)
    _refuse_other_flow(node, checkpoint)
    _refuse_other_letters(node, record["letters_id"], checkpoint)
    _refuse_other_sources(node, checkpoint, record["sources"])


def _refuse_lost_record(node: Node, checkpoint: Checkpoint) -> None:
    if checkpoint.record:
        return
    raise FenceRefused(
        "record_lost",
        f"table {node.name!r}: {checkpoint.path}/{RECORD} is missing, which says of what table and "
        "topic the checkpoint is; nothing was read or written",
        fix=f"restore it from a backup; or kafka-assets repair {node.name} (makes it anew from the "
        "table's commits)",
    )


def _refuse_other_table(node: Node, table: LakeTable, checkpoint: Checkpoint) -> None:
    recorded = checkpoint.record.get("table_id", table.table_id)
    if recorded != table.table_id:
        raise FenceRefused(
            "table_replaced",
            f"table {node.name!r} at {node.path} is not the table (id {table.table_id}) that "
            f"its checkpoint wrote (id {recorded}); the rows written before would be missing",
            fix=f"restore the table; or kafka-assets reset {node.name}",
        )


def _refuse_other_flow(node: Node, checkpoint: Checkpoint) -> None:
    flow = None if node.flow is None else node.flow.name
    of = checkpoint.record.get("flow") or flow
    if of != flow:
        raise FenceRefused(
            "checkpoint_damaged",
            f"table {node.name!r}: the checkpoint {checkpoint.path} of its flow {flow!r} is that "
            f"of its flow {of!r}; rows would be lost and doubled",
            fix=f"put the checkpoints back where they were; or kafka-assets reset {node.name}",
        )


def _refuse_other_letters(node: Node, now: str | None, checkpoint: Checkpoint) -> None:
    before = checkpoint.record.get("letters_id")
    if now is not None and before not in (None, now):
        raise FenceRefused(
            "letters_replaced",
            f"table {node.name!r}: its dead letters at {node.dead_letters_path} (id {now}) are "
            f"another table than the one that they were written to (id {before}); the letters "
            "written before are gone",
            fix=f"restore that table; or kafka-assets repair {node.name} --accept-loss (goes on "
            "without them)",
        )


def _refuse_other_sources(node: Node, checkpoint: Checkpoint, sources: Mapping[str, str]) -> None:
    recorded: Mapping[str, Any] = checkpoint.record.get("sources", {})
    folders = {source.name for source in node.streams if isinstance(source, Files)}
    for name, now in sources.items():
        before = recorded.get(name, now)
        if before != now and name in folders:
            raise FenceRefused(
                "other_folder",
                f"table {node.name!r} has read the files {name!r} at {before}, and they are "
                f"declared at {now} now; files that were moved there would be read again",
                fix=f"declare the new folder as a source of its own, with a flow of its own; or "
                f"kafka-assets reset {node.name} (says first which rows would be lost)",
            )
        if before != now:
            raise FenceRefused(
                "source_recreated",
                f"table {node.name!r}: its upstream {name!r} was deleted and made anew (id "
                f"{before} before, {now} now); going on from the saved offsets would skip its "
                "first rows",
                fix=f"kafka-assets reset {node.name} (says first which rows would be lost)",
            )


def refuse_made_anew(
    node: Node, before: Mapping[str, TopicState], now: Mapping[str, TopicState]
) -> None:
    """Refuse a run whose topic became another one while it was read.

    Args:
        node: The table.
        before: State of the topics that it streams, as the run began.
        now: Their state when it has read them.

    Raises:
        FenceRefused: `source_recreated`.
    """
    for topic, state in before.items():
        if now[topic].topic_id != state.topic_id:
            raise FenceRefused(
                "source_recreated",
                f"table {node.name!r}: its topic {topic!r} was deleted and made anew while it was "
                "read: records of the new one may stand among the rows that this run committed",
                fix=f"kafka-assets reset {node.name} (builds it anew from the new one)",
            )
