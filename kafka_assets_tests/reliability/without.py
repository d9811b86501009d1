"""Switches off one protection of the product, in this process.

For the tests of the tests: a suite that stays green without a protection does not test it. What is
replaced here has to stay in step with the product's own functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_assets.streaming import batch, fence, run
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.dead_letters import letters_app_id
from kafka_assets.streaming.fence import Position
from kafka_assets.streaming.spec import BatchSpec
from kafka_assets.streaming.tables import LakeTable


def lease() -> None:
    """Let any number of runs write one table at once."""

    @contextmanager
    def no_lease(*_: Any) -> Iterator[None]:
        yield

    _replace(run, "lease", no_lease)


def transactions() -> None:
    """Append batches without transaction ids, and do not look at which the table has."""

    def appended(
        spec: BatchSpec, rows: DataFrame, replace: str | None, counts: Any, commit: Any
    ) -> None:
        kept = rows.filter(~F.col("_dead")).select(*[F.col(f"`{c}`") for c in spec.columns])
        kept.write.format("delta").mode("append").save(spec.path)

    _replace(batch, "_write_table", appended)
    the_fence(committed=-1)


def the_fence(committed: int | None = None) -> None:
    """Allow every state of checkpoint, table and source.

    Args:
        committed: What the fence says that the table has; None asks the table.
    """

    def allowed(node: Any, table: Any, topics: Mapping[str, Any]) -> Position:
        checkpoint = Checkpoint.read(node.checkpoint)
        if checkpoint.query_id is None:
            return Position(checkpoint, committed=-1, replayed=-1)
        begun = checkpoint.last_offsets
        has = table.transaction(checkpoint.query_id) if committed is None else committed
        letters = LakeTable.open(node.dead_letters_path)
        return Position(
            checkpoint,
            has,
            replayed=begun if begun > checkpoint.last_commit else -1,
            letters_version=-1
            if letters is None
            else letters.transaction(letters_app_id(checkpoint.query_id)),
        )

    _replace(fence, "check", allowed)


PROTECTIONS: dict[str, Callable[[], None]] = {
    "lease": lease,
    "transactions": transactions,
    "fence": the_fence,
}


def switch_off(protection: str) -> None:
    """Switch off one of `PROTECTIONS` for the rest of the process."""
    PROTECTIONS[protection]()


def _replace(module: Any, name: str, value: Any) -> None:
    assert hasattr(module, name), f"{module.__name__}.{name} is gone: bring this module in step"
    setattr(module, name, value)
