"""Dead letters are found, tried again exactly once, and discarded, and never change."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.errors import LeaseHeld, OperationRefused
from kafka_assets.graph import Graph
from kafka_assets.operations import attempt, letters, replay
from kafka_assets.operations.letters import Filter
from kafka_assets.settings import Settings
from kafka_assets.streaming.lease import lease
from kafka_assets_tests.helpers import graph_of
from kafka_assets_tests.pipeline import Pipeline, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ALL = Filter(statuses=letters.STATUSES)


@pytest.fixture(scope="module")
def original(spark: SparkSession, settings_of_file: Settings) -> Pipeline:
    """Two good events, and one each that breaks a rule, is no JSON, and has no id."""
    pipeline = Pipeline(spark, settings_of_file, f"t-{uuid.uuid4().hex[:12]}")
    pipeline.produce(event("a", 1), event("b", -1), b"no json", {"x": 3}, event("c", 2))
    pipeline.run("raw", "clean")
    return pipeline


@pytest.fixture
def pipeline(original: Pipeline, settings: Settings) -> Pipeline:
    """A copy of its own for each test; the topic is theirs together."""
    return Pipeline(original.spark, settings, original.topic, like=original)


def with_silver(
    pipeline: Pipeline,
    rule: str,
    *more: Any,
    lenient: bool = False,
    never: str = "false",
    above: float = 0,
) -> Graph:
    """The same silver table after somebody corrected its rule or its schema, and more tables."""
    events = ka.kafka_topic(pipeline.topic, name="events")
    options = ka.JsonOptions(missing_required="null" if lenient else "dead_letter")

    @ka.streaming_table(layer="bronze")
    def raw(events: Any) -> Any:
        return events

    @ka.streaming_table(layer="silver", schema="event.ddl", json=options)
    @ka.expect_or_drop("positive", rule)
    @ka.expect_or_fail("never", f"NOT ({never})", above=above)
    def clean(raw: Any) -> Any:
        return raw.withColumn("hour", F.date_trunc("hour", "at"))

    return graph_of(pipeline.settings, events, raw, clean, *more)


def again(pipeline: Pipeline, wanted: Filter | None = None, **options: Any) -> replay.ReplayReport:
    node = pipeline.graph.tables["clean"]
    return replay.replay(node, pipeline.spark, pipeline.settings, wanted, by="me", **options)


def statuses(pipeline: Pipeline) -> dict[int, str]:
    found = letters.find(pipeline.graph.tables["clean"], ALL)
    return {letter.values["offset"]: letter.status for letter in found}


def test_letters_are_found_by_rule_reason_time_and_place(pipeline: Pipeline) -> None:
    node = pipeline.graph.tables["clean"]

    def offsets(**wanted: Any) -> list[int]:
        return [letter.values["offset"] for letter in letters.find(node, Filter(**wanted))]

    now = datetime.now(UTC)
    assert offsets() == [1, 2, 3]
    assert offsets(rule="positive") == [1]
    assert offsets(rule=letters.UNDECODABLE) == [2, 3]
    assert offsets(reason="malformed") == [2]
    assert offsets(offsets=(2, 9)) == [2, 3]
    assert offsets(topic="other") == []
    assert offsets(partition=0) == [1, 2, 3]
    assert offsets(since=now - timedelta(hours=1), until=now + timedelta(hours=1)) == [1, 2, 3]
    assert offsets(since=now + timedelta(hours=1)) == []
    groups = {g.rule: dict(g.counts) for g in letters.overview([node])}
    assert groups == {"positive": {"open": 1}, letters.UNDECODABLE: {"open": 2}}


def test_a_replay_with_a_corrected_rule_moves_what_passes_into_the_table_once(
    pipeline: Pipeline,
) -> None:
    before = pipeline.letters("offset", "key", "value", "headers", "reason")
    pipeline.graph = with_silver(pipeline, "x > -5")
    report = again(pipeline)

    assert (report.tried, report.replayed, report.rows) == (3, 1, 1)
    assert sum(report.still_dead.values()) == 2
    assert pipeline.rows("clean", "id", "x") == [("a", 1), ("b", -1), ("c", 2)]
    assert statuses(pipeline) == {1: "replayed", 2: "still_dead", 3: "still_dead"}
    assert pipeline.letters("offset", "key", "value", "headers", "reason") == before
    (letter,) = letters.find(pipeline.graph.tables["clean"], Filter(statuses=("replayed",)))
    assert letter.decided["by"] == "me"
    assert letter.decided["replay_id"] == report.replay_id

    assert (again(pipeline).rows, len(pipeline.rows("clean", "id"))) == (0, 3)


def test_a_replay_decodes_with_todays_options(pipeline: Pipeline) -> None:
    pipeline.graph = with_silver(pipeline, "x > 0", lenient=True)
    report = again(pipeline, Filter(rule=letters.UNDECODABLE))
    assert (report.tried, report.rows) == (2, 1)
    assert (None, 3) in pipeline.rows("clean", "id", "x")
    assert statuses(pipeline) == {1: "open", 2: "still_dead", 3: "replayed"}


def test_a_dry_run_says_what_would_happen_and_writes_nothing(pipeline: Pipeline) -> None:
    pipeline.graph = with_silver(pipeline, "x > -5")
    report = again(pipeline, dry_run=True)
    assert (report.tried, report.replayed, report.dry) == (3, 1, True)
    assert len(pipeline.rows("clean", "id")) == 2
    assert set(statuses(pipeline).values()) == {"open"}


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_before(
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    pipeline: Pipeline,
    wanted: Filter | None = None,
) -> None:
    """A replay whose process ends before it marks letters as `step`, or writes."""
    mark, write = letters.mark, attempt.Attempt.write

    def dying_mark(node: Any, found: Any, status: str, **details: Any) -> None:
        if status == step:
            raise Killed
        mark(node, found, status, **details)  # type: ignore[arg-type]

    def dying_write(self: Any, *details: Any) -> None:
        if step == "write":
            raise Killed
        write(self, *details)

    with monkeypatch.context() as patched:
        patched.setattr(replay, "mark", dying_mark)
        patched.setattr(attempt.Attempt, "write", dying_write)
        with pytest.raises(Killed):
            again(pipeline, wanted)


@pytest.mark.verify
def test_a_replay_that_died_at_any_step_and_is_started_again_writes_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = ("replaying", "write", "replayed", "still_dead")
    # The topic's next records: no other test reads on in it.
    pipeline.produce(*[event(step, -2) for step in steps])
    pipeline.run("raw", "clean")
    pipeline.graph = with_silver(pipeline, "x > -5")
    for number, step in enumerate(steps):
        offset = 5 + number
        # With one letter that passes and one that dies again.
        wanted = Filter(offsets=(2, 2) if step == "still_dead" else (offset, offset))
        killed_before(step, monkeypatch, pipeline, wanted)
        assert again(pipeline, Filter(offsets=(5, offset))).tried <= 1
    assert pipeline.rows("clean", "id") == [("a",), ("c",), *[(step,) for step in sorted(steps)]]
    assert statuses(pipeline) == {1: "open", 2: "open", 3: "open"} | dict.fromkeys(
        range(5, 9), "replayed"
    )


@pytest.mark.verify
def test_without_its_protections_a_replay_that_died_would_write_twice(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.graph = with_silver(pipeline, "x > -5")
    killed_before("replayed", monkeypatch, pipeline)
    node = pipeline.graph.tables["clean"]
    letters.mark(node, letters.find(node, Filter(statuses=("replaying",))), "open")
    monkeypatch.setattr(attempt.Attempt, "_written", lambda self, records: set())
    again(pipeline)
    assert pipeline.rows("clean", "id").count(("b",)) == 2


def test_replayed_rows_go_on_downstream(pipeline: Pipeline) -> None:
    graph = pipeline.graph
    pipeline.graph = with_silver(pipeline, "x > -5")
    again(pipeline)
    pipeline.graph = graph
    pipeline.run("hourly")
    assert [total for (total,) in pipeline.rows("hourly", "total")] == [2]


def test_discarded_letters_stay_and_are_not_tried_again(pipeline: Pipeline) -> None:
    node = pipeline.graph.tables["clean"]
    wanted = Filter(reason="malformed")
    assert letters.discard(node, pipeline.settings, wanted, reason="a test", by="me") == 1
    assert statuses(pipeline) == {1: "open", 2: "discarded", 3: "open"}
    assert len(pipeline.letters("offset")) == 3
    assert again(pipeline).tried == 2
    with pytest.raises(OperationRefused, match="for a reason"):
        letters.discard(node, pipeline.settings, wanted, reason=" ")


def test_closed_letters_are_removed_after_the_retention_and_open_ones_stay(
    pipeline: Pipeline,
) -> None:
    node = pipeline.graph.tables["clean"]
    letters.discard(node, pipeline.settings, Filter(rule="positive"), reason="a test")
    kept = pipeline.settings.dead_letters.model_copy(update={"retention_days": 7})
    settings = pipeline.settings.model_copy(update={"dead_letters": kept})
    assert letters.purge(node, settings) == 0
    assert letters.purge(node, settings, now=datetime.now(UTC) + timedelta(days=8)) == 1
    assert [offset for (offset,) in pipeline.letters("offset")] == [2, 3]


def test_letters_of_a_table_that_is_being_written_are_left_alone(pipeline: Pipeline) -> None:
    node = pipeline.graph.tables["clean"]
    with lease(node, pipeline.settings, "another run"), pytest.raises(LeaseHeld):
        again(pipeline)


@pytest.mark.verify
def test_letters_of_a_table_that_looks_things_up_elsewhere_are_replayed(pipeline: Pipeline) -> None:
    def looking_up(rule: str) -> Graph:
        @ka.streaming_table(layer="gold", reads={"raw": "static"})
        @ka.expect_or_drop("small", rule)
        def sized(clean: Any, raw: Any) -> Any:
            records = raw.selectExpr("offset AS o", "key")
            return clean.join(records, F.expr("_source.offset = o"))

        return with_silver(pipeline, "x > 0", sized)

    pipeline.graph = looking_up("x < 2")
    pipeline.run("sized")
    assert pipeline.rows("sized", "id") == [("a",)]
    pipeline.graph = looking_up("x < 3")
    node = pipeline.graph.tables["sized"]
    report = replay.replay(node, pipeline.spark, pipeline.settings, by="me")
    assert (report.tried, report.replayed, report.rows) == (1, 1, 1)
    assert pipeline.rows("sized", "id") == [("a",), ("c",)]


@pytest.mark.verify
def test_letters_of_a_table_that_looks_into_files_are_replayed(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    (tmp_path / "blocked.csv").write_text("a\n")
    blocked = ka.file_source("blocked", f"{tmp_path}/*.csv", format="csv", schema="id STRING")

    def without_blocked(rule: str) -> Graph:
        @ka.streaming_table(layer="gold", reads={"blocked": "static"})
        @ka.expect_or_drop("small", rule)
        def allowed(clean: Any, blocked: Any) -> Any:
            return clean.join(blocked, "id", "left_anti")

        return with_silver(pipeline, "x > 0", blocked, allowed)

    pipeline.graph = without_blocked("x < 2")
    pipeline.run("allowed")
    assert (pipeline.rows("allowed", "id"), len(pipeline.letters("row", table="allowed"))) == (
        [],
        1,
    )
    node = without_blocked("x < 3").tables["allowed"]
    report = replay.replay(node, pipeline.spark, pipeline.settings, by="me")
    assert (report.tried, report.replayed, report.rows) == (1, 1, 1)
    assert pipeline.rows("allowed", "id") == [("c",)]


def test_letters_of_a_table_of_several_streams_are_refused(pipeline: Pipeline) -> None:
    @ka.streaming_table(layer="gold")
    @ka.expect_or_drop("small", "x < 2")
    def twice(clean: Any, mended: Any) -> Any:
        return clean.unionByName(mended)

    @ka.streaming_table(layer="silver", schema="event.ddl")
    def mended(raw: Any) -> Any:
        return raw.withColumn("hour", F.date_trunc("hour", "at"))

    node = with_silver(pipeline, "x > 0", mended, twice).tables["twice"]
    with pytest.raises(OperationRefused, match="reads several streams"):
        replay.replay(node, pipeline.spark, pipeline.settings, by="me")


@pytest.mark.parametrize("above", [pytest.param(0, marks=pytest.mark.verify), 10])
def test_a_row_that_breaks_a_rule_which_stops_runs_does_not_come_in_by_a_replay(
    pipeline: Pipeline, above: float
) -> None:
    # The schema is corrected and the record decodes, but is one that no run would have written.
    pipeline.graph = with_silver(pipeline, "x > -5", lenient=True, never="x = 3", above=above)
    report = again(pipeline)
    assert (report.replayed, report.rows) == (1, 1)
    assert report.still_dead["never: NOT (x = 3)"] == 1
    assert pipeline.rows("clean", "id") == [("a",), ("b",), ("c",)]
    assert statuses(pipeline) == {1: "replayed", 2: "still_dead", 3: "still_dead"}
