"""Loaded classes that all JVMs of a test round share, which halves what starting one costs.

Java's class data sharing: one worker runs the tables once and leaves its classes in a file at its
end; later JVMs map that file. A JVM that cannot use the file starts as usual.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil

from kafka_assets_tests.helpers import create_topic
from kafka_assets_tests.reliability.kinds import prepare
from kafka_assets_tests.reliability.ledger import Ledger
from kafka_assets_tests.reliability.workers import Setup, Worker


def make_archive(folder: Path, bootstrap: str, *tables: str) -> tuple[str, ...]:
    """Run the tables once on a lake of their own, and return the JVM options of later workers.

    Args:
        folder: An empty folder for the file and the lake.
        bootstrap: The broker; topics named after the folder are made there.
        tables: Further tables that the workers will run.
    """
    file = folder / "classes.jsa"
    topic = f"archive-{folder.name}-{folder.stat().st_ino}"
    create_topic(bootstrap, topic, 2)
    if tables:
        create_topic(bootstrap, f"{topic}-alerts")
        prepare(folder / "lake")
    ledger = Ledger(bootstrap, topic, seed=0)
    setup = Setup(folder / "lake", bootstrap, topic)
    with Worker(replace(setup, jvm=(f"-XX:ArchiveClassesAtExit={file}",))) as worker:
        worker.await_ready()
        ledger.send(100)
        worker.do(f"run raw clean hourly {' '.join(tables)}")
        worker.leave()
        # The file is written at the JVM's end, which comes after Python's.
        psutil.wait_procs([worker.jvm], timeout=120)
    return (f"-XX:SharedArchiveFile={file}",) if file.exists() else ()
