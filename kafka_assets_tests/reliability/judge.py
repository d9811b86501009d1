"""Whether the tables hold exactly what the broker acknowledged, read without Spark.

The judge knows the ledger and the files of the lake, and nothing of the product: no module of it is
imported here, so that one mistake cannot be in both.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from kafka_assets_tests.reliability.kinds_judge import alerts_wrong, kinds_wrong, newest_wrong
from kafka_assets_tests.reliability.ledger import ABORTED, ACKNOWLEDGED, Ledger

STRICT_RULE = "below"
"""The rule that only a changed pipeline has; its letters are good events."""


@dataclass(frozen=True)
class Verdict:
    """What the tables have of the acknowledged events.

    Attributes:
        acknowledged: Events that the broker has.
        bronze_lost: Acknowledged numbers that bronze does not have.
        bronze_doubled: Numbers that bronze has more than once.
        lost: Acknowledged numbers that neither silver nor its dead letters have.
        doubled: Numbers that silver and its dead letters have more than once, together.
        aborted_seen: Numbers of aborted transactions in any table.
        altered: Numbers whose raw bytes, in bronze or the dead letters, are not those sent.
        misplaced: Bad events in silver, and good ones among the dead letters.
        gold_wrong: Hours whose row in gold is not the sum over silver.
        kinds_wrong: Rows that tables of other kinds lack or have too many, or wrong.
        kept: Rows of silver.
        dead: Dead letters.
        undecided: Letters left out, as silver does not have their batch.
        sent_again: Records that the Kafka sink, which is at least once, sent more than once.
    """

    acknowledged: int
    bronze_lost: tuple[int, ...]
    bronze_doubled: tuple[int, ...]
    lost: tuple[int, ...]
    doubled: tuple[int, ...]
    aborted_seen: tuple[int, ...]
    altered: tuple[int, ...]
    misplaced: tuple[int, ...]
    gold_wrong: tuple[str, ...]
    kinds_wrong: tuple[str, ...]
    kept: int
    dead: int
    undecided: int
    sent_again: int = 0

    @property
    def faults(self) -> dict[str, int]:
        """Name of each kind of fault -> how many were found."""
        return {name: len(value) for name, value in vars(self).items() if isinstance(value, tuple)}

    @property
    def exact(self) -> bool:
        """No fault of any kind."""
        return not any(self.faults.values())

    @property
    def sound(self) -> bool:
        """No fault but events that are not there yet: what must hold at every moment."""
        waiting = ("lost", "bronze_lost")
        return not any(n for name, n in self.faults.items() if name not in waiting)

    def __str__(self) -> str:
        found = ", ".join(
            f"{name} {len(value)} ({', '.join(map(str, value[:5]))})"
            for name, value in vars(self).items()
            if isinstance(value, tuple) and value
        )
        return (
            f"{self.acknowledged} acknowledged, {self.kept} kept, {self.dead} dead, "
            f"{self.undecided} undecided: {found or 'exact'}"
        )


def judge(
    lake: Path, ledger: Ledger, *, tables: Collection[str] = (), whole: bool = True
) -> Verdict:
    """Compare bronze `raw`, silver `clean`, its dead letters and gold `hourly` with the ledger.

    Call it when the last run has drained the topic; before that, waiting events look lost.

    Args:
        lake: Where the tables lie.
        ledger: What was sent.
        tables: Tables behind silver that the last run brought up to date too.
        whole: Compare the raw bytes of all of bronze too, which takes seconds a million rows;
            those of the dead letters are always compared.
    """
    statuses = ledger.statuses()
    size = len(statuses)
    raw = _rows(lake / "bronze/raw", ["key", "value"] if whole else ["key"])
    clean = _clean(lake)
    letters, undecided = decided_letters(lake)
    letter_ids = _keys(letters)
    in_bronze = _counts(_keys(raw), size)
    silver_ids = pc.cast(clean["id"], pa.int64()).to_numpy()
    in_silver = _counts(silver_ids, size) + _counts(letter_ids, size)
    wanted = statuses == ACKNOWLEDGED
    alerts, again = (
        alerts_wrong(ledger.bootstrap, ledger.topic, clean) if "alerts" in tables else ((), 0)
    )
    newest = newest_wrong(lake, ledger.bootstrap, ledger.topic) if "newest" in tables else ()
    seen = (in_bronze + in_silver) > 0
    return Verdict(
        acknowledged=int(wanted.sum()),
        bronze_lost=_where(wanted & (in_bronze == 0)),
        bronze_doubled=_where(in_bronze > 1),
        lost=_where(wanted & (in_silver == 0)),
        doubled=_where(in_silver > 1),
        aborted_seen=_where((statuses == ABORTED) & seen),
        altered=(_altered(raw, ledger) if whole else ()) + _altered(letters, ledger),
        misplaced=_misplaced(silver_ids, letters, letter_ids, ledger.dead()),
        gold_wrong=_gold_wrong(lake, clean) if "hourly" in tables else (),
        kinds_wrong=(*kinds_wrong(lake, clean, tables), *alerts, *newest) if tables else (),
        sent_again=again,
        kept=clean.num_rows,
        dead=letters.num_rows,
        undecided=undecided,
    )


def decided_letters(lake: Path) -> tuple[pa.Table, int]:
    """The dead letters of batches that silver has, and the number of the others.

    Silver's own transactions say which batches it has; no record beside the tables is asked.
    Letters whose event a replay has brought into silver are none any more.
    """
    columns = ["letter_id", "key", "value", "failed_rules", "query_id", "batch_id"]
    letters = _rows(lake / "dlq/clean", columns)
    if letters.num_rows == 0:
        return letters, 0
    replayed = pa.array(_replayed(lake), pa.string())
    letters = letters.filter(pc.invert(pc.is_in(letters["letter_id"], replayed)))
    silver = DeltaTable(str(lake / "silver/clean"))
    queries = pc.unique(letters["query_id"]).to_pylist()
    last = {query: silver.transaction_version(query) for query in queries}
    ends = [-1 if last[q] is None else last[q] for q in letters["query_id"].to_pylist()]
    decided = pc.less_equal(letters["batch_id"], pa.chunked_array([pa.array(ends, pa.int64())]))
    kept = letters.filter(decided)
    return kept, letters.num_rows - kept.num_rows


def _replayed(lake: Path) -> list[str]:
    statuses = _rows(lake / "dlq/clean__status", ["letter_id", "status", "at"])
    last = {row["letter_id"]: row["status"] for row in statuses.sort_by("at").to_pylist()}
    return [letter for letter, status in last.items() if status == "replayed"]


def _clean(lake: Path) -> pa.Table:
    rows = _rows(lake / "silver/clean", ["id", "x", "hour", "_source"])
    offsets = rows["_source"]
    if not pa.types.is_null(offsets.type):
        offsets = pc.struct_field(offsets, "offset")
    return rows.drop_columns("_source").append_column("offset", offsets)


def _rows(path: Path, columns: list[str]) -> pa.Table:
    try:
        table = DeltaTable(str(path))
    except TableNotFoundError:
        return pa.table({name: pa.array([], pa.null()) for name in columns})
    return table.to_pyarrow_table(columns=columns)


def _keys(table: pa.Table) -> Any:
    text = pc.cast(pc.cast(table["key"], pa.binary()), pa.string())
    return pc.cast(text, pa.int64()).to_numpy()


def _counts(ids: Any, size: int) -> Any:
    assert not len(ids) or ids.max() < size, "a table holds a number that was never sent"
    return np.bincount(ids, minlength=size)


def _where(condition: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in np.flatnonzero(condition))


def _altered(table: pa.Table, ledger: Ledger) -> tuple[int, ...]:
    pairs = zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
    return tuple(int(key) for key, value in pairs if ledger.expected(int(key))[1] != value)


def _misplaced(silver_ids: Any, letters: pa.Table, letter_ids: Any, dead: Any) -> tuple[int, ...]:
    strict = np.array([rules == [STRICT_RULE] for rules in letters["failed_rules"].to_pylist()])
    good = letter_ids[~dead[letter_ids] & ~strict.astype(bool)]
    return tuple(int(i) for i in [*silver_ids[dead[silver_ids]], *good])


def _gold_wrong(lake: Path, clean: pa.Table) -> tuple[str, ...]:
    gold = _rows(lake / "gold/hourly", ["hour", "total", "events"])
    sums = clean.group_by("hour").aggregate([("x", "sum"), ("id", "count")])
    want = {row["hour"]: (row["x_sum"], row["id_count"]) for row in sums.to_pylist()}
    have = [(row["hour"], (row["total"], row["events"])) for row in gold.to_pylist()]
    wrong = [hour for hour, figures in have if want.get(hour) != figures]
    missing = want.keys() - {hour for hour, _ in have}
    doubled = len(have) - len({hour for hour, _ in have})
    return tuple(str(hour) for hour in [*wrong, *missing]) + ("doubled hour",) * doubled
