"""Finding the rows on which an author's function, or a rule, raises.

A batch that raises is halved until the rows that do it stand alone; they become dead letters and
the rest of the batch is written. It runs where the engine runs the batch, and is sent there by
value: it imports only pyspark, the standard library, and modules of the same kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

MOST = 100
"""With more raising rows than this the function is at fault, not the data: the batch fails."""

_ABOUT_A_ROW = re.compile(
    r"\b(Spark(Runtime|Arithmetic|NumberFormat|DateTime|ArrayIndexOutOfBounds|NoSuchElement"
    r"|IllegalArgument|UnsupportedOperation)Exception|PythonException"
    r"|(Arithmetic|NumberFormat|DateTime|ArrayIndexOutOfBounds)Exception"
    r"|DIVIDE_BY_ZERO|CAST_INVALID_INPUT|FAILED_EXECUTE_UDF)"
)


@dataclass(frozen=True)
class Range:
    """Records of one partition, from one offset to another, both included."""

    topic: str
    partition: int
    first: int
    last: int

    def holds(self, at: str) -> Column:
        """True for a row that came from one of these records; see `raising_rows`."""
        return (
            (F.col(f"{at}topic") == self.topic)
            & (F.col(f"{at}partition") == self.partition)
            & F.col(f"{at}offset").between(self.first, self.last)
        )


@dataclass(frozen=True)
class Raising:
    """A record on whose row the function raises, and what it raises."""

    record: Range
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """Rows of a batch that the function is not given, because it raises on them.

    Attributes:
        rows: These rows, as the function would have been given them.
        count: How many.
        why: Their records, and what is raised.
    """

    rows: DataFrame
    count: int
    why: tuple[Raising, ...]


def is_about_rows(error: BaseException | str) -> bool:
    """Whether an error of the engine, or the text of one, can come from the values of a row."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return _ABOUT_A_ROW.search(text) is not None


def raising_rows(
    good: DataFrame, function: Callable[[DataFrame], DataFrame], at: str
) -> tuple[Raising, ...]:
    """The rows on which a function raises, each by itself.

    Args:
        good: The rows that the function is given.
        function: What raises.
        at: What stands before `topic`, `partition` and `offset` in the names of their columns:
            `_source.`, or nothing for rows that are records themselves.

    Returns:
        At most `MOST` rows; none when there are more, when the rows raise only together, or when
        it does not raise again: then no row is to blame.
    """
    source = good.groupBy(f"{at}topic", f"{at}partition")
    ends = source.agg(F.min(f"{at}offset").alias("first"), F.max(f"{at}offset").alias("last"))
    whole = [Range(r.topic, r.partition, r.first, r.last) for r in ends.collect()]
    found: list[Raising] = []
    suspects = [whole] if whole else []
    while suspects:
        smaller = []
        for suspect in suspects:
            guilty = 0
            for half in _halves(suspect):
                reason = _raises(good.filter(within(half, at)), function)
                if reason is None:
                    continue
                guilty += 1
                if len(half) == 1 and half[0].first == half[0].last:
                    found.append(Raising(half[0], reason))
                else:
                    smaller.append(half)
            if guilty == 0:
                return ()
        if len(found) + len(smaller) > MOST:
            return ()
        suspects = smaller
    return tuple(found)


def within(ranges: list[Range], at: str) -> Column:
    """True for a row that came from one of these records; see `raising_rows`."""
    condition = F.lit(False)
    for records in ranges:
        condition = condition | records.holds(at)
    # A row that names no record came from none of these.
    return F.coalesce(condition, F.lit(False))


def _halves(ranges: list[Range]) -> list[list[Range]]:
    if len(ranges) > 1:
        middle = len(ranges) // 2
        return [ranges[:middle], ranges[middle:]]
    (only,) = ranges
    if only.first == only.last:
        return [ranges]
    middle = (only.first + only.last) // 2
    return [
        [Range(only.topic, only.partition, only.first, middle)],
        [Range(only.topic, only.partition, middle + 1, only.last)],
    ]


def _raises(rows: DataFrame, function: Callable[[DataFrame], DataFrame]) -> str | None:
    try:
        # The sink that reads every column of every row, and keeps none.
        function(rows).write.format("noop").mode("overwrite").save()
    except Exception as error:
        if not is_about_rows(error):
            raise
        return _gist(error)
    return None


def _gist(error: Exception) -> str:
    text = str(error)
    python = re.findall(r"^([A-Za-z_][\w.]*(?:Error|Exception): [^\n]+)", text, re.MULTILINE)
    condition = re.search(r"\[[A-Z_.]+\][^\n]*", text)
    if python and "Traceback" in text:
        return str(python[-1])[:500]
    if condition is not None:
        return condition.group(0).split(" SQLSTATE")[0][:500]
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__)[:500]
