"""Finding jars and Java: what is incomplete is seen and named, and a fetch is all or nothing."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from kafka_assets import jars
from kafka_assets.errors import JarsMissing


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_ASSETS_JARS", str(tmp_path / "jars"))
    return tmp_path / "jars"


def fill(folder: Path, conf: jars.Conf, lock: str | None = None) -> Path:
    """Make a complete set of jars with made-up content."""
    target = folder / conf
    target.mkdir(parents=True)
    for name in jars.declared(conf):
        (target / name).write_bytes(b"jar")
    sizes = dict.fromkeys(jars.declared(conf), 3)
    marker = {"lock": lock or jars.lock_hash(), "jars": sizes}
    (target / jars.MARKER).write_text(json.dumps(marker))
    return target


def fake_java(home: Path, script: str) -> Path:
    """Make a `java` out of a shell script."""
    command = home / "bin/java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return command


# Does what Ivy does with `-retrieve`: finds the pattern and the sets among its arguments.
FAKE_IVY = f"""
case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2; exit 0;; esac
exec {sys.executable} - "$@" <<'END'
import re, sys
from pathlib import Path
arguments = sys.argv[1:]
pattern = arguments[arguments.index("-retrieve") + 1]
target = Path(pattern.split("/[conf]")[0])
lock = Path(arguments[arguments.index("-ivy") + 1]).read_text()
confs = arguments[arguments.index("-confs") + 1 : arguments.index("-retrieve")]
for conf, name, rev in re.findall(r'conf="(\\w+)->.*name="(\\S+)" rev="(\\S+)"', lock):
    if conf in confs:
        (target / conf).mkdir(parents=True, exist_ok=True)
        (target / conf / f"{{name}}-{{rev}}.jar").write_text("jar")
        print(f"	[SUCCESSFUL ] x#{{name}};{{rev}}!{{name}}.jar (1ms)", flush=True)
END
"""


def test_the_lock_names_every_jar_of_both_sets():
    assert len(jars.declared("spark")) == 7
    assert "kafka_2.13-4.3.1.jar" in jars.declared("broker")
    assert set(jars.declared("spark")) & set(jars.declared("broker")) == set()
    assert 'transitive="true"' not in jars.LOCK_FILE.read_text()


def test_no_registry_address_is_written_down():
    # The namespace of no schema is needed, so any address would be a registry's.
    assert "://" not in jars.LOCK_FILE.read_text() + jars.IVY_SETTINGS.read_text()


def test_complete_jars_are_listed(folder: Path):
    fill(folder, "spark")
    assert [path.name for path in jars.spark_jars()] == list(jars.declared("spark"))
    assert all(path.is_file() for path in jars.spark_jars())


def test_jars_that_were_never_fetched_are_told_with_the_command(folder: Path):
    with pytest.raises(JarsMissing, match="never fetched") as missing:
        jars.spark_jars()
    assert str(folder / "spark") in missing.value.what
    assert "kafka-assets setup" in (missing.value.fix or "")


def test_a_half_filled_folder_is_seen(folder: Path):
    (fill(folder, "broker") / jars.MARKER).unlink()
    with pytest.raises(JarsMissing, match="unfinished"):
        jars.broker_jars()


def test_a_removed_jar_and_a_truncated_one_are_named(folder: Path):
    spark = fill(folder, "spark")
    first, second = jars.declared("spark")[:2]
    (spark / first).unlink()
    (spark / second).write_bytes(b"j")
    with pytest.raises(JarsMissing, match=f"missing or damaged: {first}, {second}"):
        jars.spark_jars()


def test_jars_of_another_lock_are_refused(folder: Path):
    fill(folder, "spark", lock="0123456789ab")
    with pytest.raises(JarsMissing, match=r"version 0123456789ab of jvm\.ivy\.xml"):
        jars.spark_jars()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"lock": 1}', '{"lock": "x", "jars": 3}'])
def test_a_marker_that_cannot_be_read_is_told(folder: Path, text: str):
    (fill(folder, "spark") / jars.MARKER).write_text(text)
    with pytest.raises(JarsMissing, match=jars.MARKER):
        jars.spark_jars()


def test_fetch_fills_both_sets_and_then_does_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fake_java(tmp_path / "jdk", FAKE_IVY)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    lines: list[str] = []
    jars.fetch(progress=lines.append)
    assert len(jars.spark_jars()) + len(jars.broker_jars()) == len(lines)
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) == [
        "broker",
        "spark",
    ]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    jars.fetch()


def test_fetch_repairs_a_damaged_set_and_leaves_the_good_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fake_java(tmp_path / "jdk", FAKE_IVY)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    good = fill(folder, "broker")
    (fill(folder, "spark") / jars.declared("spark")[0]).unlink()
    before = good.stat().st_ino
    jars.fetch()
    assert jars.spark_jars()
    assert good.stat().st_ino == before


def test_a_failed_fetch_changes_nothing_and_hides_credentials(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script = (
        """case "$*" in *-version*) echo 'version "17"' >&2; exit 0;; esac\n"""
        "echo 'Server access error at url https://me:pa55@mirror/x'; exit 1"
    )
    fake_java(tmp_path / "jdk", script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(jars.JarsNotFetched, match=r"//\*\*\*@mirror") as failure:
        jars.fetch(attempts=1)
    assert "pa55" not in str(failure.value)
    assert "KAFKA_ASSETS_IVY_SETTINGS" in (failure.value.fix or "")
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KAFKA_ASSETS_JARS", str(tmp_path / "file/jars"))
    with pytest.raises(jars.JarsNotFetched, match="file/jars"):
        jars.fetch()


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21-ea", 21), ("17", 17)])
def test_java_17_and_21_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int
):
    command = fake_java(tmp_path, f"echo 'openjdk version \"{version}\" 2024-01-01' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert jars.check_java() == jars.Java(str(command), version, major)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "25"])
def test_another_java_is_refused_with_its_place_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
):
    fake_java(tmp_path, f"echo 'openjdk version \"{version}\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(jars.JavaMissing, match=f"JAVA_HOME.* is Java {version}") as refusal:
        jars.check_java()
    assert "install" in (refusal.value.fix or "")


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(jars.JavaMissing, match=f"JAVA_HOME is {tmp_path}"):
        jars.java_command()


def test_no_java_at_all_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(jars.JavaMissing, match="not installed"):
        jars.check_java()


def test_java_of_the_path_is_taken_without_java_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    command = fake_java(tmp_path, "echo 'openjdk version \"17\"' >&2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    assert jars.java_command() == str(command)
