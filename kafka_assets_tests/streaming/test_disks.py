"""A disk that is full or read-only stops a run with a message; nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_assets.errors import LakeError
from kafka_assets.settings import Settings
from kafka_assets_tests.pipeline import Bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 16 MB; needs the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))


@pytest.mark.verify
def test_a_run_on_a_full_disk_is_refused_by_name_and_goes_on_when_there_is_room(
    spark: SparkSession, settings: Settings, topic_name: str, small_disk: Path
) -> None:
    bronze = Bronze(
        spark, settings.model_copy(update={"lake": str(small_disk / "lake")}), topic_name
    )
    bronze.produce(*[bytes([number]) * 1000 for number in range(100)])
    ballast = small_disk / "ballast"
    _fill(ballast)
    with pytest.raises(LakeError, match=r"space|cannot be written"):
        bronze.run()
    ballast.unlink()
    bronze.run()
    assert bronze.offsets() == list(range(103))


@pytest.mark.verify
def test_a_run_on_a_read_only_disk_is_refused_by_name_and_goes_on_when_it_can_write(
    spark: SparkSession, settings: Settings, topic_name: str, small_disk: Path
) -> None:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(small_disk)], check=True)

    bronze = Bronze(
        spark, settings.model_copy(update={"lake": str(small_disk / "lake")}), topic_name
    )
    bronze.produce(b"d")
    remount("ro")
    try:
        with pytest.raises(LakeError, match="cannot be written") as raised:
            bronze.run()
    finally:
        remount("rw")
    assert str(small_disk) in str(raised.value)
    assert raised.value.fix
    bronze.run()
    assert bronze.offsets() == list(range(4))
