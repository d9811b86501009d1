"""Worker processes as the parent sees them: start, tell, kill, and one spare kept warm.

Only processes that were started here are ever signalled: the worker's own group, and the children
it had, which are remembered with their start times.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

GROUP, JVM, PYTHON = "group", "jvm", "python"
"""What can be killed of a worker: Python and its JVM at once, or one of the two."""

PATIENCE = 240.0
"""Seconds until a worker that says nothing counts as hung; the machine may be busy."""


@dataclass(frozen=True)
class Setup:
    """How workers are started.

    Attributes:
        lake: Where their tables lie.
        bootstrap: The broker.
        topic: What bronze reads.
        most_offsets: Most records of a bronze batch.
        without: Protections that are switched off in the worker.
        remote: A Spark Connect server; None for an engine of the worker's own.
    """

    lake: Path
    bootstrap: str
    topic: str
    most_offsets: int = 1_000_000
    without: tuple[str, ...] = ()
    remote: str | None = None

    def command(self) -> list[str]:
        """The worker's command line."""
        options = {
            "--lake": self.lake,
            "--bootstrap": self.bootstrap,
            "--topic": self.topic,
            "--most-offsets": self.most_offsets,
        }
        named = [str(part) for pair in options.items() for part in pair]
        off = ["--without", *self.without] if self.without else []
        if self.remote is not None:
            named += ["--remote", self.remote]
        program = [sys.executable, "-m", "kafka_assets_tests.reliability.worker"]
        return [*program, *named, *off]


class Worker:
    """One worker process in a session of its own. A context manager.

    Args:
        setup: How it is started.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._log = (setup.lake.parent / "workers.log").open("ab")
        self._children: list[psutil.Process] = []
        self._ready = False
        self._lines: queue.Queue[str] = queue.Queue()
        self._process = subprocess.Popen(
            setup.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):
            for line in self._process.stdout:
                self._lines.put(line.strip())

    @property
    def alive(self) -> bool:
        """Whether its Python runs."""
        return self._process.poll() is None

    def await_ready(self) -> Self:
        """Wait until its session is up; returns at once when it has been."""
        if not self._ready:
            line = self.answer()
            assert line == "ready", f"the worker did not start: {line}\n{self.log_tail()}"
            self._ready = True
            self._children = psutil.Process(self._process.pid).children(recursive=True)
        return self

    def tell(self, command: str) -> None:
        """Give it a command; the answer comes by `answer`."""
        self.await_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def answer(self, patience: float = PATIENCE) -> str | None:
        """Its next line; None when it ended or stayed silent."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            with suppress(queue.Empty):
                return self._lines.get(timeout=0.2)
            if not self.alive and self._lines.empty():
                return None
        return None

    @property
    def answered(self) -> bool:
        """Whether an answer waits."""
        return not self._lines.empty()

    def do(self, command: str) -> str:
        """Give it a command that has to succeed, and return what it says.

        Raises:
            AssertionError: It failed, ended or hung.
        """
        self.tell(command)
        line = self.answer()
        assert line is not None, f"no answer to {command!r}\n{self.log_tail()}"
        assert line.startswith("done"), f"{command!r} was answered by: {line}"
        assert "NOT CONSERVED" not in line, line
        return line.removeprefix("done").strip()

    def kill(self, part: str = GROUP) -> None:
        """SIGKILL the whole group at once, or only its JVM, or only its Python."""
        if part == GROUP:
            self._remember_children()
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        elif part == PYTHON:
            self._process.kill()
            self._process.wait()
        else:
            self.jvm.kill()

    def pause(self) -> None:
        """Freeze Python and JVM (SIGSTOP)."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on (SIGCONT)."""
        os.killpg(self._process.pid, signal.SIGCONT)

    @property
    def jvm(self) -> psutil.Process:
        """Its JVM."""
        (found,) = [child for child in self._children if _is_java(child)]
        return found

    def leave(self) -> None:
        """Let its Python end in order; its JVM follows by itself."""
        self._remember_children()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def close(self) -> None:
        """End what is left of it, by force."""
        if self.alive:
            self._remember_children()
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for child in self._children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(self._children, timeout=10)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._log.close()

    def log_tail(self) -> str:
        """The last lines that workers of this lake wrote to standard error."""
        self._log.flush()
        text = Path(self._log.name).read_text(errors="replace")
        return "\n".join(text.splitlines()[-20:])

    def _remember_children(self) -> None:
        # Spark's Python workers have a group of their own, and come later than `ready`.
        with suppress(psutil.NoSuchProcess):
            found = psutil.Process(self._process.pid).children(recursive=True)
            self._children = list({*self._children, *found})


class Crew:
    """Workers one after the other, the next of which starts while the present one works.

    Args:
        setup: How workers are started.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._all: list[Worker] = []
        self._spare = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.close()

    def take(self) -> Worker:
        """A worker that is ready; a new spare starts at once."""
        taken, self._spare = self._spare, self._start()
        return taken.await_ready()

    def dismiss(self, workers: Sequence[Worker]) -> None:
        """End what is left of workers that are not needed any more."""
        for worker in workers:
            worker.close()
            self._all.remove(worker)

    def _start(self) -> Worker:
        worker = Worker(self.setup)
        self._all.append(worker)
        return worker


def _is_java(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.name() == "java")
    return False
