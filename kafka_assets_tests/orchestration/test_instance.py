"""The instance that the demo uses."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest

import kafka_assets


@pytest.fixture
def instance(tmp_path):
    config = Path(kafka_assets.__file__).parent / "demo" / "dagster.yaml"
    shutil.copy(config, tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as made:
        yield made


def test_it_loads_and_sends_nothing_home(instance):
    assert not instance.telemetry_enabled


def test_a_table_has_one_writer(instance):
    pools = instance.get_concurrency_config().pool_config
    assert pools.default_pool_limit == 1
    assert pools.pool_granularity.value == "run"


def test_one_jvm_at_a_time(instance):
    assert instance.get_concurrency_config().run_queue_config.max_concurrent_runs == 1


def test_dead_runs_are_found(instance):
    assert instance.run_monitoring_enabled


def test_sensors_do_not_wait_for_each_other(instance):
    assert instance.get_sensor_settings()["use_threads"]
