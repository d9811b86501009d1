"""The `new_files` sensor: a file that comes starts the tables that read its folder, once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import kafka_assets as ka
from kafka_assets.errors import RunFailed
from kafka_assets.graph import Graph, Node
from kafka_assets.orchestration.automation import moved_by_sensors
from kafka_assets.orchestration.build import graph_defs
from kafka_assets.orchestration.folders import new_files_sensor
from kafka_assets.orchestration.names import EMPTIED, STARTED_BY, files_key, folder_chains_of
from kafka_assets.settings import Settings
from kafka_assets.streaming.report import RunReport
from kafka_assets_tests.helpers import graph_of
from kafka_assets_tests.orchestration.harness import NoSpark


class Folder:
    """A folder, its graph, and what the sensor says of them."""

    def __init__(self, root: Path, *declared: Any) -> None:
        self.settings = Settings(lake=str(root))
        self.graph: Graph = graph_of(self.settings, *declared)
        self.instance = dg.DagsterInstance.ephemeral()
        self.now = datetime.now(UTC).timestamp()
        self.place = root / "landing"
        self.place.mkdir()
        self._sensor = new_files_sensor(self.graph, self.settings, clock=lambda: self.now)
        self._cursor: str | None = None

    def put(self, name: str) -> None:
        (self.place / name).write_text("a line")

    def tick(self) -> tuple[list[dg.RunRequest], str]:
        """Evaluate the sensor; what it asks for, and why not more."""
        with dg.build_sensor_context(instance=self.instance, cursor=self._cursor) as context:
            result = self._sensor(context)
        assert isinstance(result, dg.SensorResult)
        self._cursor = result.cursor
        for event in result.asset_events:
            assert isinstance(event, dg.AssetMaterialization)
            self.instance.report_runless_asset_event(event)
        skipped = result.skip_reason
        return list(result.run_requests or []), str(skipped and skipped.skip_message)

    def fail(self, request: dg.RunRequest) -> None:
        """Execute what was asked for; a run of a table is a stand-in that fails."""

        def run(node: Node, *_: Any, **__: Any) -> RunReport:
            raise RunFailed(f"table {node.name!r}: no luck")

        defs = graph_defs(self.graph, self.settings, run=run, spark=NoSpark())
        job = defs.resolve_implicit_global_asset_job_def()
        job.execute_in_process(
            instance=self.instance,
            asset_selection=list(request.asset_selection or []),
            tags=dict(request.tags),
            raise_on_error=False,
        )


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    arrived = ka.file_source("arrived", "landing", format="text")

    @ka.streaming_table(layer="bronze")
    def raw(arrived: Any) -> Any:
        return arrived

    @ka.streaming_table(layer="silver")
    def copied(raw: Any) -> Any:
        return raw

    return Folder(tmp_path, arrived, raw, copied)


def test_a_new_file_starts_all_tables_below_its_folder_and_nothing_else_does(
    folder: Folder,
) -> None:
    assert folder.tick() == ([], "arrived: no files")
    folder.put("1.txt")
    (request,), _ = folder.tick()
    assert sorted(key.path[-1] for key in request.asset_selection or []) == ["copied", "raw"]
    assert request.tags["kafka_assets/started_by"] == "new_files"
    assert folder.tick() == ([], "arrived: 1 files, none of them new")
    folder.put("2.txt")
    assert len(folder.tick()[0]) == 1


def test_a_new_file_computes_the_views_of_its_folder_and_starts_no_stream_that_looks_it_up(
    tmp_path: Path,
) -> None:
    arrived = ka.file_source("arrived", "landing", format="text")
    codes = ka.file_source("codes", "codes", format="text")

    @ka.streaming_table(layer="bronze", reads={"codes": "static"})
    def raw(arrived: Any, codes: Any) -> Any:
        return arrived.join(codes, "value")

    @ka.materialized_view(layer="gold")
    def known(codes: Any) -> Any:
        return codes

    @ka.materialized_view(layer="gold")
    def shown(raw: Any, known: Any) -> Any:
        return raw.join(known, "value")

    graph = graph_of(Settings(lake=str(tmp_path)), arrived, codes, raw, known, shown)
    chains = {chain.name: [node.name for node in chain.tables] for chain in folder_chains_of(graph)}
    assert {name: sorted(tables) for name, tables in chains.items()} == {
        "arrived": ["raw", "shown"],
        "codes": ["known", "shown"],
    }


def test_a_stream_that_looks_files_up_starts_with_any_run_of_a_table_of_another_location(
    tmp_path: Path,
) -> None:
    outside = ka.external_table("orders", path="orders")
    codes = ka.file_source("codes", "codes", format="text")

    @ka.temporary_view()
    def shown(codes: Any) -> Any:
        return codes

    @ka.streaming_table(layer="silver", reads={"codes": "static", "shown": "static"})
    def named(orders: Any, codes: Any, shown: Any) -> Any:
        return orders.join(codes, "value").join(shown, "value")

    graph = graph_of(Settings(lake=str(tmp_path)), outside, codes, shown, named)
    keys = {key.to_user_string() for key in moved_by_sensors(graph.tables["named"])}
    assert keys == {"files/codes", "view/shown"}
    defs = graph_defs(graph, Settings(lake=str(tmp_path)), spark=NoSpark())
    instance = dg.DagsterInstance.ephemeral()
    before = dg.evaluate_automation_conditions(defs, instance)

    @dg.asset(key=["silver", "orders"])
    def orders() -> None: ...

    # As another code location of kafka_assets would, whose sensors know nothing of this one.
    dg.materialize([orders], instance=instance, tags={STARTED_BY: "kafka_lag"})
    after = dg.evaluate_automation_conditions(defs, instance, cursor=before.cursor)
    assert after.get_num_requested(dg.AssetKey(["silver", "named"])) == 1


def test_a_view_is_computed_when_the_last_file_of_its_folder_went(tmp_path: Path) -> None:
    arrived = ka.file_source("arrived", "landing", format="text")

    @ka.materialized_view(layer="gold")
    def lines(arrived: Any) -> Any:
        return arrived

    folder = Folder(tmp_path, arrived, lines)
    assert folder.tick() == ([], "arrived: no files")
    folder.put("1.txt")
    assert len(folder.tick()[0]) == 1
    (folder.place / "1.txt").unlink()
    assert len(folder.tick()[0]) == 1
    assert folder.tick()[0] == []


def test_the_folders_asset_has_a_version_for_each_state_of_its_files(folder: Folder) -> None:
    versions = []
    for name in ("1.txt", "2.txt"):
        folder.put(name)
        folder.tick()
        event = folder.instance.get_latest_materialization_event(
            files_key(folder.graph.files["arrived"])
        )
        assert event is not None
        assert event.asset_materialization is not None
        versions.append((event.asset_materialization.tags or {})["dagster/data_version"])
        assert event.asset_materialization.metadata["files"].value == len(versions)
    assert len(set(versions)) == 2


def test_a_run_that_failed_is_tried_again_after_a_pause_though_no_file_came(
    folder: Folder,
) -> None:
    folder.put("1.txt")
    (request,), _ = folder.tick()
    folder.fail(request)
    asked, why = folder.tick()
    assert asked == []
    assert "run failed in raw, 1 in a row: next try at" in why
    folder.now += folder.settings.sensor.backoff_first_seconds + 60
    (again,), _ = folder.tick()
    assert "try again after 1 failures" in str(again.tags)


def test_of_two_folders_that_feed_one_table_the_one_that_waited_longer_starts_first(
    tmp_path: Path,
) -> None:
    arrived = ka.file_source("arrived", "landing", format="text")
    quiet = ka.file_source("quiet", "quiet", format="text")

    @ka.streaming_table(layer="bronze")
    def lines(arrived: Any, quiet: Any) -> Any:
        return arrived.union(quiet)

    folder = Folder(tmp_path, arrived, quiet, lines)
    (tmp_path / "quiet").mkdir()
    (tmp_path / "quiet" / "1.txt").write_text("a line")
    started = []
    for name in ("1.txt", "2.txt"):
        folder.put(name)
        (request,), _ = folder.tick()
        started.append(request.tags["kafka_assets/chain"])
        folder.now += 30
    assert started == ["arrived", "quiet"]


def test_a_new_file_does_not_start_what_waits_after_a_failure(folder: Folder) -> None:
    defs = graph_defs(folder.graph, folder.settings, spark=NoSpark())
    folder.put("1.txt")
    (request,), _ = folder.tick()
    folder.fail(request)
    before = dg.evaluate_automation_conditions(defs, folder.instance)
    folder.put("2.txt")
    assert folder.tick()[0] == []
    after = dg.evaluate_automation_conditions(defs, folder.instance, cursor=before.cursor)
    assert after.total_requested == 0


def test_a_table_that_was_reset_below_a_quiet_folder_is_filled_again(folder: Folder) -> None:
    folder.put("1.txt")
    folder.tick()
    assert folder.tick() == ([], "arrived: 1 files, none of them new")
    folder.instance.report_runless_asset_event(
        dg.AssetMaterialization(["silver", "copied"], tags={EMPTIED: "true"})
    )
    (request,), _ = folder.tick()
    assert request.tags["kafka_assets/reason"] == "copied was reset"


def test_a_folder_that_cannot_be_looked_at_is_named_and_starts_nothing(tmp_path: Path) -> None:
    broken = ka.file_source("arrived", "nowhere://x/y", format="text")

    @ka.streaming_table(layer="bronze")
    def raw(arrived: Any) -> Any:
        return arrived

    settings = Settings(lake=str(tmp_path))
    sensor = new_files_sensor(graph_of(settings, broken, raw), settings)
    with dg.build_sensor_context(instance=dg.DagsterInstance.ephemeral()) as context:
        result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    assert "nowhere://x/y, cannot be listed" in str(result.skip_reason)
