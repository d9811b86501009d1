"""What all tests share: one broker, one Spark session, and settings with a lake of their own.

A test that uses the fixture `spark` or `broker` is marked so; the rest run without a JVM.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_assets.demo.broker import Broker
from kafka_assets.settings import KafkaSettings, Settings, SparkSettings
from kafka_assets_tests.helpers import QUICK_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOW_FIXTURES = ("spark", "broker")

# For each JVM that a test starts, through whatever process: Java's launcher reads it.
os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JVM)

LONGEST = (
    "reliability/test_kills.py",
    "streaming/test_run.py",
    "operations/test_replay.py",
    "demo/test_live.py",
    "streaming/test_changes.py",
    "streaming/test_views_and_joins.py",
    "streaming/test_isolation.py",
    "operations/test_repair.py",
    "operations/test_reset.py",
    "streaming/test_connect.py",
    "streaming/test_flows.py",
    "reliability_topics/test_brokers.py",
    "streaming/test_options.py",
    "reliability/test_double_start.py",
    "streaming/test_fence.py",
)
"""Files that take longest go first, so that two processes come to an end at about one time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    for item in items:
        for fixture in SLOW_FIXTURES:
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(fixture)


def _turn(item: pytest.Item) -> int:
    file = item.path.as_posix()
    turns = [
        turn for turn, name in enumerate(LONGEST) if file.endswith(f"kafka_assets_tests/{name}")
    ]
    return turns[0] if turns else len(LONGEST)


def engine() -> SparkSettings:
    """A classic session, or the Connect server that the environment names."""
    remote = os.environ.get("KAFKA_ASSETS_SPARK__REMOTE")
    return SparkSettings(master="local[2]", remote=remote)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real Kafka broker, a process of its own, for all tests."""
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The session of this process."""
    from kafka_assets.streaming.session import session_conf, spark_session

    settings = Settings(spark=engine())
    name = "spark.driver.extraJavaOptions"
    # One thread for garbage: each of the other processes has its own.
    flags = session_conf(settings)[name].replace("UseParallelGC", "UseSerialGC")
    # This JVM lives long enough for what the second compiler makes of its code to pay.
    flags = f"{flags} -XX:TieredStopAtLevel=4 -Xmn512m"
    quick = settings.spark.model_copy(update={"conf": {name: flags}})
    return spark_session(settings.model_copy(update={"spark": quick}))


@pytest.fixture
def topic_name() -> str:
    """A topic name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def settings(tmp_path: Path, broker: Broker) -> Settings:
    """Settings with a lake and schemas folder of this test's own, and the real broker."""
    return settings_in(tmp_path, broker)


@pytest.fixture(scope="module")
def settings_of_file(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Settings:
    """The same for all tests of a file, of which each may take a copy of what is in the lake."""
    return settings_in(tmp_path_factory.mktemp("file"), broker)


def settings_in(folder: Path, broker: Broker) -> Settings:
    """Settings with a lake and schemas folder in a folder."""
    (folder / "schemas").mkdir()
    return Settings(
        lake=str(folder / "lake"),
        schemas=folder / "schemas",
        kafka=KafkaSettings(bootstrap_servers=broker.bootstrap),
        spark=engine(),
    )
