"""Building tables anew from what their sources still have, and never more quietly than that.

Before anything is touched, what a table has is compared with what its source still holds, and a
reset that would lose rows is refused unless that loss is accepted in the words that the refusal
gives. Nothing is deleted from disk: rows leave by a commit that can be restored, and checkpoints
are moved aside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from upath import UPath

from kafka_assets.errors import OperationRefused
from kafka_assets.graph import Files, Graph, Node
from kafka_assets.operations import audit
from kafka_assets.operations.letters import table_of
from kafka_assets.settings import Settings
from kafka_assets.sources import files
from kafka_assets.sources.kafka import KafkaAdmin, TopicState
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.session import spark_session
from kafka_assets.streaming.tables import LakeTable


@dataclass(frozen=True)
class Loss:
    """Rows of a table that its sources could not give again.

    Attributes:
        table: The table's name.
        rows: How many; None when they cannot be traced to records.
        why: Which records are gone.
    """

    table: str
    rows: int | None
    why: str

    def __str__(self) -> str:
        rows = "rows that cannot be counted" if self.rows is None else f"{self.rows} rows"
        return f"{rows} of {self.table}"


@dataclass(frozen=True)
class ResetReport:
    """What a reset did, or would do.

    Attributes:
        tables: The tables, upstreams first.
        losses: Rows that are gone for ever.
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
    nodes = _nodes(graph, name, downstream)
    topics = {topic.topic for node in nodes for topic in node.topics}
    states = KafkaAdmin(settings.kafka).describe(topics) if topics else {}
    losses = tuple(loss for node in nodes if (loss := _loss(node, nodes, states)) is not None)
    phrase = f"lose {' and '.join(map(str, losses))}" if losses else ""
    return ResetReport(tuple(node.name for node in nodes), losses, phrase)


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
        OperationRefused: A table does not allow it, a reader would be left behind, or rows would
            be lost that nobody accepted; nothing was touched.
        LeaseHeld: A run is writing one of the tables.
        SourceError: The broker does not answer.
    """
    found = examine(graph, name, settings, downstream=downstream)
    if found.losses and accept != found.phrase:
        why = "; ".join(loss.why for loss in found.losses)
        raise OperationRefused(
            f"a reset of {', '.join(found.tables)} would {found.phrase} for ever: {why}. Nothing "
            "was touched",
            fix=f'if that is what you want, say so: --accept "{found.phrase}"',
        )
    entries = {loss.table: loss for loss in found.losses}
    moved: dict[str, str] = {}
    # The last reader first: whenever it ends early, a table that has rows has their upstream's too.
    for table in reversed(found.tables):
        node = graph.tables[table]
        with lease(node, settings, run_id or "reset"):
            loss = entries.get(table)
            entry = audit.Entry(
                "reset", table, rows=loss.rows if loss else 0, reason=reason or found.phrase or None
            )
            audit.write(settings, [entry], by=by, run_id=run_id)
            moved.update(_empty(node, settings))
        progress(f"{table} is empty and begins anew")
    return ResetReport(found.tables, found.losses, found.phrase, moved)


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


def _loss(node: Node, nodes: tuple[Node, ...], states: Mapping[str, TopicState]) -> Loss | None:
    table = LakeTable.open(node.path)
    if table is None or table.rows == 0:
        return None
    for topic in node.topics:
        lost = _loss_of_records(node, table, states[topic.topic])
        if lost is not None:
            return lost
    gone = _loss_of_files(node)
    if gone is not None:
        return gone
    again = {n.name for n in nodes}
    sources = [one.source for one in node.inputs]
    resets = [s for s in sources if isinstance(s, Node) and s.name in again]
    for source in resets:
        lost = _loss(source, nodes, states)
        if lost is not None:
            # Its rows were made from these; how many of its own depends on the function.
            rows = _rows_of_lost_records(table, states) if lost.rows is not None else None
            if rows == 0:
                continue
            return Loss(node.name, rows, f"it was made from {lost}")
    return None


def _loss_of_records(node: Node, table: LakeTable, state: TopicState) -> Loss | None:
    read = [part for part in node.parts if state.topic in {t.topic for t in part.topics}]
    records = [Checkpoint.read(part.checkpoint).record.get("sources") or {} for part in read]
    recorded = {source for record in records for source in record.values()}
    if recorded and state.topic_id not in recorded:
        return Loss(
            node.name, table.rows, f"the topic {state.topic} was made anew since they were read"
        )
    gone = {p: first for p, first in state.earliest.items() if first > 0}
    rows = _rows_of_lost_records(table, {state.topic: state})
    if rows == 0:
        return None
    where = ", ".join(f"{state.topic}/{p} now begins at {first}" for p, first in gone.items())
    return Loss(node.name, rows, where)


def _loss_of_files(node: Node) -> Loss | None:
    """Rows whose files are gone: how many is not known, as rows do not say their file."""
    read: set[str] = set()
    for part in node.parts:
        if any(isinstance(source, Files) for source in part.streams):
            try:
                read |= Checkpoint.read(part.checkpoint).files_read()
            except ValueError as error:
                why = f"which files it has read is not known any more: {error}"
                return Loss(node.name, None, why)
    gone = files.gone(read)
    if not gone:
        return None
    return Loss(node.name, None, f"{len(gone)} of {len(read)} files are gone, such as {gone[0]}")


def _rows_of_lost_records(table: LakeTable, states: Mapping[str, TopicState]) -> int | None:
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
    for topic, state in states.items():
        there = ds.scalar(False)
        for partition, first in state.earliest.items():
            there = there | ((at("partition") == partition) & (at("offset") >= first))
        rows += table.count((at("topic") == topic) & ~there)
    return rows


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
    return moved
