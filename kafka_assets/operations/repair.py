"""Letting a table go on whose checkpoint or source no longer fits, without guessing.

Each repair is one that provably loses and doubles nothing, or, for `accept_loss`, writes down what
is lost before it goes on. Which states there are is `streaming.fence`'s to say. Spark is started
only for tables that deltalake cannot write; each may be begun again after it was interrupted.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from upath import UPath

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
        node: A table that reads topics.
        settings: The lake and the broker.
        reason: Why the loss is accepted; kept in the audit table.
        by: Who; by default the user of this process.
        run_id: Id of the run, when Dagster does it.

    Returns:
        What is lost; nothing when the topic still has all that was not read.

    Raises:
        FenceRefused: The state is another one than lost offsets.
        OperationRefused: The table reads no topic or keeps state from batch to batch, or there is
            no reason.
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
        states = _topic_states(node, settings)
        table = LakeTable.existing(node.path)
        try:
            fence.check(node, table, states)
        except FenceRefused as refused:
            if refused.state not in ("offsets_lost", "partition_gone"):
                raise
        else:
            return ()
        checkpoint = Checkpoint.read(node.checkpoint)
        sources = _sources(node, checkpoint)
        _settle_begun_batch(node, table, checkpoint)
        checkpoint = Checkpoint.read(node.checkpoint)
        committed = table.transaction(str(checkpoint.query_id))
        saved = {t: fence.reached(checkpoint, committed, state) for t, state in states.items()}
        lost = tuple(gone for t, state in states.items() for gone in _lost(state, saved[t]))
        entry = partial(audit.Entry, "accept_loss", node.name, reason=reason)
        entries = [entry(gone.topic, gone.partition, gone.first, gone.end) for gone in lost]
        audit.write(settings, entries, by=by, run_id=run_id)
        onward = {t: _onward(state, saved[t]) for t, state in states.items()}
        info = {
            "run_id": run_id,
            "code_version": node.code_version,
            "accepted_loss": [vars(gone) for gone in lost],
            "reason": reason,
        }
        ends = _with_topics(sources, onward)
        _write_batch(table, checkpoint, checkpoint.last_commit + 1, ends, info, settings)
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
    done = []
    for part in node.parts:
        flow = f"flow {part.flow.name}: " if part.flow is not None else ""
        others = tuple(other for other in node.parts if other is not part)
        with lease(part, settings, run_id or "repair"):
            what = _repair(part, others, settings, accept=accept)
            if what:
                entry = audit.Entry("repair", node.name, reason=what)
                audit.write(settings, [entry], by=by, run_id=run_id)
        done.append(flow + (what or "nothing was to be repaired"))
    return "; ".join(done)


def _repair(node: Node, others: tuple[Node, ...], settings: Settings, *, accept: bool) -> str:
    """Repair the checkpoint of a table or flow; says what was done, and nothing for nothing."""
    table = LakeTable.existing(node.path)
    states = _topic_states(node, settings) if node.topics else {}
    done: list[str] = []
    while len(done) < 5:
        try:
            fence.check(node, table, states)
            break
        except FenceRefused as refused:
            checkpoint = Checkpoint.read(node.checkpoint)
            if refused.state == "batch_torn":
                kept = checkpoint.set_aside("offsets", checkpoint.last_offsets)
                done.append(f"the torn batch will be begun anew; its file is kept as {kept}")
            elif refused.state == "commit_torn":
                kept = checkpoint.set_aside("commits", checkpoint.last_commit)
                done.append(f"the batch will be finished; its torn file is kept as {kept}")
            elif refused.state == "checkpoint_lost" and states:
                _refuse_rows_of_others(node, others)
                done.append(_rebuild(node, table, states, settings, accept))
            else:
                raise
    return "; ".join(done)


def _rebuild(
    node: Node, table: LakeTable, states: Mapping[str, TopicState], settings: Settings, accept: bool
) -> str:
    """Make a lost checkpoint anew: everything that the table has was read, and no more."""
    left = Checkpoint.read(node.checkpoint)
    sources = _sources(node, left)
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
        losses += _lost(state, saved)
        onward[topic] = _onward(state, saved)
    if losses and not accept:
        raise OperationRefused(
            f"table {node.name!r} has no row of {', '.join(map(str, losses))}, and these records "
            "are gone: whether it ever read them cannot be known; nothing was changed",
            fix=f"kafka-assets repair {node.name} --accept-loss",
        )
    info = {"accepted_loss": [vars(x) for x in losses]} if losses else {}
    query = replace(left, query_id=str(uuid.uuid4()))
    _write_batch(table, query, 0, _with_topics(sources, onward), info, settings)
    for log in ("offsets", "commits"):
        for batch_id in left.batches(log):
            if batch_id > 0:
                left.set_aside(log, batch_id)
    # Only now: without it the fence refuses whatever is here, and a repair begins anew.
    query.create()
    at = ", ".join(f"{t}/{p} at {o}" for t, ends in onward.items() for p, o in ends.items())
    return f"the checkpoint was made anew from the rows of the table: {at}"


def _refuse_rows_of_others(node: Node, others: tuple[Node, ...]) -> None:
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
    ends: Sequence[Any],
    info: Mapping[str, Any],
    settings: Settings,
) -> None:
    """Write a batch without rows to checkpoint and table, in the order of a run."""
    checkpoint.write_offsets(batch_id, ends)
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


def _onward(state: TopicState, saved: Mapping[int, int]) -> dict[int, int]:
    """Where reading goes on: behind what is gone."""
    return {p: max(o, state.earliest[p]) for p, o in sorted(saved.items()) if p in state.earliest}


def _sources(node: Node, checkpoint: Checkpoint) -> list[Any]:
    """Where each source of the query stood, in the query's own order."""
    if (UPath(node.checkpoint) / "state").exists():
        raise OperationRefused(
            f"table {node.name!r} keeps state from batch to batch in {node.checkpoint} (a join or "
            "an aggregate does), and its state cannot pass over a batch that Spark did not run; "
            "nothing was changed",
            fix=f"kafka-assets reset {node.name} (says first which rows would be lost)",
        )
    topics = [topic.topic for topic in node.topics]
    try:
        found = checkpoint.end_offsets(checkpoint.last_offsets)
    except ValueError:
        found = []
    if len(node.streams) == 1 and len(found) < 2:
        return [{topic: {} for topic in topics}]
    if not set(topics) <= {name for source in found for name in source}:
        raise OperationRefused(
            f"table {node.name!r} reads several sources in one query "
            f"({', '.join(stream.name for stream in node.streams)}), in an order that only its "
            f"checkpoint {node.checkpoint} says, and it does not say it; nothing was changed",
            fix=f"restore the checkpoint from a backup, whole; or kafka-assets reset {node.name} "
            "(says first which rows would be lost)",
        )
    return found


def _with_topics(sources: Sequence[Any], onward: Mapping[str, Mapping[int, int]]) -> list[Any]:
    """The sources with new offsets of these topics; what is no topic stays where it stood."""
    return [{name: onward.get(name, at) for name, at in source.items()} for source in sources]


def _topic_states(node: Node, settings: Settings) -> dict[str, TopicState]:
    if not node.topics:
        raise OperationRefused(
            f"table {node.name!r} reads no topic, so no records of one can be lost",
            fix=f"kafka-assets reset {node.name} builds it anew from its upstream",
        )
    return KafkaAdmin(settings.kafka).describe([topic.topic for topic in node.topics])
