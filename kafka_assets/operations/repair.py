"""Letting a table go on whose checkpoint or source no longer fits, without guessing.

Each repair is one that provably loses and doubles nothing, or, for `accept_loss`, writes down what
is lost before it goes on. Which states there are is `streaming.fence`'s to say. Spark is started
only for tables that deltalake cannot write; each may be begun again after it was interrupted.
"""

from __future__ import annotations

from functools import partial

from kafka_assets.errors import FenceRefused, OperationRefused
from kafka_assets.graph import Node
from kafka_assets.operations import audit
from kafka_assets.operations.losses import (
    Lost,
    behind_losses,
    losses_of,
    stood_at,
    with_topics,
    write_batch,
)
from kafka_assets.operations.rebuild import rebuild, refuse_rows_of_others, write_record
from kafka_assets.settings import Settings
from kafka_assets.sources.kafka import KafkaAdmin, TopicState
from kafka_assets.streaming import fence
from kafka_assets.streaming.belonging import open_letters, record_of
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.tables import LakeTable


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
        sources = stood_at(node, checkpoint)
        _settle_begun_batch(node, table, checkpoint)
        checkpoint = Checkpoint.read(node.checkpoint)
        committed = table.transaction(str(checkpoint.query_id))
        saved = {t: fence.reached(checkpoint, committed, state) for t, state in states.items()}
        lost = tuple(gone for t, state in states.items() for gone in losses_of(state, saved[t]))
        entry = partial(audit.Entry, "accept_loss", node.name, reason=reason)
        entries = [entry(gone.topic, gone.partition, gone.first, gone.end) for gone in lost]
        audit.write(settings, entries, by=by, run_id=run_id)
        onward = {t: behind_losses(state, saved[t]) for t, state in states.items()}
        info = {
            "run_id": run_id,
            "code_version": node.code_version,
            "accepted_loss": [vars(gone) for gone in lost],
            "reason": reason,
        }
        ends = with_topics(sources, onward)
        write_batch(table, checkpoint, checkpoint.last_commit + 1, ends, info, settings)
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
        accept: Also where records of a partition that the table has nothing of are gone, where
            nothing says whether a topic was made anew, and where dead letters are gone.
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
            what = what or "nothing was to be repaired"
            entry = audit.Entry("repair", node.name, reason=flow + what)
            # Also where a person put things right before: a chain that was refused goes on now.
            audit.write(settings, [entry], by=by, run_id=run_id)
        done.append(flow + what)
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
            elif refused.state == "record_lost":
                done.append(write_record(node, table, checkpoint, states, accept))
            elif refused.state == "letters_replaced" and accept:
                now = record_of(node, table, open_letters(node), states)["letters_id"]
                checkpoint.write_record({**checkpoint.record, "letters_id": now})
                done.append("dead letters that are gone are done without")
            elif refused.state == "checkpoint_lost" and states:
                refuse_rows_of_others(node, others)
                done.append(rebuild(node, table, states, settings, accept))
            else:
                raise
    return "; ".join(done)


def _settle_begun_batch(node: Node, table: LakeTable, checkpoint: Checkpoint) -> None:
    """A batch that was begun is finished, if the table has it; else it will be begun anew."""
    begun = checkpoint.last_offsets
    if begun <= checkpoint.last_commit:
        return
    if table.transaction(str(checkpoint.query_id)) >= begun:
        checkpoint.write_commit(begun)
    else:
        checkpoint.set_aside("offsets", begun)


def _topic_states(node: Node, settings: Settings) -> dict[str, TopicState]:
    if not node.topics:
        raise OperationRefused(
            f"table {node.name!r} reads no topic, so no records of one can be lost",
            fix=f"kafka-assets reset {node.name} builds it anew from its upstream",
        )
    return KafkaAdmin(settings.kafka).describe([topic.topic for topic in node.topics])
