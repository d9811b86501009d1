"""Runs one command and ends it when whoever started the guard is gone.

Started by path as a process of its own, so it imports the standard library only. Its standard input
is a pipe that the starter holds open: the kernel closes it however the starter dies, SIGKILL
included. A parent-death signal would not do: it fires when the starting *thread* ends.

    python guard.py LOG COMMAND...    prints the command's process id, then waits
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

PATIENCE_SECONDS = 10.0
"""How long the command may take to end in order before it is killed."""


def end(child: subprocess.Popen[bytes]) -> None:
    """Ask the command to end and kill it when it does not."""
    # A stopped process keeps SIGTERM waiting until it is continued.
    child.send_signal(signal.SIGCONT)
    child.terminate()
    try:
        child.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


def main(log: str, command: list[str]) -> None:
    """Run the command until it ends or standard input closes, and exit as it did."""
    with open(log, "ab") as output:  # noqa: PTH123 - as light as can be
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    os.write(1, f"{child.pid}\n".encode())

    def watch() -> None:
        while os.read(0, 1):
            pass
        end(child)

    threading.Thread(target=watch, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=end, args=(child,)).start())
    code = child.wait()
    # At once: an orderly exit would wait for the thread's read.
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
