"""What people write after a command means what they expect, and starts no Spark needlessly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kafka_assets.cli import app
from kafka_assets.cli_tables import moment, offset_range
from kafka_assets.errors import OperationRefused

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_LAKE", str(tmp_path / "lake"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("2h", NOW - timedelta(hours=2)),
        ("7d", NOW - timedelta(days=7)),
        ("2026-01-31T10:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("2026-01-31T10:00+02:00", datetime(2026, 1, 31, 8, tzinfo=UTC)),
    ],
)
def test_a_time_is_iso_in_utc_or_how_long_ago(text: str | None, expected: datetime | None) -> None:
    assert moment("--since", text, NOW) == expected


def test_offsets_are_one_or_a_range() -> None:
    assert offset_range(None) is None
    assert offset_range("17") == (17, 17)
    assert offset_range("17-40") == (17, 40)
    for wrong in ("-1", "a", "1-"):
        with pytest.raises(typer.BadParameter):
            offset_range(wrong)
    with pytest.raises(typer.BadParameter):
        moment("--since", "yesterday")


def test_a_lake_without_tables_has_no_dead_letters() -> None:
    listed = CliRunner().invoke(app, ["dlq", "list"])
    assert (listed.exit_code, listed.output.strip()) == (0, "No dead letters.")
    assert CliRunner().invoke(app, ["dlq", "list", "--json"]).output.strip() == "[]"
    shown = CliRunner().invoke(app, ["dlq", "show", "orders_silver"])
    assert "0 of 0 dead letters of orders_silver" in shown.output
    moved = CliRunner().invoke(app, ["move", "orders_silver"])
    assert "lies where it is declared" in moved.output


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["dlq", "list", "nothing"], "there is no table 'nothing'"),
        (["dlq", "show", "orders_silver", "--reason", "("], "is no regular expression"),
        (["dlq", "purge"], "no retention is set"),
        (["dlq", "discard", "orders_silver", "--because", " "], "for a reason"),
        (["accept-loss", "orders_bronze", "--because", ""], "for a reason"),
        (["reset", "orders_bronze", "--no-run"], "reset_allowed=False"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(command: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, OperationRefused)
    assert problem in str(result.exception)
