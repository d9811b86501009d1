"""A real Kafka broker on this machine, for the demo and the tests.

One KRaft node, a process of its own, bound to 127.0.0.1, with its data in one folder. Here belongs
its life: format, start, stop, kill, pause. Topics are made in `producing`. Nothing of the
product needs this module; pipelines use whatever broker the settings name.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import tenacity
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafka_assets import class_archive, jars
from kafka_assets.demo.broker_config import JVM_OPTIONS, properties
from kafka_assets.demo.ports import HOST, bindable, free_ports, listener
from kafka_assets.errors import BrokerError

OWN_FILES = frozenset({"broker.json", "broker.log", "server.properties"})
"""What a data folder holds beside the storage."""


class Broker:
    """One Kafka broker over one data folder. A context manager, and restartable.

    It survives `kill` and restarts with its data. When this process ends, in whatever way, the
    broker ends too. Ctrl-C in the terminal does not reach it: the caller decides the order.

    Args:
        data_dir: Folder for its data, log and configuration; created if needed.
        port: Where clients connect; None takes the port of the last start on this data if it is
            still free, else any free one.
        heap: Most memory of its JVM, such as "1g".
    """

    def __init__(self, data_dir: Path, port: int | None = None, heap: str = "1g") -> None:
        self.data_dir = Path(data_dir).expanduser().absolute()
        self.log_file = self.data_dir / "broker.log"
        self._wanted_port = port
        self._heap = heap
        self._port: int | None = None
        self._pid: int | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()

    @property
    def bootstrap(self) -> str:
        """Address for clients, "127.0.0.1:PORT".

        Raises:
            BrokerError: It was never started, so the port is not known.
        """
        if self._port is None:
            raise BrokerError(f"The broker of {self.data_dir} has not been started.")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id of its JVM, None when it is not running."""
        return self._pid if self.alive else None

    @property
    def alive(self) -> bool:
        """Whether its process runs; a paused one does."""
        return self._guard is not None and self._guard.poll() is None

    def start(self, timeout: float = 60) -> Self:
        """Start it and wait until it answers; does nothing when it runs.

        Args:
            timeout: Seconds until it must answer.

        Raises:
            BrokerError: Its port is taken, the folder cannot be written or is another broker's,
                or it ended or stayed silent; the message holds its last log lines.
            JarsMissing: Its jars are not on this machine.
            JavaMissing: There is no Java that it runs on.
        """
        if self.alive:
            return self
        classpath = f"{jars.broker_jars()[0].parent}/*"
        java = jars.check_java().command
        self._prepare_folder()
        self._wait_for_orphan()
        port, controller_port = self._choose_ports()
        cluster_id = self._format(java, classpath, port, controller_port)
        config = self._write_config(self._storage, port, controller_port)
        options = (*JVM_OPTIONS, *class_archive.options("broker"))
        command = [java, f"-Xmx{self._heap}", *options, "-cp", classpath]
        self._launch([*command, "kafka.Kafka", str(config)])
        self._port = port
        self._remember(port, controller_port)
        atexit.register(self.stop)
        try:
            self._await_answer(cluster_id, timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop it in order, within 10 seconds or by force; does nothing when it does not run."""
        # A forked child inherits this object, but not the broker.
        if self._guard is None or os.getpid() != self._owner:
            return
        if self._guard.stdin is not None:
            with suppress(BrokenPipeError):
                self._guard.stdin.close()
        self._reap(timeout=15)

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would."""
        self._signal(signal.SIGKILL)
        self._reap(timeout=15)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause` (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of its log."""
        try:
            text = self.log_file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join(text.splitlines()[-lines:])

    @property
    def _storage(self) -> Path:
        return self.data_dir / "kafka-logs"

    @property
    def _record(self) -> Path:
        return self.data_dir / "broker.json"

    def _signal(self, number: signal.Signals) -> None:
        if self._pid is None or not self.alive:
            raise BrokerError(
                f"The broker of {self.data_dir} is not running.", fix="Start it first: start()."
            )
        os.kill(self._pid, number)

    def _reap(self, timeout: float) -> None:
        assert self._guard is not None  # noqa: S101 - callers have looked
        try:
            self._guard.wait(timeout)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.wait()
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._guard = None
        self._pid = None
        atexit.unregister(self.stop)

    def _prepare_folder(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            foreign = [
                path.name
                for path in self.data_dir.iterdir()
                if path.name not in OWN_FILES and not path.name.startswith("kafka-logs")
            ]
            self.log_file.touch()
        except OSError as error:
            raise BrokerError(
                f"The broker's data folder {self.data_dir} cannot be written: {error}.",
                fix="Give a folder that you may write to.",
            ) from error
        if foreign and not self._storage.exists():
            raise BrokerError(
                f"{self.data_dir} is not a broker's data folder: it holds "
                f"{', '.join(sorted(foreign)[:3])}. They were left as they are.",
                fix="Give an empty folder or one of an earlier broker.",
            )

    def _recall(self) -> dict[str, float]:
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
            return {str(name): float(value) for name, value in record.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def _remember(self, port: int, controller_port: int) -> None:
        assert self._pid is not None  # noqa: S101 - just launched
        record = {
            "port": port,
            "controller_port": controller_port,
            "pid": self._pid,
            "pid_started": _started(self._pid),
            "owner": os.getpid(),
            "owner_started": _started(os.getpid()),
        }
        self._record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    def _wait_for_orphan(self) -> None:
        """Refuse a folder that a live broker serves; wait for one whose owner is gone."""
        record = self._recall()
        if not record or not _same_process(record.get("pid"), record.get("pid_started")):
            return
        pid, port = int(record["pid"]), int(record.get("port", 0))
        if not _same_process(record.get("owner"), record.get("owner_started")):
            with suppress(psutil.NoSuchProcess):
                psutil.wait_procs([psutil.Process(pid)], timeout=15)
            if not _same_process(pid, record.get("pid_started")):
                return
        raise BrokerError(
            f"{self.data_dir} is served by a broker that runs on {HOST}:{port} (process {pid}). "
            "It was left as it is.",
            fix=f"Use that one, stop it (`kill {pid}`), or give another data folder.",
        )

    def _choose_ports(self) -> tuple[int, int]:
        record = self._recall()
        free = free_ports()
        if self._wanted_port is None:
            last = int(record.get("port", 0))
            port = last if last and bindable(last) else next(free)
        elif bindable(self._wanted_port):
            port = self._wanted_port
        else:
            raise BrokerError(
                f"Port {self._wanted_port} on {HOST} is in use{listener(self._wanted_port)}.",
                fix="Stop that process, give another port, or none to have a free one chosen.",
            )
        last = int(record.get("controller_port", 0))
        usable = last and last != port and bindable(last)
        return port, last if usable else next(number for number in free if number != port)

    def _write_config(self, storage: Path, port: int, controller_port: int) -> Path:
        config = properties(storage, port, controller_port)
        path = self.data_dir / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        return path

    def _format(self, java: str, classpath: str, port: int, controller_port: int) -> str:
        """Format the storage unless it is, and return the cluster's id."""
        meta = self._storage / "meta.properties"
        if not self._storage.exists():
            # Beside its place, then renamed: an interrupted format leaves nothing that looks whole.
            for stale in self.data_dir.glob("kafka-logs.*"):
                shutil.rmtree(stale, ignore_errors=True)
            new = self.data_dir / f"kafka-logs.{uuid.uuid4().hex[:8]}"
            config = self._write_config(new, port, controller_port)
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            # An id that begins with a dash would be read as an option.
            command = [java, *JVM_OPTIONS[:2], "-cp", classpath, "kafka.tools.StorageTool"]
            command += ["format", "--standalone", f"--cluster-id={cluster_id}", "-c", str(config)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BrokerError(
                    f"The storage in {self.data_dir} could not be formatted:\n"
                    f"{(done.stdout + done.stderr)[-2000:]}"
                )
            new.rename(self._storage)
        try:
            lines = meta.read_text(encoding="utf-8").splitlines()
            return next(line for line in lines if line.startswith("cluster.id="))[11:]
        except (OSError, StopIteration) as error:
            raise BrokerError(
                f"{self._storage} is not a Kafka storage: {meta.name} is missing or has no "
                "cluster.id. Its files were left as they are.",
                fix="Give another data folder, or remove this one if its topics may go.",
            ) from error

    def _launch(self, command: list[str]) -> None:
        guard = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))]
        self._owner = os.getpid()
        # A session of its own keeps the terminal's Ctrl-C from the broker.
        self._guard = subprocess.Popen(
            [*guard, str(self.log_file), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._guard.stdout is not None  # noqa: S101 - stdout=PIPE
        pid = self._guard.stdout.readline()
        if not pid:
            self._reap(timeout=5)
            raise BrokerError(
                f"{command[0]} could not be started.", fix="Run `kafka-assets doctor`."
            )
        self._pid = int(pid)

    def _await_answer(self, cluster_id: str, timeout: float) -> None:
        client = AdminClient(
            {
                "bootstrap.servers": self.bootstrap,
                "client.id": "kafka-assets-broker-start",
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                # Refused connections are what is expected here, not news.
                "log_level": 0,
            }
        )

        def ask() -> str | None:
            if not self.alive:
                raise BrokerError(self._failure("ended while it started"))
            return client.list_topics(timeout=1).cluster_id

        begin = time.monotonic()
        retry = tenacity.Retrying(
            stop=tenacity.stop_after_delay(timeout),
            wait=tenacity.wait_fixed(0.05),
            retry=tenacity.retry_if_exception_type(KafkaException),
            reraise=True,
        )
        try:
            found = retry(ask)
        except KafkaException as error:
            waited = time.monotonic() - begin
            raise BrokerError(self._failure(f"did not answer within {waited:.0f} s")) from error
        if found != cluster_id:
            raise BrokerError(
                f"On {self.bootstrap} another Kafka answers (cluster {found}, not {cluster_id}).",
                fix="Give another port, or none to have a free one chosen.",
            )

    def _failure(self, what: str) -> str:
        return (
            f"The broker of {self.data_dir} on {self.bootstrap} {what}. Its data was kept. "
            f"Last lines of {self.log_file}:\n{self.log_tail()}"
        )


def _started(pid: int) -> float:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return 0.0


def _same_process(pid: float | None, started: float | None) -> bool:
    """Tell whether a process still runs; its start time tells it from a later one of that id."""
    if not pid or not started:
        return False
    try:
        process = psutil.Process(int(pid))
        same = abs(process.create_time() - started) < 1
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
