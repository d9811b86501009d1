"""The pipelines, their checks and the operations are where a person looks for them.

Needs Chromium: `playwright install chromium`, or the system's own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import kafka_assets.pipelines
from kafka_assets import build_defs
from kafka_assets.demo.broker import Broker
from kafka_assets.demo.live import dagster_home
from kafka_assets.demo.own_settings import settings_of
from kafka_assets.demo.producing import ensure_topics, produce
from kafka_assets_tests.web import web_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def home(
    tmp_path_factory: pytest.TempPathFactory, broker: Broker, spark: SparkSession
) -> Iterator[Path]:
    """DAGSTER_HOME of an instance in which all tables ran twice, over events of which some died."""
    home = dagster_home(tmp_path_factory.mktemp("home"))
    settings = settings_of(home / "lake", broker.bootstrap)
    ensure_topics(broker.bootstrap)
    defs = build_defs(kafka_assets.pipelines, settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(home))
        with dg.DagsterInstance.get() as instance:
            for part in range(2):
                produce(broker.bootstrap, 100, bad_ratio=0.1, seed=part, first=part * 100)
                job = defs.resolve_implicit_global_asset_job_def()
                assert job.execute_in_process(instance=instance).success
        yield home


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    """A real Dagster web server on this machine, with that instance."""
    with web_server(Path("workspace.yaml"), home) as address:
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
def test_a_check_shows_how_it_went_and_plots_what_broke_it(page: Page, address: str) -> None:
    page.goto(f"{address}/assets/silver/orders_silver?view=checks&checkDetail=positive_amount")
    for text in ("Succeeded", "amount > 0", "Plots", "broken", "checked"):
        page.get_by_text(text, exact=True).first.wait_for(timeout=60_000)
    page.locator("canvas").first.wait_for(timeout=60_000)


@pytest.mark.browser
def test_a_table_shows_what_its_runs_did(page: Page, address: str) -> None:
    page.goto(f"{address}/assets/silver/orders_silver?view=events")
    for text in ("rows_read", "kept", "dead", "seconds", "dagster/row_count"):
        page.get_by_text(text, exact=True).first.wait_for(timeout=60_000)


@pytest.mark.browser
def test_dead_letters_show_a_sample_with_reasons(page: Page, address: str) -> None:
    page.goto(f"{address}/assets/dlq/orders_silver?view=events")
    page.get_by_text("sample", exact=True).first.wait_for(timeout=60_000)


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
