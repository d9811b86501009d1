"""What a table must be that changes were applied to, worked out plainly in Python.

No Spark and nothing of the product: lists, dictionaries and sorting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """One change: what happens to a key at a point of the sequence.

    Attributes:
        key: Which row.
        seq: Its place in the sequence; None for a change that says none.
        op: `put`, `delete` or `clear`.
        a: A value; None for null.
        b: Another value.
    """

    key: str
    seq: int | None
    op: str
    a: int | None = None
    b: int | None = None


def present(changes: Iterable[Change], *, keep_on_null: bool) -> dict[str, tuple[Any, Any]]:
    """Key -> (a, b) after all changes, in the order of the sequence (type 1)."""
    rows: dict[str, tuple[Any, Any]] = {}
    for change in _in_order(changes):
        if change.op == "clear":
            rows.clear()
        elif change.op == "delete":
            rows.pop(change.key, None)
        else:
            rows[change.key] = _merged(rows.get(change.key), change, keep_on_null)
    return rows


def states(
    changes: Iterable[Change], *, keep_on_null: bool, tracked: tuple[str, ...]
) -> set[tuple[Any, ...]]:
    """All states (key, a, b, from, until) of every key (type 2)."""
    found: set[tuple[Any, ...]] = set()
    ordered = _in_order(changes)
    for key in {change.key for change in ordered}:
        mine = {c.seq: c for c in ordered if c.key == key}
        now: tuple[Any, Any] | None = None
        since: int | None = None
        for seq, change in sorted(mine.items()):
            if change.op == "delete":
                if now is not None:
                    found.add((key, *now, since, seq))
                now = since = None
                continue
            then = _merged(now, change, keep_on_null)
            if now is not None and _differ(now, then, tracked):
                found.add((key, *now, since, seq))
                since = seq
            since = seq if since is None else since
            now = then
        if now is not None:
            found.add((key, *now, since, None))
    return found


def _in_order(changes: Iterable[Change]) -> list[Change]:
    # sorted() keeps the order of arrival among equals, which is the order of offsets.
    return sorted((c for c in changes if c.seq is not None), key=lambda c: c.seq or 0)


def _merged(now: tuple[Any, Any] | None, change: Change, keep_on_null: bool) -> tuple[Any, Any]:
    if now is None or not keep_on_null:
        return change.a, change.b
    return (
        now[0] if change.a is None else change.a,
        now[1] if change.b is None else change.b,
    )


def _differ(now: tuple[Any, Any], then: tuple[Any, Any], tracked: tuple[str, ...]) -> bool:
    return any(now[i] != then[i] for i, name in enumerate("ab") if name in tracked)
