"""The core of a run on Spark Connect, where batches run on the server and know no package of ours.

A process has one engine, so the same tests run once more in a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_assets.settings import Settings
from kafka_assets_tests.streaming.connect_server import connect_server

CORE = ("test_run.py::test_events_reach_silver_gold_and_the_dead_letters",)
MORE = (
    "test_run.py::test_a_broken_fail_rule_commits_nothing_of_its_batch",
    "test_changes.py::test_readers_of_the_change_feed_get_each_change_once",
    "test_run.py::test_rules_report_how_many_rows_broke_them_and_the_first",
    "test_run.py::test_a_second_run_without_new_data_changes_nothing",
    "test_run.py::test_a_late_row_corrects_its_window_and_no_other",
    "test_run.py::test_a_batch_that_reached_the_table_is_not_written_again",
    "test_views_and_joins.py::test_changes_and_windows_are_read_through_a_view_as_well",
    "test_isolation.py::test_a_row_on_which_a_function_without_a_schema_raises_becomes_a_dead_letter_"
    "too",
    "test_stateful.py::test_an_updated_aggregate_is_the_same_after_one_run_and_after_many",
    "test_options.py::test_generated_columns_are_computed_and_constraints_hold_every_row",
    "test_options.py::test_few_rows_are_interpreted_many_are_compiled_and_who_chose_is_left_alone",
    "test_edges.py::test_a_row_that_a_rule_lets_live_only_for_a_moment_is_in_one_place",
    "test_edges.py::test_flows_may_bring_different_columns_to_a_table_with_rules",
    "test_sinks.py::test_rows_go_to_a_topic_and_to_a_delta_table_outside_of_the_lake",
    "../frontends/sql/test_run.py::test_sql_and_python_tables_run_as_one_pipeline",
    "../frontends/test_programs_run.py::test_a_medallion_program_runs_unchanged_and_again",
    "../frontends/test_programs_run.py::test_queries_in_sql_run_unchanged",
    "../frontends/test_programs_run.py::test_changes_of_both_types_run_unchanged",
)


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("names", [CORE, pytest.param(MORE, marks=pytest.mark.verify)])
def test_runs_are_the_same_on_spark_connect(
    tmp_path: Path, settings: Settings, names: tuple[str, ...]
) -> None:
    with connect_server(settings, tmp_path / "server.log") as server:
        here = Path(__file__).parent
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
            + [str(here / name) for name in names],
            env={**os.environ, "KAFKA_ASSETS_SPARK__REMOTE": server.address},
            capture_output=True,
            text=True,
            timeout=1400,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:]
    assert f"{len(names)} passed" in done.stdout
