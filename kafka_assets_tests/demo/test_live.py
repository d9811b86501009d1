"""The live demo: real broker, real `dagster dev`; events reach gold and nobody touches anything."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from kafka_assets.demo.live import Demo, PartEnded, running_demo, wait_for_ui
from kafka_assets.demo.screen import lines, render
from kafka_assets.errors import BrokerError
from kafka_assets_tests.helpers import rendered
from kafka_assets_tests.web import asked

pytestmark = pytest.mark.dagster_dev

PATIENCE_SECONDS = 360


def until_gold(demo: Demo) -> dict[str, int | None]:
    """Wait until a gold table has rows, and give all tables' rows."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        rows = {line.name: line.rows for line in lines(demo.graph, demo.settings)}
        if any(rows[name] for name in rows if name.startswith("gold/")):
            return rows
        time.sleep(2)
    log = (demo.folder / "dagster.log").read_text(errors="replace")
    raise AssertionError(f"no gold rows within {PATIENCE_SECONDS} s; {log[-3000:]}")


@pytest.mark.timeout(600)
def test_events_reach_gold_by_themselves_and_a_part_that_ends_stops_the_rest(
    tmp_path: Path,
) -> None:
    before = {p.pid for p in psutil.Process(os.getpid()).children(recursive=True)}
    children: list[psutil.Process] = []
    with pytest.raises(PartEnded, match="the broker ended by itself"):
        watch_a_demo_whose_broker_is_killed(tmp_path, children)
    _, left = psutil.wait_procs([p for p in children if p.pid not in before], timeout=20)
    assert left == [], "processes of the demo are left"


def watch_a_demo_whose_broker_is_killed(folder: Path, children: list[psutil.Process]) -> None:
    with running_demo(folder, None, 5, 0.1, 1) as (demo, ended):
        assert wait_for_ui(demo.address, ended)
        rows = until_gold(demo)
        assert rows["silver/tracker_silver"] or rows["silver/orders_silver"]
        screen = rendered(render(demo.address, demo.graph, demo.settings))
        assert "gold/tracker_hourly" in screen
        runs = asked(demo.address, "{runsOrError{... on Runs{results{status tags{key value}}}}}")
        tags = json.dumps(runs)
        assert "kafka_lag" in tags
        assert "FAILURE" not in tags
        children += psutil.Process(os.getpid()).children(recursive=True)
        brokers = [p for p in children if p.name() == "java" and "kafka.Kafka" in p.cmdline()]
        (broker,) = [p for p in brokers if str(folder) in " ".join(p.cmdline())]
        broker.kill()
        assert ended.wait(30)


@pytest.mark.verify
@pytest.mark.timeout(300)
def test_a_demo_that_is_ended_leaves_no_process(tmp_path: Path) -> None:
    before = {p.pid for p in psutil.Process(os.getpid()).children(recursive=True)}
    with running_demo(tmp_path, None, 5, 0.1, 1) as (demo, ended):
        assert wait_for_ui(demo.address, ended)
        children = psutil.Process(os.getpid()).children(recursive=True)
    _, left = psutil.wait_procs([p for p in children if p.pid not in before], timeout=20)
    assert left == []


@pytest.mark.verify
@pytest.mark.timeout(600)
def test_the_command_writes_a_log_ends_with_ctrl_c_and_goes_on_when_it_is_given_again(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "kafka_assets.cli", "demo", "--data", str(tmp_path / "data")]
    events = []
    for part in range(2):
        log = tmp_path / f"{part}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=tmp_path)
        deadline = time.monotonic() + 120
        while not (shown := re.search(r"kafka/orders +([\d,]+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        assert "Dagster UI: http://127.0.0.1:" in log.read_text()
        events.append(int(shown[1].replace(",", "")))
        parts = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert "Everything is stopped; data and history stay." in log.read_text()
        assert psutil.wait_procs(parts, timeout=20)[1] == []
        # Also of what began after the last look: all of it works in this folder.
        assert [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(tmp_path)] == []
    assert events[1] > events[0] > 0
    assert (tmp_path / "data/dagster_home/history").exists()


def test_a_ui_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(BrokerError, match=f"port {port} for the Dagster UI is in use"),
            running_demo(tmp_path, port, 5, 0.1, 1),
        ):
            pass
