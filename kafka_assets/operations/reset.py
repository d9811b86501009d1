"""Building tables anew from what their sources still have, and never more quietly than that.

Before anything is touched, what a table has is compared with what its source still holds, and a
reset that would lose rows, or dead letters that nobody has decided on, is refused unless that loss
is accepted in the words that the refusal gives. Nothing is deleted from disk: rows leave by a
commit that can be restored, and checkpoints are moved aside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from upath import UPath

from kafka_assets.errors import OperationRefused
from kafka_assets.graph import Files, Graph, Node
from kafka_assets.operations import audit
from kafka_assets.operations.letters import OPEN, Filter, Letter, Status, find, table_of
from kafka_assets.settings import Settings
from kafka_assets.sources import files
from kafka_assets.sources.kafka import KafkaAdmin, TopicState
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.session import spark_session
from kafka_assets.streaming.tables import LakeTable

UNDECIDED: tuple[Status, ...] = (*OPEN, "replaying")
"""Letters that nobody has discarded, and whose rows the table may not have."""


@dataclass(frozen=True)
class Loss:
    """Rows and dead letters of a table that its sources could not give again.

    Attributes:
        table: The table's name.
        rows: How many rows; None when they cannot be traced to records.
        letters: How many dead letters that were neither replayed nor discarded.
        why: Which records are gone.
    """

    table: str
    rows: int | None
    letters: int
    why: str

    def __str__(self) -> str:
        rows = "rows that cannot be counted" if self.rows is None else f"{self.rows} rows"
        told = [rows] if self.rows != 0 else []
        told += [f"{self.letters} dead letters"] if self.letters else []
        return f"{' and '.join(told)} of {self.table}"


@dataclass(frozen=True)
class _Kept:
    """What a topic can give again.

    Attributes:
        first: Partition -> the first offset that it can give; empty when it can give nothing.
        gone: Which records are gone, in words; empty when none is.
    """

    first: Mapping[int, int]
    gone: str


@dataclass(frozen=True)
class ResetReport:
    """What a reset did, or would do.

    Attributes:
        tables: The tables, upstreams first.
        losses: Rows and dead letters that are gone for ever.
        phrase: The words that accept these losses; empty when there is none.
        moved: Table -> where its checkpoint lies now.
    """

    tables: tuple[str, ...]
    losses: tuple[Loss, ...]
    phrase: str
    moved: Mapping[str, str] = field(default_factory=dict)


def examine(
    graph: Graph, name: str, settings: Settings, *, downstream: bool = False
) -> ResetReport:
    """Say what a reset would do; nothing is touched.

    Args:
        graph: The tables.
        name: The table.
        settings: The lake and the broker.
        downstream: Also every table that depends on it.

    Raises:
        OperationRefused: A table does not allow it, or one that reads it as a stream would be
            left behind.
        SourceError: The broker does not answer.
    """
    return _examined(_nodes(graph, name, downstream), settings)


def reset(
    graph: Graph,
    name: str,
    settings: Settings,
    *,
    downstream: bool = False,
    accept: str | None = None,
    reason: str | None = None,
    by: str | None = None,
    run_id: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> ResetReport:
    """Empty tables and let them begin anew; the next run fills them from their sources.

    Args:
        graph: The tables.
        name: The table.
        settings: The lake and the broker.
        downstream: Also every table that depends on it.
        accept: The words that accept the loss, as the refusal gives them.
        reason: Why; kept in the audit table.
        by: Who; by default the user of this process.
        run_id: Id of the run, when Dagster does it.
        progress: Told a line for each table.

    Returns:
        What was done. A reset that was interrupted is finished by doing it again.

    Raises:
        OperationRefused: A table does not allow it, a reader would be left behind, or rows or
            dead letters would be lost that nobody accepted; nothing was touched.
        LeaseHeld: A run is writing one of the tables; nothing was touched.
        SourceError: The broker does not answer.
    """
    nodes = _nodes(graph, name, downstream)
    with ExitStack() as leases:
        # All before the first table is looked at, so that nobody writes until the last is empty.
        # A disk that fails is named by the last of them: the table that was asked for.
        for node in reversed(nodes):
            leases.enter_context(lease(node, settings, run_id or "reset"))
        found = _examined(nodes, settings)
        if found.losses and accept != found.phrase:
            why = "; ".join(loss.why for loss in found.losses)
            raise OperationRefused(
                f"a reset of {', '.join(found.tables)} would {found.phrase} for ever: {why}. "
                "Nothing was touched",
                fix=f'if that is what you want, say so: --accept "{found.phrase}"',
            )
        rows = {loss.table: loss.rows for loss in found.losses}
        said = ": ".join(text for text in (found.phrase, reason) if text) or None
        moved: dict[str, str] = {}
        # The last reader first: whenever it ends early, a table that has rows has their upstream's.
        for node in reversed(nodes):
            entry = audit.Entry("reset", node.name, rows=rows.get(node.name, 0), reason=said)
            audit.write(settings, [entry], by=by, run_id=run_id)
            moved.update(_empty(node, settings))
            progress(f"{node.name} is empty and begins anew")
    return replace(found, moved=moved)


def _examined(nodes: tuple[Node, ...], settings: Settings) -> ResetReport:
    topics = {topic.topic for node in nodes for topic in node.topics}
    states = KafkaAdmin(settings.kafka).describe(topics) if topics else {}
    kept = {topic: _kept(nodes, state) for topic, state in states.items()}
    losses = tuple(loss for node in nodes if (loss := _loss(node, nodes, kept)) is not None)
    phrase = f"lose {' and '.join(map(str, losses))}" if losses else ""
    return ResetReport(tuple(node.name for node in nodes), losses, phrase)


def _nodes(graph: Graph, name: str, downstream: bool) -> tuple[Node, ...]:
    first = table_of(graph, name)
    readers = graph.downstream_of(name)
    nodes = (first, *readers) if downstream else (first,)
    for node in nodes:
        if not node.table.reset_allowed:
            raise OperationRefused(
                f"table {node.name!r} ({node.table.place}) is declared with reset_allowed=False; "
                "nothing was touched",
                fix="change the declaration first, if its rows may really be given up",
            )
    chosen = {node.name for node in nodes}
    streams = [
        node.name
        for node in readers
        if node.name not in chosen
        and chosen & {stream.name for stream in node.streams}
        and LakeTable.open(node.path) is not None
    ]
    if streams:
        raise OperationRefused(
            f"{', '.join(streams)} read {name!r} as a stream and would have its rows twice; "
            "nothing was touched",
            fix=f"kafka-assets reset {name} --downstream",
        )
    return nodes


def _kept(nodes: tuple[Node, ...], state: TopicState) -> _Kept:
    for part in (part for node in nodes for part in node.parts):
        if state.topic not in {topic.topic for topic in part.topics}:
            continue
        try:
            recorded = (Checkpoint.read(part.checkpoint).record.get("sources") or {}).values()
        except ValueError as error:
            return _Kept({}, f"what was read of {state.topic} is not known any more: {error}")
        if recorded and state.topic_id not in recorded:
            return _Kept({}, f"the topic {state.topic} was made anew since they were read")
    gone = {p: first for p, first in state.earliest.items() if first > 0}
    where = ", ".join(f"{state.topic}/{p} now begins at {first}" for p, first in gone.items())
    return _Kept(state.earliest, where)


def _loss(node: Node, nodes: tuple[Node, ...], kept: Mapping[str, _Kept]) -> Loss | None:
    table = LakeTable.open(node.path)
    if table is None:
        return None
    above = [
        replace(lost, letters=0)
        for source in (one.source for one in node.inputs)
        if isinstance(source, Node)
        and source in nodes
        and (lost := _loss(source, nodes, kept)) is not None
        and lost.rows != 0
    ]
    own = {topic.topic: kept[topic.topic] for topic in node.topics}
    # What a table was made from through others, it has of any topic that they read.
    gone = {topic: had for topic, had in (kept if above else own).items() if had.gone}
    files_gone = _files_gone(node)
    whys = [had.gone for had in own.values() if had.gone]
    whys += [files_gone] if files_gone else []
    whys += [f"it was made from {lost}" for lost in above]
    if not whys:
        return None
    rows: int | None = 0
    if table.rows > 0:
        # Rows do not say their file; and how many were made of rows that cannot be traced depends
        # on the function.
        traced = not files_gone and all(lost.rows is not None for lost in above)
        rows = _rows_of_lost_records(table, gone) if traced else None
    letters = _letters_of_lost_records(node, gone)
    return Loss(node.name, rows, letters, "; ".join(whys)) if rows != 0 or letters else None


def _files_gone(node: Node) -> str:
    """Which files are gone that the table was made from, in words; empty when none is."""
    read: set[str] = set()
    for part in node.parts:
        if any(isinstance(source, Files) for source in part.streams):
            try:
                read |= Checkpoint.read(part.checkpoint).files_read()
            except ValueError as error:
                return f"which files it has read is not known any more: {error}"
    gone = files.gone(read)
    return f"{len(gone)} of {len(read)} files are gone, such as {gone[0]}" if gone else ""


def _rows_of_lost_records(table: LakeTable, gone: Mapping[str, _Kept]) -> int | None:
    """Rows whose records their topics no longer have; None when rows do not say their record."""
    import pyarrow.dataset as ds

    columns = table.columns
    if "_source" in columns:
        at: Callable[[str], Any] = lambda name: ds.field("_source", name)  # noqa: E731
    elif {"topic", "partition", "offset"} <= set(columns):
        at = ds.field
    else:
        return None
    rows = 0
    for topic, kept in gone.items():
        there = ds.scalar(False)
        for partition, first in kept.first.items():
            there = there | ((at("partition") == partition) & (at("offset") >= first))
        rows += table.count((at("topic") == topic) & ~there)
    return rows


def _letters_of_lost_records(node: Node, gone: Mapping[str, _Kept]) -> int:
    """Undecided letters whose records are gone, or that do not say their record."""

    def is_lost(letter: Letter) -> bool:
        topic, partition, offset = letter.at
        if topic is None or partition is None or offset is None:
            return True
        first = gone[topic].first.get(partition) if topic in gone else 0
        return first is None or offset < first

    return sum(map(is_lost, find(node, Filter(statuses=UNDECIDED))))


def _empty(node: Node, settings: Settings) -> dict[str, str]:
    """Move the checkpoint aside, then commit the table and its letters empty."""
    moved = {}
    checkpoint = UPath(node.checkpoint)
    if checkpoint.exists():
        aside = f"{node.checkpoint}.reset-{int(time.time() * 1000)}"
        checkpoint.fs.mv(checkpoint.path, UPath(aside).path, recursive=True)
        moved[node.name] = aside
    for path in (node.dead_letters_path, node.path):
        table = LakeTable.open(path)
        if table is not None and table.rows > 0:
            table.delete(None, partial(spark_session, settings))
    emptied = LakeTable.open(node.path)
    if emptied is not None:
        for flow in node.flows:
            # It will find rows of the flows before it. This record says that it begins anew, and
            # that no checkpoint was lost; while its old rows are there, that would double them.
            Checkpoint.read(flow.checkpoint).write_record({"table_id": emptied.table_id})
    return moved
