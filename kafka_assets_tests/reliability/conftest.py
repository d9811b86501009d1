"""What the tests of reliability share: quicker JVMs, and one besieged lake."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_assets.demo.broker import Broker
from kafka_assets_tests.reliability.archive import make_archive
from kafka_assets_tests.reliability.siege import Siege


@pytest.fixture(scope="session")
def jvm(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """JVM options with which a worker starts in half the time."""
    folder = tmp_path_factory.mktemp("archive")
    yield make_archive(folder, broker.bootstrap)
    shutil.rmtree(folder)


@pytest.fixture
def siege(tmp_path: Path, broker: Broker, jvm: tuple[str, ...], topic_name: str) -> Iterator[Siege]:
    """A topic, an empty lake and workers."""
    with Siege(tmp_path, broker.bootstrap, topic_name, jvm=jvm) as besieged:
        yield besieged
