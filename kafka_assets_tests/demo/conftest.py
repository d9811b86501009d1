"""A broker for the tests of the demo, which may add what they like to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_assets.demo.broker import Broker


@pytest.fixture(scope="session")
def demo_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("demo") / "broker") as broker:
        yield broker
