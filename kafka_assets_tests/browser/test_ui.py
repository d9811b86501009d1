"""The pipelines, their checks and the operations are where a person looks for them.

Needs Chromium: `playwright install chromium`, or the system's own.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
START_SECONDS = 90


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Dagster web server on this machine, with an instance of its own."""
    home = tmp_path_factory.mktemp("home")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        "-m",
        "dagster_webserver",
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
        "-w",
        "workspace.yaml",
    ]
    environment = {**os.environ, "DAGSTER_HOME": str(home), "KAFKA_ASSETS_LAKE": str(home / "lake")}
    process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment)
    try:
        _wait(f"http://127.0.0.1:{port}/server_info", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    own = shutil.which("chromium") or shutil.which("google-chrome")
    options: dict[str, Any] = {"executable_path": own} if own else {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(args=["--no-sandbox"], **options)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    yield page
    page.close()


@pytest.mark.browser
def test_the_graph_shows_topics_tables_and_dead_letters(page: Page, address: str) -> None:
    page.goto(f"{address}/locations/kafka_assets/asset-groups/orders/lineage")
    for name in ("orders", "orders_bronze", "orders_silver"):
        page.get_by_text(name, exact=True).first.wait_for(timeout=60_000)


@pytest.mark.browser
def test_a_table_shows_its_expectations_as_checks(page: Page, address: str) -> None:
    page.goto(f"{address}/assets/silver/orders_silver?view=checks")
    for name in ("positive_amount", "status_known", "rows_returned"):
        page.get_by_text(name).first.wait_for(timeout=60_000)


@pytest.mark.browser
def test_operations_are_jobs_that_can_be_started(page: Page, address: str) -> None:
    page.goto(f"{address}/jobs")
    for name in ("dead_letters_replay", "reset", "accept_loss", "repair"):
        page.get_by_text(name, exact=True).first.wait_for(timeout=60_000)


@pytest.mark.browser
def test_both_sensors_are_on_the_automation_page(page: Page, address: str) -> None:
    page.goto(f"{address}/automation")
    for name in ("kafka_lag", "kafka_automation"):
        page.get_by_text(name, exact=True).first.wait_for(timeout=60_000)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "the web server ended by itself"
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
        else:
            return
    raise AssertionError(f"no answer at {url} after {START_SECONDS} s")
