"""What the tests of reliability share: one besieged lake."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kafka_assets.demo.broker import Broker
from kafka_assets_tests.reliability.siege import Siege


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[Siege]:
    """A topic, a lake that is empty at first, and workers, for all tests of a file."""
    topic = f"t-{uuid.uuid4().hex[:12]}"
    folder = tmp_path_factory.mktemp("siege")
    with Siege(folder, broker.bootstrap, topic, events=100) as besieged:
        yield besieged
