"""Whether checkpoint, table and source still fit together, before anything is written.

Allowed are two states: clean, and one batch that an earlier run began and did not finish. Anything
else is refused by name. Why each of them would lose or double rows is said in its message, with the
command that repairs it; the repairs are `operations`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_assets.declarations import Flow, Topic
from kafka_assets.errors import FenceRefused
from kafka_assets.graph import Files, Node
from kafka_assets.sources import files
from kafka_assets.sources.kafka import TopicState
from kafka_assets.streaming.belonging import (
    complete_record,
    open_letters,
    record_of,
    refuse_others,
)
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.commits import Commit
from kafka_assets.streaming.dead_letters import letters_app_id
from kafka_assets.streaming.tables import LakeTable


@dataclass(frozen=True)
class Position:
    """Where a stream may go on.

    Attributes:
        checkpoint: The checkpoint as found.
        committed: The last batch that the table has, or -1.
        replayed: The batch that an earlier run wrote dead letters of, and no rows; or -1.
        letters_version: The last transaction version that the dead letters have of this query, or
            -1.
        sources: What is read, by ids that change when it is made anew.
    """

    checkpoint: Checkpoint
    committed: int
    replayed: int
    letters_version: int = -1
    sources: Mapping[str, str] = field(default_factory=dict)


def check(node: Node, table: LakeTable, topics: Mapping[str, TopicState]) -> Position:
    """Compare checkpoint, table and source.

    Args:
        node: The table's place in the graph.
        table: The table as it lies in the lake.
        topics: State of the topics that the table reads, and of those of its other flows; empty
            for a table that reads none.

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
            fix=f"restore {node.checkpoint} from a backup, whole; or kafka-assets reset "
            f"{node.name}",
        ) from None
    _refuse_expiring_transactions(node, table)
    _refuse_lost_checkpoint(node, table, checkpoint)
    letters = open_letters(node)
    record = record_of(node, table, letters, topics)
    sources = record["sources"]
    if checkpoint.query_id is None:
        checkpoint.write_record(record)
        return Position(checkpoint, committed=-1, replayed=-1, sources=sources)
    committed = table.transaction(checkpoint.query_id)
    refuse_others(node, table, checkpoint, record)
    _refuse_torn_files(node, checkpoint, committed)
    for topic in node.topics:
        state = topics[topic.topic]
        _refuse_lost_offsets(node, state, reached(checkpoint, committed, state))
    _refuse_unknown_batches(node, checkpoint, committed)
    _refuse_gone_files(node, checkpoint, committed)
    _refuse_restored_table(node, table, checkpoint)
    _refuse_restored_upstream(node, checkpoint)
    if letters is not None:
        _refuse_restored_table(node, letters, checkpoint)
    complete_record(checkpoint, record)
    if letters is None:
        return Position(checkpoint, committed, replayed=-1, sources=sources)
    return Position(
        checkpoint,
        committed,
        _letters_without_rows(letters, checkpoint, committed),
        letters.transaction(letters_app_id(checkpoint.query_id)),
        sources,
    )


def _refuse_gone_files(node: Node, checkpoint: Checkpoint, committed: int) -> None:
    if not any(isinstance(source, Files) for source in node.streams):
        return
    gone = files.gone(checkpoint.files_read(after=checkpoint.file_positions(committed)))
    if gone:
        raise FenceRefused(
            "upstream_files_gone",
            f"table {node.name!r}: {len(gone)} files were seen by an earlier run and are gone "
            f"before they were read, such as {gone[0]}; Spark would pass over them. Nothing was "
            "written",
            fix=f"put them back and run again; or kafka-assets reset {node.name} (says first "
            "which rows would be lost)",
        )


def begun(flow: Flow) -> str:
    """The table property that says that a flow has begun to feed it."""
    return f"kafka_assets.flow.{flow.name}"


def _letters_without_rows(letters: LakeTable, checkpoint: Checkpoint, committed: int) -> int:
    """The batch whose dead letters were written, and whose rows were not; or -1."""
    for limit in (10, None):
        for commit in letters.commits(limit=limit):
            if commit.query_id == checkpoint.query_id and commit.batch_id is not None:
                return commit.batch_id if commit.batch_id > committed else -1
    return -1


def _refuse_lost_checkpoint(node: Node, table: LakeTable, checkpoint: Checkpoint) -> None:
    # The table of what goes to a topic has no rows, however many were sent.
    empty = table.rows == 0 and not node.goes_to_kafka
    if checkpoint.query_id is not None or (checkpoint.last_offsets < 0 and empty):
        return
    nothing_begun = max(checkpoint.last_offsets, checkpoint.last_commit) < 0
    is_new = node.flow is not None and begun(node.flow) not in table.properties
    if node.flow is not None and nothing_begun and (is_new or checkpoint.record):
        # Rows of other flows say nothing about one that was added, or that has a record and no
        # batch: it ended before its first, or its table was emptied.
        return
    raise FenceRefused(
        "checkpoint_lost",
        f"table {node.name!r} has {table.rows} rows at {node.path}, but its checkpoint "
        f"{node.checkpoint} is not there or has no metadata; starting anew would double the rows",
        fix=f"kafka-assets repair {node.name} (makes the checkpoint anew from the offsets in the "
        "table)"
        if node.topics
        else f"kafka-assets reset {node.name} (builds the table anew from its upstream)",
    )


def _refuse_expiring_transactions(node: Node, table: LakeTable) -> None:
    name = "delta.setTransactionRetentionDuration"
    if name in table.properties:
        raise FenceRefused(
            "transactions_expire",
            f"table {node.name!r} at {node.path} has {name} = {table.properties[name]!r}: after "
            "that time it forgets which batches it has, and a repeated batch would double its rows",
            fix=f"ALTER TABLE delta.`{node.path}` UNSET TBLPROPERTIES ('{name}')",
        )


def _refuse_torn_files(node: Node, checkpoint: Checkpoint, committed: int) -> None:
    begun, finished = checkpoint.last_offsets, checkpoint.last_commit
    needed = [("offsets", n) for n in (begun - 1, begun) if n >= 0]
    needed += [("commits", finished)] if finished >= 0 else []
    for log, batch in needed:
        if checkpoint.is_whole(log, batch):
            continue
        file = checkpoint.file(log, batch)
        state = "is empty or ends early" if file.exists() else "is missing"
        what = f"table {node.name!r}: {file} {state}; nothing was read or written"
        if batch == begun and log == "offsets" and max(committed, finished) < begun:
            raise FenceRefused(
                "batch_torn",
                f"{what}. The table has nothing of batch {begun}, so it can be begun anew",
                fix=f"kafka-assets repair {node.name}",
            )
        if log == "commits" and committed >= batch:
            raise FenceRefused(
                "commit_torn",
                f"{what}. The table has batch {batch}, so it can be finished",
                fix=f"kafka-assets repair {node.name}",
            )
        raise FenceRefused(
            "checkpoint_damaged",
            what,
            fix=f"restore {node.checkpoint} from a backup, whole; or kafka-assets reset "
            f"{node.name}",
        )


def _refuse_restored_table(node: Node, table: LakeTable, checkpoint: Checkpoint) -> None:
    """RESTORE, of a table or its dead letters, keeps transactions and takes rows away."""
    restored = None
    for limit in (20, None):
        for commit in table.commits(limit=limit):
            if commit.operation == "RESTORE":
                restored = restored or commit
            elif commit.query_id == checkpoint.query_id and commit.rows > 0:
                _refuse_older(node, table.path, restored, commit.version)
                return
            elif commit.operation == "CREATE TABLE":
                return


def _refuse_older(node: Node, path: str, restored: Commit | None, newest: int) -> None:
    if restored is None or (restored.restored is not None and restored.restored >= newest):
        return
    to = "an earlier time" if restored.restored is None else f"version {restored.restored}"
    raise FenceRefused(
        "table_restored",
        f"table {node.name!r}: {path} was restored to {to} (at version {restored.version}), and "
        f"the checkpoint has written version {newest} since: the rows in between would be missing "
        "for ever",
        fix=f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {restored.version - 1}; or "
        f"kafka-assets reset {node.name}",
    )


def _refuse_restored_upstream(node: Node, checkpoint: Checkpoint) -> None:
    if checkpoint.last_commit < 0:
        return
    for upstream in node.streams:
        if isinstance(upstream, Topic | Files):
            continue
        table = LakeTable.open(upstream.path)
        if table is None:
            continue
        done = checkpoint.position(checkpoint.last_commit, table_id=table.table_id)
        if done is None:
            continue
        # A stream that has read a version to its end stands at the one after it.
        read = int(done["reservoirVersion"]) - (1 if done.get("index") == -1 else 0)
        if table.version < read:
            raise FenceRefused(
                "upstream_went_back",
                f"table {node.name!r} has read {upstream.name!r} up to version {read}, and it now "
                f"ends at version {table.version}: what is written next would be skipped",
                fix=f"restore {upstream.path} whole, or kafka-assets reset {node.name}",
            )


def reached(checkpoint: Checkpoint, committed: int, state: TopicState) -> dict[int, int]:
    """Partition -> the offset up to which a table has a topic.

    Args:
        checkpoint: The table's, which has a query.
        committed: The last batch that the table has; its checkpoint may not know of it yet.
        state: The topic. A partition that was never read is to be read from its offset 0.
    """
    batch = max(checkpoint.last_commit, min(committed, checkpoint.last_offsets))
    if batch >= 0:
        saved = checkpoint.position(batch, topic=state.topic) or {}
    else:
        first = checkpoint.first_offsets(state.topic)
        if first is None:
            # Nothing was begun: the first batch begins at what the topic has.
            return dict(state.earliest)
        saved = first
    unread = dict.fromkeys(state.earliest, 0)
    return {**unread, **{int(partition): int(offset) for partition, offset in saved.items()}}


def _refuse_lost_offsets(node: Node, state: TopicState, saved: Mapping[int, int]) -> None:
    for partition, offset in saved.items():
        earliest = state.earliest.get(partition)
        end = state.end.get(partition)
        where = f"{state.topic}/{partition}"
        if earliest is None or end is None:
            raise FenceRefused(
                "partition_gone",
                f"table {node.name!r} has read {where} up to {offset}, and that partition is gone",
                fix=f"restore the topic; or kafka-assets accept-loss {node.name}",
            )
        if earliest > offset:
            raise FenceRefused(
                "offsets_lost",
                f"table {node.name!r} has read {where} up to {offset}, and the topic now begins at "
                f"{earliest}: {earliest - offset} offsets [{offset}, {earliest}) are gone",
                fix=f"kafka-assets accept-loss {node.name} (writes the lost offsets down and goes "
                "on behind them; what was read before is kept)",
            )
        if end < offset:
            raise FenceRefused(
                "offsets_went_back",
                f"table {node.name!r} has read {where} up to {offset}, and the topic now ends at "
                f"{end}: records that the table has are gone from the topic, and new ones would "
                "take their offsets",
                fix=f"restore the topic; or kafka-assets reset {node.name}",
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
        fix=f"restore {node.checkpoint} and {node.path} from one moment; or kafka-assets reset "
        f"{node.name}",
    )
