"""What the tables of the other kinds must hold, given silver `clean`; without Spark or the product.

Silver is compared with the ledger by `judge`; here everything that is made of silver is compared
with silver, what is made of files with the files, and what is made of a topic with the topic.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

FEW = 10
HIGH = 990
STEP, LAG = 500, 5_000


def kinds_wrong(
    lake: Path, clean: pa.Table, tables: Collection[str], lag: int = LAG, late: int = LAG
) -> tuple[str, ...]:
    """Rows that the tables lack, or have too many.

    Args:
        lake: Where they lie.
        clean: Silver's columns `id`, `x`, `hour` and `offset`, all rows; where ids come twice, in
            the order in which they stand in the topic.
        tables: Those that are up to date with silver; the others are not looked at.
        lag: How many offsets the watermark of `closed` stays behind.
        late: So many offsets more may its last step wait: after a kill Spark writes what the
            watermark closed with the next batch that has rows.
    """
    few = clean.filter(pc.less_equal(clean["x"], FEW))
    newest = _rows(clean.group_by("x").aggregate([("id", "max")]), "x", "id_max")
    hours = _rows(clean.group_by("hour").aggregate([("id", "count")]), "hour", "id_count")
    digits = Counter(id_ % 10 for id_ in clean["id"].to_pylist())
    known = few.filter(pc.greater_equal(few["x"], 1))
    named = [(id_, x, hour, f"n{x}") for id_, x, hour in _rows(known, "id", "x", "hour")]
    want: dict[str, tuple[tuple[str, ...], Iterable[Any]]] = {
        "silver/copied": (("id",), _rows(clean, "id")),
        "silver/latest": (("x", "id"), newest),
        "gold/totals": (("hour", "events"), hours),
        "silver/once": (("hour", "x"), set(_rows(clean, "hour", "x"))),
        "silver/joined": (("id",), _rows(clean.filter(pc.greater(clean["x"], HIGH)), "id")),
        "silver/named": (("id", "x", "hour", "label"), named),
        "silver/states": (("x", "hour", "__START_AT", "__END_AT"), _states(known)),
        "gold/digits": (("digit", "count"), digits.items()),
        "silver/begun": (("x", "id"), [*((x, -1) for x in range(1, 11)), *_rows(few, "x", "id")]),
        "../archived": (("id", "x"), _rows(few, "id", "x")),
    }
    wrong = []
    for table, (columns, rows) in want.items():
        if Path(table).name in tables:
            wrong += _differences(table, _read(lake / table, columns), rows)
    if "feed" in tables:
        wrong += _feed_wrong(lake, dict(newest))
    if "landed" in tables:
        wrong += _landed_wrong(lake)
    if "closed" in tables:
        wrong += _closed_wrong(lake, clean, lag, late)
    return tuple(wrong)


def newest_wrong(lake: Path, bootstrap: str, topic: str) -> tuple[str, ...]:
    """Keys whose newest good record is not the row of `newest`, and letters of the bad ones."""
    want: dict[bytes, int] = {}
    bad: Counter[bytes] = Counter()
    for key, value in _records(bootstrap, f"{topic}-keyed"):
        if value is None:
            want.pop(key, None)
        elif value.startswith(b'{"n": ') and not value.startswith(b'{"n": -'):
            want[key] = json.loads(value)["n"]
        else:
            bad[value] += 1
    letters = Counter(value for (value,) in _read(lake / "dlq/newest_changes", ("value",)))
    wrong = _differences(
        "silver/newest", _read(lake / "silver/newest", ("_key", "n")), want.items()
    )
    return (*wrong, *_differences("dlq/newest_changes", letters.elements(), bad.elements()))


def alerts_wrong(bootstrap: str, topic: str, clean: pa.Table) -> tuple[tuple[str, ...], int]:
    """Records that the sink's topic lacks or should not have, and how many it has again.

    A Kafka sink is at least once: a record that came twice is counted, and is no fault.
    """
    few = clean.filter(pc.less_equal(clean["x"], FEW))
    want = set(_rows(few, "id", "x"))
    sent = [json.loads(value or b"") for _, value in _records(bootstrap, f"{topic}-alerts")]
    have = Counter((value["id"], value["x"]) for value in sent)
    wrong = [f"alerts lacks {row}" for row in want - have.keys()]
    wrong += [f"alerts has {row}, which nobody sent" for row in have.keys() - want]
    return tuple(wrong), have.total() - len(have)


def _states(few: pa.Table) -> list[tuple[Any, ...]]:
    """Each stretch of ids of one x, in their order, in which the hour stays the same."""
    # Of two rows with one id, the one that stands later in the topic counts.
    newest = {(x, id_): hour for x, id_, hour in _rows(few, "x", "id", "hour")}
    found: list[tuple[Any, ...]] = []
    last: tuple[Any, ...] | None = None
    for x, id_ in sorted(newest):
        hour = newest[x, id_]
        if last is not None and last[:2] == (x, hour):
            continue
        if last is not None:
            found.append((*last, id_ if last[0] == x else None))
        last = (x, hour, id_)
    return found if last is None else [*found, (*last, None)]


def _feed_wrong(lake: Path, newest: dict[Any, Any]) -> list[str]:
    """The feed tells each new value of an x once, and the last of them is the newest."""
    told = Counter(_read(lake / "gold/feed", ("x", "id", "what")))
    gained = [(x, id_) for x, id_, what in told if what in ("insert", "update_postimage")]
    last: dict[Any, Any] = {}
    for x, id_ in gained:
        last[x] = max(id_, last.get(x, id_))
    wrong = [f"gold/feed has {row} {n} times" for row, n in told.items() if n > 1]
    differing = sorted(x for x in newest.keys() | last.keys() if newest.get(x) != last.get(x))
    return wrong + [f"gold/feed ends at {last.get(x)} for x={x}" for x in differing]


def _landed_wrong(lake: Path) -> list[str]:
    """Each line of each file is a row, or a dead letter where its number is none."""
    files = sorted((lake.parent / "landing").glob("*.json"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    numbers = [json.loads(line)["n"] for line in lines]
    rows = [(n,) for n in numbers if isinstance(n, int)]
    bad = [line for line, n in zip(lines, numbers, strict=True) if not isinstance(n, int)]
    letters = [json.loads(row) for (row,) in _read(lake / "dlq/landed", ("row",))]
    return [
        *_differences("bronze/landed", _read(lake / "bronze/landed", ("n",)), rows),
        *_differences("dlq/landed", [letter["_rescued_data"] for letter in letters], bad),
    ]


def _closed_wrong(lake: Path, clean: pa.Table, lag: int, late: int) -> list[str]:
    """Each step is written once, whole, and when the watermark has passed it."""
    offsets = clean["offset"].to_pylist()
    steps = Counter(offset // STEP * STEP for offset in offsets)
    have = _read(lake / "gold/closed", ("first", "count"))
    passed = max(offsets, default=0) - lag
    due = {first for first in steps if first + STEP <= passed - late}
    early = [f"gold/closed has {first} too early" for first, _ in have if first + STEP > passed]
    lacking = [f"gold/closed lacks {first}" for first in due - {first for first, _ in have}]
    written = [(first, steps[first]) for first in due | {first for first, _ in have}]
    return early + lacking + _differences("gold/closed", have, written)


def _differences(table: str, have: Iterable[Any], want: Iterable[Any]) -> list[str]:
    found, wanted = Counter(have), Counter(want)
    lacking = [f"{table} lacks {row}" for row in wanted - found]
    return lacking + [f"{table} has {row} too often" for row in found - wanted]


def _rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*[table[name].to_pylist() for name in columns], strict=True))


def _read(path: Path, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    try:
        table = DeltaTable(str(path))
    except TableNotFoundError:
        return []
    return _rows(table.to_pyarrow_table(columns=list(columns)), *columns)


def _records(bootstrap: str, topic: str) -> list[tuple[bytes, bytes | None]]:
    """Key and value of each record of the only partition, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-judge",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    found = []
    while True:
        message = consumer.poll(60)
        assert message is not None, f"the broker is silent about {topic}"
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                break
            # The broker may just have been killed: the client goes on when it is back.
            assert not error.fatal(), f"{topic}: {error}"
            continue
        found.append((message.key() or b"", message.value()))
    consumer.close()
    return found
