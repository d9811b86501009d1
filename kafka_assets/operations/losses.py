"""Leading a stream past offsets that it did not read: what is lost, and the batch that does it.

When that is done is `repair`'s and `rebuild`'s to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from upath import UPath

from kafka_assets.errors import OperationRefused
from kafka_assets.graph import Node
from kafka_assets.settings import Settings
from kafka_assets.sources.kafka import TopicState
from kafka_assets.streaming.checkpoint import Checkpoint
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


def losses_of(state: TopicState, saved: Mapping[int, int]) -> tuple[Lost, ...]:
    """What a topic has no more of what a table did not read yet."""
    lost = []
    for partition, offset in sorted(saved.items()):
        earliest = state.earliest.get(partition)
        if earliest is None or earliest > offset:
            lost.append(Lost(state.topic, partition, offset, earliest))
    return tuple(lost)


def behind_losses(state: TopicState, saved: Mapping[int, int]) -> dict[int, int]:
    """Where reading goes on: behind what is gone."""
    return {p: max(o, state.earliest[p]) for p, o in sorted(saved.items()) if p in state.earliest}


def stood_at(node: Node, checkpoint: Checkpoint) -> list[Any]:
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


def with_topics(sources: Sequence[Any], onward: Mapping[str, Mapping[int, int]]) -> list[Any]:
    """The sources with new offsets of these topics; what is no topic stays where it stood."""
    return [{name: onward.get(name, at) for name, at in source.items()} for source in sources]


def write_batch(
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
