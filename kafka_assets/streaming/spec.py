"""What a batch is told, as frozen plain values. Sent by value, as `batch` is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

MARK = "KAFKA_ASSETS_BATCH_REFUSED"
"""Stands before and after the JSON in the message of an exception that stops a batch on purpose."""

SMALL_BATCH = 200_000
"""Batches up to this many rows are written as one file; larger ones keep their parallelism."""


@dataclass(frozen=True)
class Rule:
    """An expectation as the batch needs it: SQL text, or a function that returns a Column."""

    name: str
    action: str
    condition: str | Callable[[], Column]
    above: float = 0

    @property
    def text(self) -> str:
        """The rule as a person reads it."""
        if isinstance(self.condition, str):
            return self.condition
        return f"{self.condition.__name__}()"

    def broken(self) -> Column:
        """True for a row that breaks the rule; NULL counts as broken."""
        kept = F.expr(self.condition) if isinstance(self.condition, str) else self.condition()
        return ~F.coalesce(kept, F.lit(False))


@dataclass(frozen=True)
class Through:
    """The temporary views between a table and the one that it reads, the nearest to that first."""

    views: tuple[Callable[[DataFrame], DataFrame], ...] = ()

    def __call__(self, frame: DataFrame) -> DataFrame:
        """What the views show of a frame."""
        for view in self.views:
            frame = view(frame)
        return frame


@dataclass(frozen=True)
class Replaced:
    """What a table had before of the rows that a batch computes anew, as SQL conditions.

    Attributes:
        rows: True for these rows of the table.
        letters: True for these among its dead letters.
    """

    rows: str
    letters: str


@dataclass(frozen=True)
class BatchSpec:
    """All that a batch needs to know.

    Attributes:
        table: The table's name.
        path: Where the Delta table lies.
        dead_letters_path: Where its dead letters lie; None when no row can die.
        checkpoint: Where the stream's checkpoint lies.
        run_id: Id of the run.
        code_version: Names the code that writes.
        fingerprint: Names the payload's schema; None when the table does not decode.
        rules: The expectations.
        columns: The table's columns, in order.
        decodes: The frame carries `_undecodable` and `_raw` beside the decoded columns.
        function: The author's function, when it has to run here: after undecodable rows left, or
            to find the rows on which it raises.
        at: What stands before `topic`, `partition` and `offset` in the names of columns of the
            rows that the function is given.
        raw_path: Bronze table that has the raw bytes of rows that die by a rule; None when the
            frame itself carries them in `_raw`, or when rows have no `_source`.
        has_source: Rows of the function's result carry `_source`.
        keeps_records: The function passes on key, value and headers of the records that its rows
            were made from, as they are.
        given: The batch as the function is given it, where that is done here; None where the
            function is a part of the query.
        varies: The function or a rule asks for the time, or for chance: computed twice, a row may
            come out in two ways.
        replayed: The batch that an earlier run began and did not finish, or -1.
        committed: The last batch that the table has, or -1.
        letters_version: The last transaction version that the dead letters have of this query,
            or -1. Each attempt at a batch has a higher one, so that a writer that was overtaken
            adds no letters of a batch that another has finished.
        again: The batch is written a second time in this run.
        sources: What the query reads, by ids that change when it is made anew.
        explain: Payload -> why it does not decode.
        keys: Columns of a table whose rows are replaced by key.
        sink: Options of a Kafka topic that the rows go to, in place of the table, which then keeps
            an account of the batches and no rows.
        most_dead: The largest share of a batch's rows that may become dead letters.
        guarded: Batches of fewer rows than this may have any share.
    """

    table: str
    path: str
    dead_letters_path: str | None
    checkpoint: str
    run_id: str
    code_version: str
    fingerprint: str | None
    rules: tuple[Rule, ...]
    columns: tuple[str, ...]
    decodes: bool
    function: Callable[[DataFrame], DataFrame] | None
    raw_path: str | None
    has_source: bool
    at: str = "_source."
    keeps_records: bool = False
    given: DataFrame | None = field(default=None, compare=False, repr=False)
    varies: bool = False
    replayed: int = -1
    committed: int = -1
    letters_version: int = -1
    again: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)
    explain: Callable[[bytes | None], str | None] | None = field(default=None, compare=False)
    keys: tuple[str, ...] = ()
    sink: Mapping[str, str] | None = field(default=None, repr=False)
    most_dead: float = 1.0
    guarded: int = 1000
