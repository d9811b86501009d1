"""A query that a dead client left running is waited for, and a lost engine has a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kafka_assets as ka
from kafka_assets.errors import FenceRefused, LeaseHeld, RunFailed, SourceError
from kafka_assets.graph import Node
from kafka_assets.settings import Settings
from kafka_assets.streaming import query
from kafka_assets_tests.helpers import graph_of

ACTIVE = "Cannot start query with id 1 as another query with same id is already active."


@pytest.fixture
def node(tmp_path: Path) -> Node:
    events = ka.kafka_topic("events")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events

    return graph_of(Settings(lake=str(tmp_path / "lake")), events, raw).tables["raw"]


def test_a_query_left_running_is_waited_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    answers: list[Any] = [RuntimeError(ACTIVE), RuntimeError(ACTIVE), "started"]

    def start() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    found: object = query.start_query(start, node)
    assert found == "started"


def test_a_query_that_never_ends_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "ORPHAN_SECONDS", -1)

    def start() -> Any:
        raise RuntimeError(ACTIVE)

    with pytest.raises(LeaseHeld, match="'raw'"):
        query.start_query(start, node)


def test_an_engine_that_is_gone_is_named_and_our_own_mistakes_are_not_hidden(node: Node) -> None:
    with pytest.raises(RunFailed, match="'raw'"), query.named_errors(node):
        raise ConnectionRefusedError("refused")
    with pytest.raises(ZeroDivisionError), query.named_errors(node):
        raise ZeroDivisionError


@pytest.mark.parametrize("codes_in", ["/codes", ""])
@pytest.mark.parametrize(
    ("gone", "again"), [("codes.csv", True), ("silver/orders/part-1.parquet", False)]
)
def test_a_looked_up_file_that_went_asks_for_another_run_and_a_vacuumed_one_for_a_reset(
    tmp_path: Path, gone: str, again: bool, codes_in: str
) -> None:
    lake = tmp_path / "lake"
    orders = ka.external_table("orders", path="silver/orders")
    # In a folder of their own, or in the lake itself.
    folder = codes_in or str(lake)
    codes = ka.file_source("codes", f"{folder}/*.csv", format="csv", schema="id STRING")

    @ka.streaming_table(layer="silver", reads={"codes": "static"})
    def named(orders: Any, codes: Any) -> Any:
        return orders.join(codes, "id")

    settings = Settings(lake=str(lake))
    node = graph_of(settings, orders, codes, named).tables["named"]
    at = f"{folder if again else lake}/{gone}"
    text = f"[FAILED_READ_FILE.FILE_NOT_EXIST] Error while reading file file:{at}."
    error = query.translated(text, node)
    assert isinstance(error, SourceError if again else FenceRefused)
    assert getattr(error, "transient", False) is again
