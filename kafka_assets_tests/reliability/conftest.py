"""What the tests of reliability share: quicker JVMs, and one besieged lake."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def siege(
    tmp_path_factory: pytest.TempPathFactory, broker: Broker, jvm: tuple[str, ...]
) -> Iterator[Siege]:
    """A topic, a lake that is empty at first, and workers, for all tests of a file."""
    topic = f"t-{uuid.uuid4().hex[:12]}"
    folder = tmp_path_factory.mktemp("siege")
    with Siege(folder, broker.bootstrap, topic, jvm=jvm, events=100) as besieged:
        yield besieged
