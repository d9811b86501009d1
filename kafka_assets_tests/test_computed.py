"""What NOT NULL on columns becomes."""

from __future__ import annotations

from kafka_assets.declarations.computed import never_null


def test_each_column_has_a_constraint_of_its_own_whatever_it_is_called() -> None:
    assert never_null(["id", "a-b", "a_b", "1st", "名"]) == {
        "id_not_null": "`id` IS NOT NULL",
        "a_b_not_null": "`a-b` IS NOT NULL",
        "a_b_not_null_2": "`a_b` IS NOT NULL",
        "column_1st_not_null": "`1st` IS NOT NULL",
        "column_not_null": "`名` IS NOT NULL",
    }
