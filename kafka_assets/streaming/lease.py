"""One writer for each table at a time.

The lease is a courtesy that says early and clearly who else is writing; what keeps two writers from
doubling rows is the transaction id of each batch's commit. A disk that fails while the lease is
held is named here too, because every run and every operation holds one.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from upath import UPath

from kafka_assets.errors import LakeError, LeaseHeld
from kafka_assets.graph import Node
from kafka_assets.settings import Settings
from kafka_assets.streaming import lease_object

_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


@contextmanager
def lease(node: Node, settings: Settings, run_id: str) -> Iterator[None]:
    """Hold a table for one run.

    On a local lake this is an operating-system lock, which the kernel releases when the process
    ends, however it ends. On other lakes it is an object that the holder keeps young; that of a
    process that was killed is taken over after a minute and a half.

    Args:
        node: The table.
        settings: For the lake.
        run_id: Written beside the lock, for the message to others.

    Raises:
        LeaseHeld: Another run holds the table; the message says which.
        LakeError: The lock's folder cannot be written, or the disk failed the run: it is full,
            read-only or not permitted.
    """
    if settings.local_lake is None:
        with _object(node, settings, run_id):
            yield
        return
    folder = settings.local_lake / "_leases"
    record = folder / f"{node.name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{node.name}.lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise _held(node, _said(record)) from None
    except OSError as error:
        raise _unwritable(node, error, folder) from error
    try:
        _write_record(record, run_id, settings)
        yield
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise
        raise _unwritable(node, error, settings.local_lake) from error
    finally:
        lock.release()


@contextmanager
def _object(node: Node, settings: Settings, run_id: str) -> Iterator[None]:
    path = UPath(settings.lake) / "_leases" / f"{node.name}.json"
    with ExitStack() as held:
        try:
            held.enter_context(lease_object.hold(path, _record(run_id, settings)))
        except lease_object.Held as other:
            raise _held(node, other.by) from None
        except Exception as error:  # each store has errors of its own
            raise LakeError(
                f"table {node.name!r}: its lease {path} cannot be written: {error}; nothing was "
                "read or written",
                fix="check the address of the lake, and the permission to write there",
            ) from error
        yield


def _held(node: Node, by: Mapping[str, Any]) -> LeaseHeld:
    who = "(no record of who)"
    if by:
        who = (
            f"run {by['run_id']}, pid {by['pid']} on {by['host']} ({by['engine']}), "
            f"since {by['since']}"
        )
    return LeaseHeld(
        f"table {node.name!r} is being written by another run: {who}; nothing was done here",
        fix="wait for that run to end, or end it",
    )


def _unwritable(node: Node, error: OSError, place: Path) -> LakeError:
    return LakeError(
        f"table {node.name!r}: {error.filename or place} cannot be written: "
        f"{error.strerror or error}; what was committed before is kept",
        fix="make the lake writable or free some space, and run again",
    )


def _record(run_id: str, settings: Settings) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "engine": settings.spark.remote or settings.spark.master,
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _write_record(record: Path, run_id: str, settings: Settings) -> None:
    draft = record.with_suffix(".draft")
    draft.write_text(json.dumps(_record(run_id, settings)), encoding="utf-8")
    draft.replace(record)


def _said(record: Path) -> dict[str, Any]:
    """What the holder of the lock wrote about itself; nothing where that cannot be read."""
    # The first holder ever takes the lock a moment before it says who it is.
    until = time.monotonic() + 1
    while not record.exists() and time.monotonic() < until:
        time.sleep(0.02)
    try:
        held: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return held
