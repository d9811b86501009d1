"""Dagster's web server as a process of its own, and questions to it, for tests of what it shows."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
START_SECONDS = 90


@contextmanager
def web_server(workspace: Path, home: Path) -> Iterator[str]:
    """A real Dagster web server on this machine; gives its address.

    Args:
        workspace: Its code locations.
        home: Where its instance and the lake lie.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["-m", "dagster_webserver", "-h", "127.0.0.1", "-p", str(port), "-w", str(workspace)]
    environment = {**os.environ, "DAGSTER_HOME": str(home), "KAFKA_ASSETS_LAKE": str(home / "lake")}
    process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment)
    try:
        _wait(f"http://127.0.0.1:{port}/server_info", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def asked(address: str, query: str) -> dict[str, Any]:
    """Ask a web server, in GraphQL."""
    request = urllib.request.Request(
        f"{address}/graphql",
        data=json.dumps({"query": query}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "the web server ended by itself"
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
        else:
            return
    raise AssertionError(f"no answer at {url} after {START_SECONDS} s")
