"""On Spark Connect a run has two processes: whichever dies, nothing is lost and nothing doubled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_assets.demo.broker import Broker
from kafka_assets_tests.helpers import create_topic
from kafka_assets_tests.reliability import pipeline
from kafka_assets_tests.reliability.judge import judge
from kafka_assets_tests.reliability.killer import POLL_SECONDS
from kafka_assets_tests.reliability.ledger import Ledger
from kafka_assets_tests.reliability.siege import SEED
from kafka_assets_tests.reliability.windows import AFTER_OFFSETS, BETWEEN, Places, Snapshot
from kafka_assets_tests.reliability.workers import PATIENCE, Setup, Worker
from kafka_assets_tests.streaming.connect_server import Server, connect_server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


class Remote:
    """A topic, a lake, and clients of servers that may be killed."""

    def __init__(self, folder: Path, bootstrap: str, topic: str, held: ExitStack) -> None:
        create_topic(bootstrap, topic, 2)
        self.lake, self.held, self._servers = folder / "lake", held, 0
        self.ledger = Ledger(bootstrap, topic, SEED)
        self._settings = pipeline.settings_for(self.lake, bootstrap)
        self._setup = Setup(self.lake, bootstrap, topic)
        self.server = self.start_server()

    def start_server(self) -> Server:
        self._servers += 1
        folder = self.lake.parent / f"server-{self._servers}"
        folder.mkdir()
        self.server = self.held.enter_context(connect_server(self._settings, folder / "server.log"))
        return self.server

    def client(self) -> Worker:
        setup = replace(self._setup, remote=self.server.address)
        return self.held.enter_context(Worker(setup)).await_ready()

    def run_until(self, client: Worker, window: str) -> None:
        """Send events and let a client run until silver comes to a window."""
        self.ledger.send(300)
        aim = Snapshot.take(Places(self.lake, "clean"))
        client.tell("run")
        deadline = time.monotonic() + PATIENCE
        while not aim.reached(window) and not client.answered and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        assert not client.answered, "the run was over before it could be hit"

    def exact(self, client: Worker) -> None:
        client.do("run")
        verdict = judge(self.lake, self.ledger)
        assert verdict.exact, verdict


@pytest.fixture
def remote(tmp_path: Path, broker: Broker, topic_name: str) -> Iterator[Remote]:
    with ExitStack() as held:
        yield Remote(tmp_path, broker.bootstrap, topic_name, held)


def test_a_killed_client_a_killed_server_and_both_lose_and_double_nothing(remote: Remote) -> None:
    client = remote.client()
    remote.ledger.send(300)
    remote.exact(client)

    # The server goes on with the query of a client that is gone; the next run waits for it.
    remote.run_until(client, AFTER_OFFSETS)
    client.kill()
    client = remote.client()
    remote.exact(client)

    # The client is told in the product's words that its engine is gone.
    remote.run_until(client, BETWEEN)
    remote.server.kill()
    answer = client.answer()
    assert answer is not None, "the client hangs"
    assert answer.startswith("failed RunFailed"), answer
    assert "Spark's process ended or does not answer any more" in answer
    client.kill()
    remote.start_server()
    client = remote.client()
    remote.exact(client)

    remote.run_until(client, BETWEEN)
    client.kill()
    remote.server.kill()
    remote.start_server()
    remote.exact(remote.client())
