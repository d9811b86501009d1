"""A rule that is tried before an author's function never stops a query."""

from __future__ import annotations

import pytest

from kafka_assets.sql_rules import Operand, cannot_raise

COLUMNS: dict[str, Operand] = {
    "bpm": "number",
    "kcal": "number",
    "model": "string",
    "time": "other",
}


@pytest.mark.parametrize(
    "rule",
    [
        "bpm BETWEEN 30 AND 220",
        "amount IS NOT NULL AND bpm > -1".replace("amount", "kcal"),
        "model IN ('a', 'b') OR NOT (model = 'c')",
        "BPM <= kcal",
        "time IS NULL",
        "true",
    ],
)
def test_comparing_columns_with_their_own_kind_never_raises(rule: str) -> None:
    assert cannot_raise(rule, COLUMNS)


@pytest.mark.parametrize(
    "rule",
    [
        "1 / bpm > 2",
        "bpm + 1 > 2",
        "CAST(model AS INT) > 3",
        "model > 3",
        "time > '2026-01-01'",
        "bpm IN (1, 'a')",
        "other_column > 3",
        "raw.bpm > 3",
        "upper(model) = 'A'",
        "bpm BETWEEN model AND 3",
    ],
)
def test_whatever_might_raise_on_some_row_is_not_tried(rule: str) -> None:
    assert not cannot_raise(rule, COLUMNS)
