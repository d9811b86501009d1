"""Making a checkpoint, or the record of what it belongs to, anew from what the table itself has.

Which states call for it is `repair`'s to say.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from kafka_assets.declarations import Topic
from kafka_assets.errors import OperationRefused
from kafka_assets.graph import Node
from kafka_assets.operations.losses import (
    Lost,
    behind_losses,
    losses_of,
    stood_at,
    with_topics,
    write_batch,
)
from kafka_assets.settings import Settings
from kafka_assets.sources.kafka import TopicState
from kafka_assets.streaming.belonging import open_letters, record_of
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.tables import LakeTable


def rebuild(
    node: Node, table: LakeTable, states: Mapping[str, TopicState], settings: Settings, accept: bool
) -> str:
    """Make a lost checkpoint anew: everything that the table has was read, and no more."""
    left = Checkpoint.read(node.checkpoint)
    sources = stood_at(node, left)
    _refuse_new_topics(node, table, states, accept)
    onward: dict[str, Mapping[int, int]] = {}
    losses: list[Lost] = []
    for topic, state in states.items():
        ends = _ends_of_rows(node, table, topic)
        behind = [p for p, end in ends.items() if end > state.end.get(p, -1)]
        if behind:
            raise OperationRefused(
                f"table {node.name!r} has rows beyond the end of {topic}/{behind[0]}: the topic is "
                "not the one that they came from; nothing was changed",
                fix=f"kafka-assets reset {node.name} (says first which rows would be lost)",
            )
        saved = {**dict.fromkeys(state.earliest, 0), **ends}
        losses += losses_of(state, saved)
        onward[topic] = behind_losses(state, saved)
    if losses and not accept:
        raise OperationRefused(
            f"table {node.name!r} has no row of {', '.join(map(str, losses))}, and these records "
            "are gone: whether it ever read them cannot be known; nothing was changed",
            fix=f"kafka-assets repair {node.name} --accept-loss",
        )
    info = {"accepted_loss": [vars(x) for x in losses]} if losses else {}
    query = replace(left, query_id=str(uuid.uuid4()))
    write_batch(table, query, 0, with_topics(sources, onward), info, settings)
    for log in ("offsets", "commits"):
        for batch_id in left.batches(log):
            if batch_id > 0:
                left.set_aside(log, batch_id)
    if not left.record:
        query.write_record(record_of(node, table, open_letters(node), states))
    # Only now: without it the fence refuses whatever is here, and a repair begins anew.
    query.create()
    at = ", ".join(f"{t}/{p} at {o}" for t, ends in onward.items() for p, o in ends.items())
    return f"the checkpoint was made anew from the rows of the table: {at}"


def write_record(
    node: Node,
    table: LakeTable,
    checkpoint: Checkpoint,
    states: Mapping[str, TopicState],
    accept: bool,
) -> str:
    """Write down anew what a checkpoint belongs to, as far as its own commits say it."""
    now = record_of(node, table, open_letters(node), states)
    before = _recorded_ids(table, checkpoint.query_id)
    if not before.keys() >= now["sources"].keys() and not accept:
        raise _unknown_sources(node, now["sources"].keys() - before.keys())
    checkpoint.write_record({**now, "sources": {**now["sources"], **before}})
    return "what the checkpoint belongs to was written down anew"


def _refuse_new_topics(
    node: Node, table: LakeTable, states: Mapping[str, TopicState], accept: bool
) -> None:
    before = _recorded_ids(table)
    for topic, state in states.items():
        if before.get(topic, state.topic_id) != state.topic_id:
            raise OperationRefused(
                f"table {node.name!r} has rows of a topic {topic!r} that was deleted and made anew "
                f"since (id {before[topic]} before, {state.topic_id} now): going on behind them "
                "would pass over its first records; nothing was changed",
                fix=f"kafka-assets reset {node.name} (says first which rows would be lost)",
            )
    unknown = states.keys() - before.keys()
    if unknown and not accept:
        raise _unknown_sources(node, unknown)


def _recorded_ids(table: LakeTable, query_id: str | None = None) -> dict[str, str]:
    """The ids of what was read, as the newest commits that name them say; of one query, or of any.

    Args:
        table: The table.
        query_id: The query; None for any.
    """
    found: dict[str, str] = {}
    for commit in table.commits():
        if query_id in (None, commit.query_id):
            found = {**commit.info.get("sources", {}), **found}
    return found


def _unknown_sources(node: Node, names: Iterable[str]) -> OperationRefused:
    return OperationRefused(
        f"table {node.name!r}: none of its commits says which {', '.join(sorted(names))} it has "
        "read; if that was deleted and made anew since, its first records would be passed over. "
        "Nothing was changed",
        fix=f"kafka-assets repair {node.name} --accept-loss, if you know that it was not; or "
        f"kafka-assets reset {node.name}",
    )


def refuse_rows_of_others(node: Node, others: tuple[Node, ...]) -> None:
    """Rows do not say which flow they are from: only their topic can tell."""
    for stream in node.streams:
        if not isinstance(stream, Topic):
            raise OperationRefused(
                f"table {node.name!r} reads {stream.name!r}, which is no topic, beside one: how "
                "far it came there its rows do not say; nothing was changed",
                fix=f"kafka-assets reset {node.name} (says first which rows would be lost)",
            )
    for other in others:
        shared = _topics_of(other) & {topic.topic for topic in node.topics}
        if shared and node.flow is not None and other.flow is not None:
            raise OperationRefused(
                f"table {node.name!r}: the checkpoint of its flow {node.flow.name!r} cannot be "
                f"made anew from the table's rows, because its flow {other.flow.name!r} brings "
                f"rows of {', '.join(sorted(shared))} too, and a row does not say which flow it "
                "is from; nothing was changed",
                fix=f"kafka-assets reset {node.name} (says first which rows would be lost)",
            )


def _topics_of(node: Node) -> set[str]:
    """The topics that a table's rows are from, also through the tables that it reads."""
    found = {topic.topic for topic in node.topics}
    for stream in node.streams:
        if isinstance(stream, Node):
            found |= _topics_of(stream)
    return found


def _ends_of_rows(node: Node, table: LakeTable, topic: str) -> dict[int, int]:
    """Partition -> the offset after the last record that the table or its letters have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ends: dict[int, int] = {}
    places = [table]
    if node.may_have_dead_letters:
        letters = LakeTable.open(node.dead_letters_path)
        places += [letters] if letters is not None else []
    for place in places:
        columns = place.columns
        nested = "_source" in columns
        if not nested and not {"topic", "partition", "offset"} <= set(columns):
            raise OperationRefused(
                f"table {node.name!r} at {node.path} does not keep topic, partition and offset of "
                "its rows: its checkpoint cannot be made anew from them",
                fix=f"kafka-assets reset {node.name}",
            )
        at = ("_source",) if nested else ("topic", "partition", "offset")
        if place is table:
            rows = place.read(at)
        else:
            # Letters go first: of a batch that the table does not have, the rows are still to come.
            rows = place.read((*at, "query_id", "batch_id"))
            queries = rows["query_id"].unique().to_pylist()
            has = {query: table.transaction(str(query)) for query in queries}
            written = [has[query] for query in rows["query_id"].to_pylist()]
            rows = rows.filter(pc.less_equal(rows["batch_id"], pa.array(written, pa.int64())))
        if nested:
            rows = rows.flatten().rename_columns(
                [name.removeprefix("_source.") for name in rows.flatten().column_names]
            )
        rows = rows.filter(pc.equal(rows["topic"], topic))
        found = rows.group_by("partition").aggregate([("offset", "max")])
        for row in found.to_pylist():
            last = int(row["offset_max"]) + 1
            ends[int(row["partition"])] = max(ends.get(int(row["partition"]), 0), last)
    return ends
