"""A Spark Connect server, a process of its own, for tests of both engines."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from kafka_assets.settings import Settings
from kafka_assets.streaming.session import session_conf


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        address: Its `sc://` address.
        process: The JVM.
    """

    address: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """SIGKILL it."""
        self.process.kill()
        self.process.wait()


@contextmanager
def connect_server(settings: Settings, log: Path) -> Iterator[Server]:
    """Run a server with the product's own session settings."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = {
        **session_conf(settings),
        "spark.master": settings.spark.master,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    arguments = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    # A folder without the package: batches must not need it to be importable on the server.
    elsewhere = log.parent / "server"
    elsewhere.mkdir(exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [submit, *arguments, "--class", server, "spark-internal"],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=elsewhere,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": ""},
        )
        try:
            _wait(port, process, log)
            yield Server(f"sc://127.0.0.1:{port}", process)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"no Connect server on port {port}: {log.read_text()[-2000:]}")
