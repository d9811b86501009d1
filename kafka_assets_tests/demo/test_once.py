"""One bounded pass accounts for every record, from the tables and not from what was meant."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

import kafka_assets.pipelines
from kafka_assets.cli import app
from kafka_assets.demo.account import account_of
from kafka_assets.demo.events import ORDER_TOPIC, TOPICS, TRACKER_TOPIC
from kafka_assets.demo.once import Outcome, as_table, run_once
from kafka_assets.graph import build_graph
from kafka_assets.settings import Settings
from kafka_assets_tests.helpers import rendered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 600


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("once") / "lake"


@pytest.fixture(scope="module")
def command(spark: SparkSession, lake: Path) -> tuple[Result, Outcome]:
    """One pass with a tenth of bad events: what the command printed, and what it printed it of."""
    outcomes: list[Outcome] = []

    def kept(*arguments: Any, **named: Any) -> Outcome:
        outcomes.append(run_once(*arguments, **named))
        return outcomes[0]

    options = f"--events {EVENTS} --bad-ratio 0.1 --seed 7 --lake {lake} --json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafka_assets.demo.once.run_once", kept)
        result = CliRunner().invoke(app, ["demo", "--once", *options.split()])
    assert outcomes, result.output
    return result, outcomes[0]


@pytest.fixture(scope="module")
def outcome(command: tuple[Result, Outcome]) -> Outcome:
    return command[1]


def test_the_command_prints_the_counts_as_json_and_exits_0(
    command: tuple[Result, Outcome],
) -> None:
    result, outcome = command
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads(json.dumps(outcome.as_dict()))


def test_every_record_is_in_silver_or_among_the_dead_letters(outcome: Outcome) -> None:
    assert outcome.complete
    for topic, account in outcome.accounts.items():
        assert account.records == account.bronze == outcome.produced.total(topic)
        assert account.silver + account.dead == account.bronze
        assert account.dead == outcome.produced.expected_dead(topic)


def test_the_dead_letters_are_those_of_the_bad_events(outcome: Outcome) -> None:
    for topic in TOPICS:
        by_rule = outcome.accounts[topic].dead_by_rule
        assert by_rule["undecodable"] == outcome.produced.expected(topic, "undecodable")
    kinds = outcome.produced.counts[TRACKER_TOPIC]
    assert outcome.accounts[TRACKER_TOPIC].dead_by_rule["plausible_heart_rate"] == (
        kinds.get("heart_bpm_zero", 0) + kinds.get("heart_bpm_too_high", 0)
    )


def test_the_hours_of_gold_add_up_to_the_rows_of_silver(outcome: Outcome, lake: Path) -> None:
    rows = DeltaTable(lake / "gold" / "orders_hourly").to_pyarrow_table().to_pylist()
    assert sum(row["orders"] for row in rows) == outcome.accounts[ORDER_TOPIC].silver


@pytest.mark.verify
def test_a_second_pass_on_the_same_lake_adds_to_the_first(
    outcome: Outcome, lake: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(lake, copy)
    options = f"--events 20 --bad-ratio 0.1 --seed 7 --lake {copy} --json"
    again = CliRunner().invoke(app, ["demo", "--once", *options.split()])
    assert again.exit_code == 0, again.output
    counts = json.loads(again.stdout)
    assert (counts["complete"], counts["produced"], counts["bronze"]) == (True, 20, EVENTS + 20)


def test_a_row_that_is_gone_or_doubled_is_found(
    outcome: Outcome, lake: Path, spark: SparkSession
) -> None:
    graph = build_graph(kafka_assets.pipelines, Settings(lake=str(lake)))
    silver = graph.tables["orders_silver"].path
    before = outcome.accounts[ORDER_TOPIC]
    row = spark.read.format("delta").load(silver).limit(1)
    row.write.format("delta").mode("append").save(silver)
    doubled = account_of(graph.topics["orders"], before.records, graph, spark)
    assert (doubled.lost, doubled.doubled, doubled.doubled_ids) == (0, 1, 1)

    one_id = spark.read.format("delta").load(silver).first()["order_id"]  # type: ignore[index]
    spark.sql(f"DELETE FROM delta.`{silver}` WHERE order_id = '{one_id}'")
    lost = account_of(graph.topics["orders"], before.records, graph, spark)
    assert (lost.lost, lost.lost_ids) == (1, 1)


def test_the_outcome_reads_as_a_table_and_as_json(outcome: Outcome) -> None:
    assert "Every record is accounted for exactly once." in rendered(as_table(outcome))
    plain = outcome.as_dict()
    assert plain["produced"] == EVENTS == plain["bronze"]
    assert plain["silver"] + plain["dead_letters"] == EVENTS
    assert plain["conservation"]["orders_silver"]["rows_read"]["holds"]
    bronze = outcome.accounts[ORDER_TOPIC].records
    assert plain["conservation"]["orders_bronze"] == {
        "topic_records": {"left": bronze, "right": bronze, "holds": True}
    }


@pytest.mark.verify
def test_the_command_in_a_process_of_its_own_prints_nothing_but_json_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "kafka_assets.cli", "demo", "--once", "--json"]
    done = subprocess.run(
        [*command, "--events", "50", "--bad-ratio", "0.2", "--seed", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counts: dict[str, Any] = json.loads(done.stdout)
    assert (counts["produced"], counts["lost"], counts["doubled"]) == (50, 0, 0)
    assert list(tmp_path.iterdir()) == []
