"""Looks at the machine and says, part by part, whether the product can work on it.

Here belongs looking and the table that shows it; `examine` changes nothing and prints nothing. How
a part is repaired is said, never done. A part that is missing but not needed is told, not counted.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from rich.table import Table
from rich.text import Text

from kafka_assets import class_archive, jars
from kafka_assets.errors import KafkaAssetsError
from kafka_assets.settings import Settings

MAIN_JARS = ("delta-spark", "spark-sql-kafka-0-10", "kafka-clients", "kafka")
"""Those whose versions are told."""

WEB_PORT = 3000
"""Where `dagster dev` listens unless told otherwise."""


@dataclass(frozen=True)
class Finding:
    """What was found about one part.

    Attributes:
        part: Its name.
        found: Its version, place or state; never a secret.
        ok: Whether it can be used.
        required: Whether the product needs it; False makes a problem a remark.
        fix: What to do about a problem.
    """

    part: str
    found: str
    ok: bool
    required: bool = True
    fix: str | None = None


def examine(settings: Settings) -> list[Finding]:
    """Look at every part that the product needs or can use.

    Args:
        settings: Says which lake and which broker to look at.
    """
    return [
        _python(),
        _java(),
        *_packages(),
        _jars("spark", jars.spark_jars),
        _jars("broker", jars.broker_jars),
        _classes(),
        _lake(settings),
        _dagster_home(),
        _broker(settings),
        _web_port(),
        _chromium(),
    ]


def healthy(findings: list[Finding]) -> bool:
    """Tell whether every required part is in order."""
    return all(finding.ok or not finding.required for finding in findings)


def as_table(findings: list[Finding]) -> Table:
    """Return the findings as a table for a terminal."""
    table = Table(title="kafka-assets doctor")
    for name in ("part", "found", "state", "what to do"):
        # Paths and commands in full: they are there to be copied.
        table.add_column(name, overflow="fold", no_wrap=name == "state")
    for finding in findings:
        state = "ok" if finding.ok else "problem" if finding.required else "optional"
        colour = {"ok": "green", "problem": "bold red", "optional": "yellow"}[state]
        # Brackets in a path or a message are not markup.
        advice = "" if finding.ok else finding.fix or ""
        table.add_row(finding.part, Text(finding.found), Text(state, style=colour), Text(advice))
    return table


def as_dicts(findings: list[Finding]) -> list[dict[str, Any]]:
    """Return the findings as plain data for programs."""
    return [asdict(finding) for finding in findings]


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    ok = sys.version_info >= (3, 11)
    return Finding("python", version, ok, fix="Install Python 3.11, then run `make setup`.")


def _java() -> Finding:
    try:
        java = jars.check_java()
    except KafkaAssetsError as error:
        return Finding("java", error.what, ok=False, fix=error.fix)
    return Finding("java", f"{java.version} ({java.command})", ok=True)


def _packages() -> list[Finding]:
    try:
        lines = importlib.metadata.requires("kafka_assets") or []
    except importlib.metadata.PackageNotFoundError:
        return [Finding("kafka_assets", "not installed", ok=False, fix="Run `make setup`.")]
    wanted = [Requirement(line) for line in lines]
    needed = [each for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    return [_package(each) for each in needed]


def _package(wanted: Requirement) -> Finding:
    try:
        version = importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        version = "missing"
    ok = version != "missing" and wanted.specifier.contains(version, prereleases=True)
    found = version if ok else f"{version}, wanted {wanted.specifier or 'any'}"
    return Finding(wanted.name, found, ok, fix="Run `make setup`.")


def _jars(conf: str, find: Callable[[], tuple[Path, ...]]) -> Finding:
    try:
        found = find()
    except KafkaAssetsError as error:
        return Finding(f"{conf} jars", error.what, ok=False, fix=error.fix)
    named = [re.fullmatch(r"(.+?)(?:_2\.\d+)?-(\d[\w.]*)", jar.stem) for jar in found]
    main = [f"{one[1]} {one[2]}" for one in named if one is not None and one[1] in MAIN_JARS]
    shown = f"{', '.join(main)}; {len(found)} in {found[0].parent}"
    return Finding(f"{conf} jars", shown, ok=True)


def _classes() -> Finding:
    part = "class archive"
    if class_archive.recorded():
        return Finding(part, str(class_archive.archive("spark").parent), ok=True, required=False)
    return Finding(
        part,
        "missing: JVMs start as usual, not sooner",
        ok=False,
        required=False,
        fix="Run `make setup`, or `kafka-assets setup`.",
    )


def _lake(settings: Settings) -> Finding:
    if settings.local_lake is None:
        # Only Spark has the credentials for a remote lake, and starting Spark is not looking.
        return Finding("lake", f"{_no_user(settings.lake)}, remote: not looked at", ok=True)
    return _writable("lake", settings.local_lake, "set KAFKA_ASSETS_LAKE to another one")


def _dagster_home() -> Finding:
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        return Finding(
            "DAGSTER_HOME",
            "not set: runs and their history go when Dagster stops",
            ok=False,
            required=False,
            fix="Set DAGSTER_HOME to an absolute folder.",
        )
    if not Path(home).is_absolute() or not Path(home).is_dir():
        return Finding(
            "DAGSTER_HOME",
            f"{home}: not an absolute path of a folder",
            ok=False,
            fix=f"mkdir -p {Path(home).absolute()} and set DAGSTER_HOME to it.",
        )
    return _writable("DAGSTER_HOME", Path(home), "set DAGSTER_HOME to another one")


def _writable(part: str, folder: Path, otherwise: str) -> Finding:
    # Of a folder that does not exist yet, the parent in which it will be made is what counts.
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        fix = f"Make {place} writable, or {otherwise}."
        return Finding(part, f"{folder}: {error.strerror}", ok=False, fix=fix)
    return Finding(part, str(folder) if place == folder else f"{folder}, to be made", ok=True)


def _broker(settings: Settings) -> Finding:
    servers = settings.kafka.bootstrap_servers
    if "bootstrap_servers" not in settings.kafka.model_fields_set:
        return Finding("broker", f"none configured; the default is {servers}", ok=True)
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        # Its log lines on standard error would name the client's properties.
        client = AdminClient(
            {**settings.kafka.client_config(), "client.id": "kafka-assets-doctor", "log_level": 0}
        )
        topics = client.list_topics(timeout=min(5.0, settings.kafka.request_timeout_seconds)).topics
    except KafkaException as error:
        return Finding(
            "broker",
            f"{servers} does not answer: {error.args[0].str()}",
            ok=False,
            fix="Start it (`kafka-assets broker` for one on this machine), or correct "
            "KAFKA_ASSETS_KAFKA__BOOTSTRAP_SERVERS and the security properties.",
        )
    return Finding("broker", f"{servers} answers, {len(topics)} topics", ok=True)


def _web_port() -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", WEB_PORT))
        except OSError:
            return Finding(
                f"port {WEB_PORT}",
                "in use",
                ok=False,
                required=False,
                fix="If that is not Dagster itself, give `dagster dev` another --port.",
            )
    return Finding(f"port {WEB_PORT}", "free", ok=True)


def _chromium() -> Finding:
    names = ("chromium", "chromium-browser", "google-chrome")
    own = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    caches = (
        [Path(own)]
        if own
        else [
            Path.home() / ".cache/ms-playwright",
            Path.home() / "Library/Caches/ms-playwright",
        ]
    )
    found = [path for name in names if (path := shutil.which(name))]
    found += [str(path) for cache in caches for path in sorted(cache.glob("chromium*"))]
    if found:
        return Finding("chromium", found[0], ok=True, required=False)
    return Finding(
        "chromium",
        "missing; only the browser tests need it",
        ok=False,
        required=False,
        fix=".venv/bin/python -m playwright install chromium",
    )


def _no_user(url: str) -> str:
    return re.sub(r"//[^/@]*:[^/@]*@", "//***@", url)
