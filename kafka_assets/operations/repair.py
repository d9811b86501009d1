"""Letting a table go on whose checkpoint or source no longer fits, without guessing.

Each repair is one that provably loses and doubles nothing, or, for `accept_loss`, writes down what
is lost before it goes on. Which states there are is `streaming.fence`'s to say. Spark is started
only for tables that deltalake cannot write; each may be begun again after it was interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka_assets.declarations import Topic
from kafka_assets.errors import FenceRefused, OperationRefused
from kafka_assets.graph import Node
from kafka_assets.operations import audit
from kafka_assets.settings import Settings
from kafka_assets.sources.kafka import KafkaAdmin, TopicState
from kafka_assets.streaming import fence
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.session import spark_session
from kafka_assets.streaming.tables import LakeTable


@dataclass(frozen=True)
class Lost:
    """Offsets of a partition that no run will ever read.

    Attributes:
        topic: The topic.
        partition: The partition.
        first: The first of them.
        end: The offset after the last of them; None when the partition itself is gone.
    """

    topic: str
    partition: int
    first: int
    end: int | None

    def __str__(self) -> str:
        end = "?" if self.end is None else str(self.end)
        return f"{self.topic}/{self.partition} offsets [{self.first}, {end})"


def accept_loss(
    node: Node, settings: Settings, *, reason: str, by: str | None = None, run_id: str | None = None
) -> tuple[Lost, ...]:
    """Write down which records of its topic a table will never have, and go on behind them.

    Args:
        node: A table that reads a topic.
        settings: The lake and the broker.
        reason: Why the loss is accepted; kept in the audit table.
        by: Who; by default the user of this process.
        run_id: Id of the run, when Dagster does it.

    Returns:
        What is lost; nothing when the topic still has all that was not read.

    Raises:
        OperationRefused: The table reads no topic, there is no reason, or the state is another one
            than lost offsets.
        LeaseHeld: A run is writing the table.
        SourceError: The broker does not answer.
    """
    if not reason.strip():
        raise OperationRefused("a loss is accepted for a reason", fix="say it with --because")
    if node.flows:
        return tuple(
            gone
            for part in node.parts
            if part.topics
            for gone in accept_loss(part, settings, reason=reason, by=by, run_id=run_id)
        )
    with lease(node, settings, run_id or "accept-loss"):
        state = _topic_state(node, settings)
        table = LakeTable.existing(node.path)
        try:
            fence.check(node, table, {state.topic: state})
        except FenceRefused as refused:
            if refused.state not in ("offsets_lost", "partition_gone"):
                raise
        else:
            return ()
        checkpoint = Checkpoint.read(node.checkpoint)
        _settle_begun_batch(node, table, checkpoint)
        checkpoint = Checkpoint.read(node.checkpoint)
        saved = fence.reached(checkpoint, table.transaction(str(checkpoint.query_id)), state)
        lost = _lost(state, saved)
        audit.write(
            settings,
            [
                audit.Entry(
                    "accept_loss",
                    node.name,
                    gone.topic,
                    gone.partition,
                    gone.first,
                    gone.end,
                    reason=reason,
                )
                for gone in lost
            ],
            by=by,
            run_id=run_id,
        )
        onward = {p: max(o, state.earliest[p]) for p, o in saved.items() if p in state.earliest}
        info = {
            "run_id": run_id,
            "code_version": node.code_version,
            "accepted_loss": [vars(gone) for gone in lost],
            "reason": reason,
        }
        batch_id, ends = checkpoint.last_commit + 1, {state.topic: onward}
        _write_batch(table, checkpoint, batch_id, ends, info, settings)
        return lost


def repair(
    node: Node,
    settings: Settings,
    *,
    accept: bool = False,
    by: str | None = None,
    run_id: str | None = None,
) -> str:
    """Repair a checkpoint where that loses and doubles nothing.

    A file that a power loss cut short is set aside where the table itself says whether its batch
    was written. A lost checkpoint of a table that reads a topic is made anew from the offsets that
    the table's rows have.

    Args:
        node: The table.
        settings: The lake and the broker.
        accept: Also where records of a partition that the table has nothing of are gone.
        by: Who; by default the user of this process.
        run_id: Id of the run, when Dagster does it.

    Returns:
        What was done, in a sentence.

    Raises:
        FenceRefused: The state is one that only a reset or a backup repairs.
        OperationRefused: A checkpoint cannot be made anew from this table's rows.
        LeaseHeld: A run is writing the table.
    """
    if node.flows:
        flows = [
            f"flow {part.flow.name}: " + repair(part, settings, accept=accept, by=by, run_id=run_id)
            for part in node.parts
            if part.flow is not None
        ]
        return "; ".join(flows)
    with lease(node, settings, run_id or "repair"):
        table = LakeTable.existing(node.path)
        reads_topic = bool(node.topics)
        state = _topic_state(node, settings) if reads_topic else None
        done: list[str] = []
        while len(done) < 5:
            try:
                fence.check(node, table, {state.topic: state} if state else {})
                break
            except FenceRefused as refused:
                checkpoint = Checkpoint.read(node.checkpoint)
                if refused.state == "batch_torn":
                    kept = checkpoint.set_aside("offsets", checkpoint.last_offsets)
                    done.append(f"the torn batch will be begun anew; its file is kept as {kept}")
                elif refused.state == "commit_torn":
                    kept = checkpoint.set_aside("commits", checkpoint.last_commit)
                    done.append(f"the batch will be finished; its torn file is kept as {kept}")
                elif refused.state == "checkpoint_lost" and state is not None:
                    done.append(_rebuild(node, table, state, settings, accept=accept))
                else:
                    raise
        what = "; ".join(done) or "nothing was to be repaired"
        if done:
            entry = audit.Entry("repair", node.name, reason=what)
            audit.write(settings, [entry], by=by, run_id=run_id)
        return what


def _rebuild(
    node: Node, table: LakeTable, state: TopicState, settings: Settings, *, accept: bool
) -> str:
    """Make a lost checkpoint anew: everything that the table has was read, and no more."""
    ends = _ends_of_rows(node, table, state.topic)
    gone = [
        Lost(state.topic, p, 0, first)
        for p, first in state.earliest.items()
        if first and p not in ends
    ]
    if gone and not accept:
        raise OperationRefused(
            f"table {node.name!r} has no row of {', '.join(map(str, gone))}, and these records are "
            "gone: whether it ever read them cannot be known; nothing was changed",
            fix=f"kafka-assets repair {node.name} --accept-loss",
        )
    onward = {p: max(ends.get(p, 0), first) for p, first in state.earliest.items()}
    behind = [p for p, end in ends.items() if end > state.end.get(p, -1)]
    if behind:
        raise OperationRefused(
            f"table {node.name!r} has rows beyond the end of {state.topic}/{behind[0]}: the topic "
            "is not the one that they came from; nothing was changed",
            fix=f"kafka-assets reset {node.name} (says first which rows would be lost)",
        )
    lost = _lost(state, ends)
    if lost and not accept:
        raise OperationRefused(
            f"table {node.name!r} has not read {', '.join(map(str, lost))}, and these are gone; "
            "nothing was changed",
            fix=f"kafka-assets repair {node.name} --accept-loss",
        )
    info = {"accepted_loss": [vars(x) for x in (*gone, *lost)]} if gone or lost else {}
    checkpoint = Checkpoint(node.checkpoint, None, -1, -1, {}).create()
    _write_batch(table, checkpoint, 0, {state.topic: onward}, info, settings)
    at = ", ".join(f"{state.topic}/{p} at {offset}" for p, offset in sorted(onward.items()))
    return f"the checkpoint was made anew from the rows of the table: {at}"


def _ends_of_rows(node: Node, table: LakeTable, topic: str) -> dict[int, int]:
    """Partition -> the offset after the last record that the table or its letters have."""
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
        rows = place.read(("_source",) if nested else ("topic", "partition", "offset"))
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


def _settle_begun_batch(node: Node, table: LakeTable, checkpoint: Checkpoint) -> None:
    """A batch that was begun is finished, if the table has it; else it will be begun anew."""
    begun = checkpoint.last_offsets
    if begun <= checkpoint.last_commit:
        return
    if table.transaction(str(checkpoint.query_id)) >= begun:
        checkpoint.write_commit(begun)
    else:
        checkpoint.set_aside("offsets", begun)


def _write_batch(
    table: LakeTable,
    checkpoint: Checkpoint,
    batch_id: int,
    ends: Mapping[str, Mapping[int, int]],
    info: Mapping[str, Any],
    settings: Settings,
) -> None:
    """Write a batch without rows to checkpoint and table, in the order of a run."""
    offsets = [{t: {str(p): o for p, o in sorted(at.items())}} for t, at in ends.items()]
    checkpoint.write_offsets(batch_id, offsets)
    who = {"query_id": checkpoint.query_id, "batch_id": batch_id}
    table.append_nothing(
        info={**who, **info},
        transaction=(str(checkpoint.query_id), batch_id),
        spark=partial(spark_session, settings),
    )
    checkpoint.write_commit(batch_id)


def _lost(state: TopicState, saved: Mapping[int, int]) -> tuple[Lost, ...]:
    lost = []
    for partition, offset in sorted(saved.items()):
        earliest = state.earliest.get(partition)
        if earliest is None or earliest > offset:
            lost.append(Lost(state.topic, partition, offset, earliest))
    return tuple(lost)


def _topic_state(node: Node, settings: Settings) -> TopicState:
    upstream = node.only_stream
    if not isinstance(upstream, Topic):
        raise OperationRefused(
            f"table {node.name!r} reads no topic, so no records of one can be lost",
            fix=f"kafka-assets reset {node.name} builds it anew from its upstream",
        )
    return KafkaAdmin(settings.kafka).describe([upstream.topic])[upstream.topic]
