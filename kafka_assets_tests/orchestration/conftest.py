"""A chain on an instance that tests of its automation begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_assets_tests.orchestration.harness import Harness, pipeline


@pytest.fixture(scope="session")
def built_once() -> Iterator[Harness]:
    with Harness(pipeline()) as harness:
        harness.tick()
        harness.world.ends["events"] = [5]
        harness.tick(seconds=15)
        for _ in range(3):
            assert harness.tick(seconds=15) == []
        yield harness


@pytest.fixture
def built(built_once: Harness) -> Iterator[Harness]:
    """A chain that took five records and is idle; a copy, for this test alone."""
    with Harness(pipeline()) as harness:
        harness.go_on_from(built_once)
        yield harness
