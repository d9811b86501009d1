"""Programs of other products, unchanged, on Spark Connect.

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

CORE = (
    "test_a_medallion_program_runs_unchanged_and_again",
    "test_functions_columns_and_keyed_aggregates_of_a_spark_pipeline_run_unchanged",
    "test_queries_in_sql_run_unchanged",
    "test_changes_of_both_types_run_unchanged",
)


@pytest.mark.verify
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("broker")
def test_programs_run_the_same_on_spark_connect(tmp_path: Path, settings: Settings) -> None:
    with connect_server(settings, tmp_path / "server.log") as server:
        file = Path(__file__).with_name("test_programs_run.py")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
            + [f"{file}::{name}" for name in CORE],
            env={**os.environ, "KAFKA_ASSETS_SPARK__REMOTE": server.address},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:]
    assert f"{len(CORE)} passed" in done.stdout
