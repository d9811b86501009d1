"""One micro-batch of a windowed table, where the engine runs it.

Sent by value to Spark Connect servers, as `batch` is, and under the same rules. The stream brings
only the starts of the windows that its new rows touch; their rows are read from the upstream table
at one version, and their results replace what the table had for these windows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_assets.streaming import batch
from kafka_assets.streaming.expectations import checked
from kafka_assets.streaming.spec import BatchSpec, Replaced, Through

MOST_RANGES = 64
"""More separate ranges of windows than this are replaced as one range that covers them all."""


@dataclass(frozen=True)
class WindowSpec:
    """What a windowed table's batch needs beside the table's own `BatchSpec`.

    Attributes:
        table: How and where results are written.
        upstream_path: The upstream Delta table.
        event_time: Its timestamp column.
        seconds: Length of a window.
        column: The result's timestamp column that lies inside the window.
        function: The author's function.
        through: The views that the upstream is read through.
    """

    table: BatchSpec
    upstream_path: str
    event_time: str
    seconds: int
    column: str
    function: Callable[[DataFrame], DataFrame]
    through: Through = field(default_factory=Through)


def run_windows(spec: WindowSpec, starts: DataFrame, batch_id: int) -> None:
    """Recompute and replace the windows of one batch.

    Args:
        spec: The table.
        starts: One column `start`: the start of each new row's window, in seconds since 1970.
        batch_id: Number of the batch in its checkpoint.

    Raises:
        batch.BatchRefused: A fail rule is broken, or a result lies outside the windows.
    """
    if batch_id <= spec.table.committed:
        return
    session = starts.sparkSession
    who = batch.identity(session, spec.table.checkpoint, batch_id)
    touched = [row.start for row in starts.distinct().collect() if row.start is not None]
    ranges = _ranges(sorted(touched), spec.seconds)
    version = batch.latest_version(session, spec.upstream_path)
    upstream = session.read.format("delta").option("versionAsOf", version).load(spec.upstream_path)
    rows = spec.through(upstream).filter(_within(f"`{spec.event_time}`", ranges))
    batch.write_batch(
        spec.table,
        checked(spec.table, spec.function(rows)),
        who,
        replaced=_replaced(spec.column, ranges),
        extra={"windows": len(touched), "upstream_version": version},
    )


def _ranges(starts: list[int], seconds: int) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for start in starts:
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], start + seconds)
        else:
            ranges.append((start, start + seconds))
    if len(ranges) > MOST_RANGES:
        return [(ranges[0][0], ranges[-1][1])]
    return ranges


def _replaced(column: str, ranges: list[tuple[int, int]]) -> Replaced:
    """Rows of these windows, and dead letters, which hold such a row as JSON."""
    field = f"`{column}` TIMESTAMP".replace("\\", "\\\\").replace("'", "\\'")
    time = f"from_json(`row`, '{field}').`{column}`"
    return Replaced(_within(f"`{column}`", ranges), _within(time, ranges))


def _within(time: str, ranges: list[tuple[int, int]]) -> str:
    return (
        " OR ".join(
            f"({time} >= {_literal(start)} AND {time} < {_literal(end)})" for start, end in ranges
        )
        or "false"
    )


def _literal(seconds: int) -> str:
    try:
        return f"TIMESTAMP '{datetime.fromtimestamp(seconds, UTC).isoformat(sep=' ')}'"
    except (ValueError, OverflowError):
        # Beyond Python's years 1 to 9999, where the windows of such a row end or begin.
        return f"timestamp_seconds({seconds})"


def window_start(event_time: str, seconds: int) -> Column:
    """The start of a row's window, in seconds since 1970; windows are aligned to the epoch."""
    second = F.unix_seconds(F.col(f"`{event_time}`"))
    return (second - F.pmod(second, F.lit(seconds))).alias("start")
