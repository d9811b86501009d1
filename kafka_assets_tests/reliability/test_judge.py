"""The judge and the reader tell each kind of fault apart; small tables, no Spark, no broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from kafka_assets_tests.reliability.judge import Verdict, judge
from kafka_assets_tests.reliability.kinds import KINDS, LINES, put_file
from kafka_assets_tests.reliability.kinds_judge import kinds_wrong
from kafka_assets_tests.reliability.ledger import ABORTED, ACKNOWLEDGED, Ledger, event
from kafka_assets_tests.reliability.reader import Reader
from kafka_assets_tests.reliability.windows import LAYERS

SIZE = 100
QUERY = "q"


class Tables:
    """A ledger of acknowledged events, and tables that hold exactly these in one batch."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        self.ledger = Ledger("127.0.0.1:1", "nowhere", seed=3)
        self.ledger._numbers(SIZE)
        for number in range(SIZE):
            self.ledger._statuses[number] = ACKNOWLEDGED
        self.add_raw(*range(SIZE))
        self.dead = [n for n in range(SIZE) if event(3, n)[0] == "dead"]
        self.kept = [n for n in range(SIZE) if n not in self.dead]
        self.add_letters(*self.dead, batch=0)
        self.add_clean(*self.kept, batch=0)

    def add_raw(self, *numbers: int, value: bytes | None = None) -> None:
        values = [value or event(3, n)[1] for n in numbers]
        keys = [str(n).encode() for n in numbers]
        places = {"partition": [n % 2 for n in numbers], "offset": [n // 2 for n in numbers]}
        schema = pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
            ]
        )
        rows = {"key": keys, "value": values, **places}
        self._append("bronze/raw", pa.table(rows, schema=schema))

    def add_clean(self, *numbers: int, batch: int) -> None:
        hour = datetime(2026, 11, 20, tzinfo=UTC)
        source = [{"partition": n % 2, "offset": n // 2} for n in numbers]
        size = len(numbers)
        rows = {"id": numbers, "x": [1] * size, "hour": [hour] * size, "_source": source}
        done = CommitProperties(app_transactions=[Transaction(QUERY, batch)])
        self._append("silver/clean", pa.table(rows), done)

    def add_letters(self, *numbers: int, batch: int) -> None:
        rows: list[dict[str, Any]] = [
            {
                "letter_id": f"{batch}/{n}",
                "key": str(n).encode(),
                "value": event(3, n)[1],
                "failed_rules": ["r"],
                "query_id": QUERY,
                "batch_id": batch,
            }
            for n in numbers
        ]
        self._append("dlq/clean", pa.Table.from_pylist(rows))

    def judged(self) -> Verdict:
        return judge(self.lake, self.ledger)

    def _append(self, path: str, rows: pa.Table, done: CommitProperties | None = None) -> None:
        write_deltalake(str(self.lake / path), rows, mode="append", commit_properties=done)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def faults(verdict: Verdict) -> dict[str, int]:
    return {name: count for name, count in verdict.faults.items() if count}


def test_tables_that_hold_everything_once_are_exact(tables: Tables) -> None:
    assert tables.judged().exact
    assert tables.judged().acknowledged == SIZE


def test_an_acknowledged_event_that_is_nowhere_is_lost(tables: Tables) -> None:
    tables.ledger._numbers(1)
    tables.ledger._statuses[SIZE] = ACKNOWLEDGED
    assert faults(tables.judged()) == {"lost": 1, "bronze_lost": 1}
    assert tables.judged().sound


def test_an_event_without_an_answer_may_be_there_or_not(tables: Tables) -> None:
    tables.ledger._numbers(1)
    assert tables.judged().exact


def test_a_row_that_is_there_twice_is_doubled(tables: Tables) -> None:
    tables.add_clean(tables.kept[0], batch=1)
    assert faults(tables.judged()) == {"doubled": 1}
    assert not tables.judged().sound


def test_a_row_that_is_also_a_dead_letter_is_doubled_and_misplaced(tables: Tables) -> None:
    tables.add_letters(tables.kept[0], batch=0)
    assert faults(tables.judged()) == {"doubled": 1, "misplaced": 1}


def test_letters_of_a_batch_that_silver_does_not_have_are_not_counted(tables: Tables) -> None:
    tables.add_letters(tables.dead[0], batch=1)
    assert tables.judged().exact
    assert tables.judged().undecided == 1
    tables.add_clean(batch=1)
    assert faults(tables.judged()) == {"doubled": 1}


def test_a_letter_counts_until_it_is_replayed(tables: Tables) -> None:
    number = tables.kept[0]
    tables.add_letters(number, batch=0)
    assert faults(tables.judged()) == {"doubled": 1, "misplaced": 1}
    marks = [
        {"letter_id": f"0/{number}", "status": status, "at": datetime(2026, 11, 20, hour)}
        for hour, status in enumerate(("replaying", "replayed"))
    ]
    for mark in marks:
        write_deltalake(
            str(tables.lake / "dlq/clean__status"), pa.Table.from_pylist([mark]), mode="append"
        )
        exact = mark["status"] == "replayed"
        assert tables.judged().exact is exact


def test_an_aborted_event_is_seen(tables: Tables) -> None:
    tables.ledger._statuses[5] = ABORTED
    assert faults(tables.judged()) == {"aborted_seen": 1}


def test_bytes_that_are_not_those_sent_are_altered(tables: Tables) -> None:
    tables.add_raw(7, value=b"other")
    assert faults(tables.judged()) == {"bronze_doubled": 1, "altered": 1}


def test_the_reader_takes_a_prefix_of_each_partition_for_whole(tables: Tables) -> None:
    reader = Reader(tables.lake, tables.ledger)
    ids = DeltaTable(str(tables.lake / "silver/clean")).to_pyarrow_table()["id"].to_numpy()
    reader.look(0, ids[ids < 40])
    assert not reader.torn
    reader.look(1, ids[ids != tables.kept[3]])
    assert len(reader.torn) == 1


def test_the_reader_finds_a_version_that_ends_inside_of_a_batch(tables: Tables) -> None:
    offsets = tables.lake / "_checkpoints/bronze/raw/offsets"
    offsets.mkdir(parents=True)
    for batch, each in enumerate((20, SIZE // 2)):
        text = json.dumps({"topic": {"0": each, "1": each}})
        (offsets / str(batch)).write_text(f"v1\n{{}}\n{text}")
    ids = DeltaTable(str(tables.lake / "silver/clean")).to_pyarrow_table()["id"].to_numpy()
    reader = Reader(tables.lake, tables.ledger)
    for version, whole in enumerate((ids[:0], ids[ids < 40], ids)):
        reader.look(version, whole)
    reader.compare_with_batches()
    assert reader.torn == []
    # One partition is further than the other.
    reader.look(3, ids[(ids < 40) | (ids % 2 == 0)])
    reader.compare_with_batches()
    assert len(reader.torn) == 1


def test_lines_of_files_that_are_missing_or_there_twice_are_found(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    put_file(lake, 0)
    bad = (tmp_path / "landing/0.json").read_text().splitlines()[-1]
    letters = pa.table({"row": [f'{{"_rescued_data": {json.dumps(bad)}}}']})
    silver = pa.table({"id": [1], "x": [1], "hour": [datetime(2026, 11, 20, tzinfo=UTC)]})

    def found(numbers: list[int]) -> tuple[str, ...]:
        write_deltalake(str(lake / "bronze/landed"), pa.table({"n": numbers}), mode="overwrite")
        return kinds_wrong(lake, silver, ("landed",))

    write_deltalake(str(lake / "dlq/landed"), letters)
    all_lines = list(range(1, LINES))
    assert found(all_lines) == ()
    assert found(all_lines[1:]) == ("bronze/landed lacks (1,)",)
    assert found([*all_lines, 7]) == ("bronze/landed has (7,) too often",)
    write_deltalake(str(lake / "dlq/landed"), letters, mode="append")
    assert found(all_lines) == (f"dlq/landed has {bad} too often",)


def test_every_table_that_the_soak_kills_has_files_that_are_watched() -> None:
    assert set(KINDS) <= LAYERS.keys()
