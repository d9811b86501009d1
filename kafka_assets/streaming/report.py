"""What one run of one table did, as plain values.

A report is made from the commits that the table and its dead letters have, not from what the run
meant to write, so a crash between a commit and its report loses no count: the next run reports it.
Rendering for Dagster or for the terminal belongs to those who show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kafka_assets.declarations import Action


@dataclass(frozen=True)
class RuleResult:
    """One expectation over the reported batches.

    Attributes:
        name: The expectation's name.
        action: What happens to a row that breaks it.
        rule: Its text.
        broken: Rows that broke it. Of a fail rule, those that its threshold put up with.
        first: Topic, partition and offset of the first of them, where rows have a `_source`.
    """

    name: str
    action: Action
    rule: str
    broken: int
    first: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class TableRuleResult:
    """One expectation on the table as a whole, as the run left it.

    Attributes:
        name: The expectation's name.
        blocking: When broken, it holds back the tables downstream.
        holds: Whether it is kept.
        sentence: What was found, for people.
        found: The figure that was compared; None where there is none.
        sample: A few values that break it.
        newest: For the age of the newest event: its time, in seconds since 1970-01-01 UTC.
    """

    name: str
    blocking: bool
    holds: bool
    sentence: str
    found: int | None = None
    sample: tuple[Mapping[str, str], ...] = ()
    newest: int | None = None


@dataclass(frozen=True)
class Conservation:
    """One of the equalities that say that no row went missing inside a run.

    Attributes:
        name: `rows_read` (rows read = decoded + undecodable + raised) or `rows_returned` (rows the
            function returned = kept + dead).
        left: The side counted from the input.
        right: The side counted from the output.
        parts: The named addends of the right side.
    """

    name: str
    left: int
    right: int
    parts: Mapping[str, int]

    @property
    def holds(self) -> bool:
        """True when both sides are equal."""
        return self.left == self.right


@dataclass(frozen=True)
class RunReport:
    """What one run of one table did.

    Attributes:
        table: The table's name.
        run_id: Id of the run (Dagster's, when Dagster ran it).
        started: When the run began (UTC).
        seconds: Wall time of the run.
        batches: Micro-batches reported; 0 when there was nothing new.
        rows_read: Rows read from the upstream; None where it cannot be counted on its own.
        decoded: Rows whose payload decoded and that the function took; None for a table that does
            not decode.
        undecodable: Rows whose payload did not decode; None for a table that does not decode.
        raised: Rows on which the function, or a rule, raised.
        returned: Rows that the author's function returned.
        kept: Rows committed to the table.
        dead: Rows committed to the dead letters: undecodable ones, those that broke a drop rule,
            and those on which the function raised.
        rules: One result for each expectation, in declared order, also when nothing was read.
        table_rules: One result for each expectation on the table as a whole, in declared order.
        conservation: The equalities that apply to this kind of table.
        offsets: `topic/partition` -> first offset read and the one after the last, for a table
            that reads a topic; both are where it stands when nothing was read.
        lag: Records that the topics held beyond these offsets when the run ended; None for a
            table that reads no topic.
        version_from: Delta version of the table before the reported commits; None for a new table.
        version_to: Delta version after them.
        data_version: Names the table's content; moves only when data changed.
        rows_total: Rows of the table after the run; None where it was not counted.
        bytes_written: Bytes of the files that the reported commits added.
        schema: Column name -> type, of the table.
        dead_letters_version: Like data_version, for the dead letters; None when there are none.
        dead_letters_sample: A few of the newest dead letters of the reported batches.
        extra: Further figures by name, such as windows recomputed.
    """

    table: str
    run_id: str
    started: datetime
    seconds: float
    batches: int
    returned: int
    kept: int
    dead: int
    rules: tuple[RuleResult, ...]
    conservation: tuple[Conservation, ...]
    version_from: int | None
    version_to: int
    data_version: str
    bytes_written: int
    schema: Mapping[str, str]
    rows_read: int | None = None
    decoded: int | None = None
    undecodable: int | None = None
    raised: int = 0
    rows_total: int | None = None
    offsets: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    lag: int | None = None
    dead_letters_version: str | None = None
    dead_letters_sample: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, int | float | str] = field(default_factory=dict)
    table_rules: tuple[TableRuleResult, ...] = ()

    @property
    def filtered(self) -> int | None:
        """Decoded rows that the function left out; None where that is not known.

        Negative when the function returned more rows than it was given.
        """
        return None if self.decoded is None else self.decoded - self.returned


def summary(report: RunReport) -> str:
    """A report as one line for people."""
    if report.batches == 0:
        return f"{report.table}: nothing new ({report.seconds:.1f} s)"
    dead = f", {report.dead:,} dead letters" if report.dead else ""
    return f"{report.table}: {report.kept:,} rows{dead} in {report.seconds:.1f} s"
