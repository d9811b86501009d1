"""The live demo: broker, a trickle of sample events, and Dagster with its UI, until Ctrl-C.

Everything runs by sensors; this only starts the parts, watches them, and stops them all, also when
one of them ends by itself. Data and history stay in its folder for the next time.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

import kafka_assets.pipelines
from kafka_assets.demo.broker import Broker
from kafka_assets.demo.own_settings import environment, settings_of
from kafka_assets.demo.producing import ensure_topics, produce, trickle
from kafka_assets.errors import BrokerError, KafkaAssetsError
from kafka_assets.graph import Graph, build_graph
from kafka_assets.settings import Settings

FIRST_EVENTS = 200
"""Sent at once for each topic when it is new, so that the tables have something to show."""

WORKSPACE = """\
load_from:
  - python_module:
      module_name: kafka_assets.definitions
      location_name: kafka_assets
"""


class PartEnded(KafkaAssetsError):
    """A part of the demo ended by itself; the others were stopped."""


@dataclass(frozen=True)
class Demo:
    """A running demo.

    Attributes:
        address: Where the Dagster UI answers.
        settings: The installation's settings.
        graph: The sample tables.
        folder: Where data, history and logs lie.
    """

    address: str
    settings: Settings
    graph: Graph
    folder: Path


@contextmanager
def running_demo(
    folder: Path, port: int | None, per_second: float, bad_ratio: float, seed: int
) -> Iterator[tuple[Demo, threading.Event]]:
    """Start all parts, and stop them all at the end, whatever ends them.

    Args:
        folder: Where data, history and logs are kept between demos.
        port: Port of the Dagster UI; by default 3000, or a free one when that is taken.
        per_second: Events a second, all topics together.
        bad_ratio: Share of bad events.
        seed: Decides the events' values.

    Yields:
        The demo, and an event that is set when a part ended by itself.

    Raises:
        KafkaAssetsError: A part could not be started.
        PartEnded: A part ended by itself; raised at the end, after all were stopped.
    """
    folder = folder.absolute()
    port = _ui_port(port)
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(folder / "broker"))
        settings = settings_of(folder / "lake", broker.bootstrap)
        graph = build_graph(kafka_assets.pipelines, settings)
        new = ensure_topics(broker.bootstrap)
        if new:
            produce(broker.bootstrap, dict.fromkeys(new, FIRST_EVENTS), bad_ratio, seed)
        stop, ended = threading.Event(), threading.Event()
        dagster = stack.enter_context(_dagster(folder, settings, port))
        sender = threading.Thread(
            target=_send, args=(broker.bootstrap, per_second, bad_ratio, seed, stop), daemon=True
        )
        sender.start()
        stack.callback(sender.join, 15)
        stack.callback(stop.set)
        watched = (broker, dagster, sender, stop, ended)
        watcher = threading.Thread(target=_watch, args=watched, daemon=True)
        watcher.start()
        yield Demo(f"http://127.0.0.1:{port}", settings, graph, folder), ended
        if ended.is_set():
            raise _part_ended(folder, broker, dagster)


def _send(
    bootstrap: str, per_second: float, bad_ratio: float, seed: int, stop: threading.Event
) -> None:
    # A broker that is gone is the watcher's to notice and to name.
    with suppress(BrokerError):
        trickle(bootstrap, per_second, bad_ratio, seed, stop)


def _watch(
    broker: Broker,
    dagster: subprocess.Popen[bytes],
    sender: threading.Thread,
    stop: threading.Event,
    ended: threading.Event,
) -> None:
    while not stop.wait(0.5):
        if not (broker.alive and sender.is_alive()) or dagster.poll() is not None:
            ended.set()
            return


def _part_ended(folder: Path, broker: Broker, dagster: subprocess.Popen[bytes]) -> KafkaAssetsError:
    if broker.alive and dagster.poll() is None:
        return PartEnded(
            "the sample producer ended by itself, so everything was stopped",
            fix="start the demo again: data and history were kept",
        )
    part = "the broker" if not broker.alive else "Dagster"
    log = broker.log_file if not broker.alive else folder / "dagster.log"
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
    return PartEnded(
        f"{part} ended by itself, so everything was stopped. The end of {log}:\n{tail}",
        fix="start the demo again: data and history were kept",
    )


def dagster_home(folder: Path) -> Path:
    """DAGSTER_HOME below a folder, made with the demo's `dagster.yaml` when it is new."""
    home = folder / "dagster_home"
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copy(Path(__file__).with_name("dagster.yaml"), home / "dagster.yaml")
    return home


@contextmanager
def _dagster(folder: Path, settings: Settings, port: int) -> Iterator[subprocess.Popen[bytes]]:
    started_in = {
        **environment(settings),
        "DAGSTER_HOME": str(dagster_home(folder)),
        "PYTHONWARNINGS": "ignore",
    }
    guard = str(Path(__file__).with_name("guard.py"))
    workspace = folder / "workspace.yaml"
    workspace.write_text(WORKSPACE, encoding="utf-8")
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    # The guard ends Dagster when this process dies without a chance to do so.
    process = subprocess.Popen(
        [sys.executable, guard, str(folder / "dagster.log"), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=started_in,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end_tree(process)


def end_tree(process: subprocess.Popen[bytes], patience: float = 15) -> None:
    """End a process and all its descendants: politely, then not."""
    try:
        family = [*psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
    # Runs are processes of Dagster's own children and outlive a hurried end.
    for survivor in family:
        if survivor.is_running():
            survivor.terminate()
    _, alive = psutil.wait_procs(family, timeout=5)
    for survivor in alive:
        survivor.kill()
    _end_session(process.pid)


def _end_session(session: int) -> None:
    """Kill what was started while the rest ended, such as the JVM of a run that just began.

    The session was made for the process that led it, and all that it started stays in it.
    """
    for one in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(one) == session:
                os.kill(one, signal.SIGKILL)


def _ui_port(port: int | None) -> int:
    wanted = 3000 if port is None else port
    if _free(wanted):
        return wanted
    if port is not None:
        raise BrokerError(
            f"port {port} for the Dagster UI is in use",
            fix="end what uses it, or give another one with --port",
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_for_ui(address: str, ended: threading.Event, timeout: float = 120) -> bool:
    """Wait until the UI answers; False when a part ended or it takes longer than `timeout`."""
    host, port = address.removeprefix("http://").split(":")
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and not ended.is_set():
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex((host, int(port))) == 0:
                return True
        time.sleep(0.3)
    return False
