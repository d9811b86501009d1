"""JVMs map the classes that an earlier one loaded, where the set-up has recorded them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kafka_assets import class_archive, doctor
from kafka_assets.demo.broker import Broker
from kafka_assets.settings import Settings
from kafka_assets.streaming.session import session_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python environment in which nothing was recorded."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("environment")
def test_a_jvm_without_recorded_classes_starts_as_usual() -> None:
    assert class_archive.options("spark") == ()
    assert not class_archive.recorded()


@pytest.mark.usefixtures("environment")
def test_recorded_classes_are_used_and_not_recorded_again() -> None:
    for use in class_archive.USES:
        file = class_archive.archive(use)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"of this Java")
        assert f"-XX:SharedArchiveFile={file}" in class_archive.options(use)
    assert class_archive.record() is None
    assert class_archive.archive("spark").read_bytes() == b"of this Java"


def test_the_engine_of_others_is_told_of_no_file() -> None:
    assert "SharedArchiveFile" not in str(session_conf(Settings()))


def test_what_keeps_classes_from_being_recorded_is_said_and_nothing_is_left(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_JARS", str(environment / "none"))
    why = class_archive.record()
    assert why is not None
    assert why.startswith("no classes of spark and broker were written. To fix: Run `kafka-assets")
    assert [path.suffix for path in environment.rglob("*") if path.is_file()] == [".failed"]
    monkeypatch.setattr(class_archive, "_record", lambda: "this time it is tried")
    assert class_archive.record(again=False) == why
    assert class_archive.record() == "this time it is tried"
    (found,) = [part for part in doctor.examine(Settings()) if part.part == "class archive"]
    assert (found.ok, found.required) == (False, False)


@linux
def test_the_broker_maps_the_classes_that_were_recorded(broker: Broker) -> None:
    assert broker.pid is not None
    assert str(class_archive.archive("broker")) in _mapped(broker.pid)


@linux
def test_the_session_maps_the_classes_that_were_recorded(spark: SparkSession) -> None:
    java: Any = spark._jvm
    process = java.java.lang.ProcessHandle.current()
    assert str(class_archive.archive("spark")) in _mapped(int(process.pid()))


def _mapped(process: int) -> set[str]:
    return {mapped.path for mapped in psutil.Process(process).memory_maps()}
