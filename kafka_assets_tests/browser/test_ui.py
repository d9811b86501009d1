"""The pipelines, their checks and the operations are where a person looks for them.

Needs Chromium: `playwright install chromium`, or the system's own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from kafka_assets_tests.web import web_server


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Dagster web server on this machine, with an instance of its own."""
    with web_server(Path("workspace.yaml"), tmp_path_factory.mktemp("home")) as address:
        yield address


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
