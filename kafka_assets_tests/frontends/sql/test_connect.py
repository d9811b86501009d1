"""Tables in SQL on Spark Connect, where functions travel to a server without our package.

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
    "test_sql_and_python_tables_run_as_one_pipeline",
    "test_a_select_reads_a_stream_and_a_table_as_it_is",
)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("broker")
def test_tables_in_sql_run_the_same_on_spark_connect(tmp_path: Path, settings: Settings) -> None:
    with connect_server(settings, tmp_path / "server.log") as address:
        file = Path(__file__).with_name("test_run.py")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
            + [f"{file}::{name}" for name in CORE],
            env={**os.environ, "KAFKA_ASSETS_SPARK__REMOTE": address},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:]
    assert f"{len(CORE)} passed" in done.stdout
