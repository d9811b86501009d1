"""The lease of a table on a lake that is no local folder: an object that its holder keeps young.

No kernel takes it back from a process that died, so the holder writes it anew every few seconds,
and one that nobody writes any more may be taken. Which path a lease has, and what people are told,
is `lease`'s.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from upath import UPath

BEAT = 15.0
"""Seconds between two writes of its holder."""

LAPSED = 4 * BEAT
"""A lease whose last write is older than this, by two machines' clocks, may be one of the dead."""


class Held(Exception):
    """Somebody else has the lease.

    Args:
        by: What its holder wrote, empty where that cannot be read.
    """

    def __init__(self, by: Mapping[str, Any]) -> None:
        super().__init__()
        self.by = by


@contextmanager
def hold(path: UPath, holder: Mapping[str, Any]) -> Iterator[None]:
    """Hold a lease while the block runs.

    Args:
        path: Where it lies.
        holder: Who it is, for others to read.

    Raises:
        Held: Somebody has it who is alive, or got it in the same moment.
    """
    token = uuid.uuid4().hex
    # Looked at first: not every store refuses to create what is there.
    if path.exists() or not _create(path, holder, token):
        _wait_for_the_dead(path)
        path.unlink(missing_ok=True)
        if not _create(path, holder, token):
            raise Held(_read(path))
    done = threading.Event()
    beats = threading.Thread(target=_beat, args=(path, holder, token, done), daemon=True)
    beats.start()
    try:
        yield
    finally:
        done.set()
        beats.join()
        # One that is not given back lapses; what the run came to must not be lost over it.
        with suppress(Exception):
            # A process that stood still for long may have lost it.
            if _read(path).get("token") == token:
                path.unlink(missing_ok=True)


def _create(path: UPath, holder: Mapping[str, Any], token: str) -> bool:
    """Make the object, unless there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.fs.pipe_file(path.path, _record(holder, token), mode="create")
    except FileExistsError:
        return False
    except OSError:
        # Some stores say so in their own words.
        if path.exists():
            return False
        raise
    # Of two that created it in the same moment, one is overwritten.
    return _read(path).get("token") == token


def _wait_for_the_dead(path: UPath) -> None:
    """Return when nobody keeps the lease young any more.

    Clocks of two machines differ, so an old time alone proves nothing: the object has to stay as it
    is for longer than its holder would leave it.

    Raises:
        Held: Its holder lives.
    """
    found = _read(path)
    if time.time() - float(found.get("at", 0)) < LAPSED:
        raise Held(found)
    until = time.monotonic() + 2 * BEAT
    while time.monotonic() < until:
        time.sleep(BEAT / 5)
        now = _read(path)
        if now != found:
            raise Held(now or found)


def _beat(path: UPath, holder: Mapping[str, Any], token: str, done: threading.Event) -> None:
    while not done.wait(BEAT):
        try:
            if _read(path).get("token") != token:
                return
            path.fs.pipe_file(path.path, _record(holder, token))
        except Exception:  # noqa: S112
            # Each store has errors of its own: the run will meet them, or the store comes back.
            continue


def _record(holder: Mapping[str, Any], token: str) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({**holder, "token": token, "at": time.time(), "beat": now}).encode()


def _read(path: UPath) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
