"""The JVM's side of the installation: which Java runs, where the jars are, how they get there.

Here belongs finding and fetching. What the jars are is `jvm.ivy.xml`, the lock; how Spark or the
broker use them is in their own modules. Only `fetch` touches the network, and only the set-up calls
it: a run never downloads anything.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs
import tenacity
from filelock import FileLock

from kafka_assets.errors import JarsMissing, KafkaAssetsError

Conf = Literal["spark", "broker"]
CONFS: tuple[Conf, ...] = ("spark", "broker")

LOCK_FILE = Path(__file__).with_name("jvm.ivy.xml")
IVY_SETTINGS = Path(__file__).with_name("jvm.ivysettings.xml")
MARKER = "complete.json"
"""Written last into a folder of jars: the lock's hash and the size of every jar."""

JAVA_VERSIONS = (17, 21)
"""The Java releases that Spark 4.0 and Kafka 4 both run on."""

SETUP_COMMAND = "kafka-assets setup"


class JarsNotFetched(KafkaAssetsError):
    """Ivy could not get the jars: no network, a wrong mirror, or a jar that does not exist."""


class JavaMissing(KafkaAssetsError):
    """No Java, or a release that Spark or Kafka does not run on."""


@dataclass(frozen=True)
class Java:
    """A Java that was asked for its version.

    Attributes:
        command: The executable's path.
        version: What it calls itself, such as "17.0.15".
        major: The release, such as 17.
    """

    command: str
    version: str
    major: int


def lock_hash() -> str:
    """Return the first 12 hex digits of the lock file's SHA-256."""
    return hashlib.sha256(LOCK_FILE.read_bytes()).hexdigest()[:12]


def jars_dir() -> Path:
    """Return the folder that holds `spark/` and `broker/`.

    It is in the user's cache and named after the lock's hash, so that two checkouts with different
    locks do not disturb each other. `KAFKA_ASSETS_JARS` names another one, for images that are
    built beforehand.
    """
    override = os.environ.get("KAFKA_ASSETS_JARS")
    if override:
        return Path(override).expanduser().absolute()
    return Path(platformdirs.user_cache_dir("kafka-assets")) / f"jvm-{lock_hash()}"


def spark_jars() -> tuple[Path, ...]:
    """Return the jars that a Spark session needs beyond pyspark's own.

    Raises:
        JarsMissing: One is missing or damaged, or they belong to another lock.
    """
    return _complete("spark")


def broker_jars() -> tuple[Path, ...]:
    """Return the jars of the embedded Kafka broker.

    Raises:
        JarsMissing: One is missing or damaged, or they belong to another lock.
    """
    return _complete("broker")


def fetch(
    confs: Iterable[Conf] = CONFS,
    progress: Callable[[str], None] = lambda _line: None,
    *,
    attempts: int = 3,
) -> Path:
    """Bring the jars onto this machine, unless they are already complete.

    Safe to interrupt and to call twice at once: jars appear in their final folder only when all are
    there, and a lock lets one caller fetch while the other waits. What an interrupted call had
    already downloaded is not downloaded again.

    Args:
        confs: Which sets of jars.
        progress: Called with one short line for each step and each jar.
        attempts: How often Ivy is started before its failure is reported.

    Returns:
        The folder that holds the sets.

    Raises:
        JavaMissing: There is no Java to run Ivy with.
        JarsNotFetched: A jar could not be downloaded, or the folder cannot be written.
    """
    folder = jars_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            missing = [conf for conf in confs if _problem(conf, folder / conf)]
            if missing:
                _fetch_locked(missing, folder, progress, attempts)
    except OSError as error:
        raise JarsNotFetched(
            f"Cannot write the jars to {folder}: {error}.",
            fix="Make the folder writable, or name another one with KAFKA_ASSETS_JARS, then run "
            f"`{SETUP_COMMAND}`.",
        ) from error
    return folder


def java_command() -> str:
    """Return the Java to use: that of `JAVA_HOME` if it is set, as Spark does, else the path's.

    Raises:
        JavaMissing: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        command = Path(home) / "bin" / "java"
        if not os.access(command, os.X_OK):
            raise JavaMissing(
                f"JAVA_HOME is {home}, but {command} is not an executable.",
                fix="Unset JAVA_HOME or point it to a Java 17: " + _java_install(),
            )
        return str(command)
    found = shutil.which("java")
    if found is None:
        raise JavaMissing(
            "Java is not installed: no `java` on the PATH, and JAVA_HOME is not set.",
            fix=f"Install Java 17: {_java_install()}",
        )
    return found


def check_java() -> Java:
    """Ask the Java to be used for its version and accept 17 and 21.

    Raises:
        JavaMissing: There is none, it does not start, or it is another release.
    """
    command = java_command()
    try:
        answer = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(
            f"{command} does not start: {error}.", fix=f"Install Java 17: {_java_install()}"
        ) from error
    match = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', answer)
    if match is None:
        raise JavaMissing(
            f"{command} did not tell its version: {answer.strip()[:200]!r}.",
            fix=f"Install Java 17: {_java_install()}",
        )
    java = Java(command=command, version=match[1], major=int(match[2]))
    if java.major not in JAVA_VERSIONS:
        where = "JAVA_HOME" if os.environ.get("JAVA_HOME") else "the PATH"
        raise JavaMissing(
            f"{command} (from {where}) is Java {java.version}; Spark 4.0 needs 17 or 21.",
            fix=f"Install Java 17 and point JAVA_HOME to it: {_java_install()}",
        )
    return java


def declared(conf: Conf) -> tuple[str, ...]:
    """Return the file names of the jars that the lock lists for one set, in its order."""
    return tuple(
        f"{dependency.get('name')}-{dependency.get('rev')}.jar"
        for dependency in ET.parse(LOCK_FILE).iter("dependency")  # noqa: S314 - our own file
        if dependency.get("conf", "").startswith(f"{conf}->")
    )


def _complete(conf: Conf) -> tuple[Path, ...]:
    folder = jars_dir() / conf
    problem = _problem(conf, folder)
    if problem:
        raise JarsMissing(
            f"The {conf} jars in {folder} cannot be used: {problem}.",
            fix=f"Run `{SETUP_COMMAND}` (or `make setup`).",
        )
    return tuple(folder / name for name in declared(conf))


def _problem(conf: Conf, folder: Path) -> str | None:
    """Say what keeps a folder of jars from being used, or None."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        lock, sizes = marker["lock"], dict(marker["jars"])
    except FileNotFoundError:
        return "the folder is unfinished" if folder.is_dir() else "they were never fetched"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{MARKER} cannot be read ({error})"
    if lock != lock_hash():
        return f"they were fetched for version {lock} of jvm.ivy.xml, this is {lock_hash()}"
    bad = [name for name in declared(conf) if _size(folder / name) != sizes.get(name, -2)]
    if bad:
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        return f"missing or damaged: {', '.join(bad[:3])}{more}"
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _fetch_locked(
    confs: list[Conf], folder: Path, progress: Callable[[str], None], attempts: int
) -> None:
    java = check_java()
    # Kept until all is well, so that a second call goes on where an interrupted one stopped.
    cache = folder / ".ivy"
    for stale in folder.glob(".new-*"):
        shutil.rmtree(stale, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
    try:
        retry = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(attempts),
            wait=tenacity.wait_exponential(multiplier=2, max=10),
            retry=tenacity.retry_if_exception_type(JarsNotFetched),
            before_sleep=lambda _state: progress("the download failed, trying again"),
            reraise=True,
        )
        retry(_run_ivy, java, confs, cache, new, progress)
        for conf in confs:
            _install(conf, new / conf, folder / conf)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(cache, ignore_errors=True)


def _install(conf: Conf, new: Path, final: Path) -> None:
    sizes = {name: _size(new / name) for name in declared(conf)}
    absent = [name for name, size in sizes.items() if size <= 0]
    if absent:
        raise JarsNotFetched(
            f"Ivy did not deliver {', '.join(absent)}.",
            fix=f"Run `{SETUP_COMMAND}` again; if it stays, the mirror does not have it.",
        )
    marker = {"lock": lock_hash(), "jars": sizes}
    (new / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")
    if final.exists():
        # A JVM that runs on the damaged set keeps its open files; the folder goes out of the way.
        final.rename(new.with_name(f"{new.name}.old"))
    new.rename(final)


def _run_ivy(
    java: Java, confs: list[Conf], cache: Path, target: Path, progress: Callable[[str], None]
) -> None:
    settings = os.environ.get("KAFKA_ASSETS_IVY_SETTINGS") or str(IVY_SETTINGS)
    command = [java.command, "-jar", str(_ivy_jar()), "-settings", settings]
    command += ["-ivy", str(LOCK_FILE), "-cache", str(cache), "-confs", *confs]
    command += ["-retrieve", f"{target}/[conf]/[artifact]-[revision].[ext]"]
    total = sum(len(declared(conf)) for conf in confs)
    lines: list[str] = []
    done = 0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        try:
            assert ivy.stdout is not None  # noqa: S101 - stdout=PIPE
            for line in ivy.stdout:
                lines.append(line.strip())
                match = re.search(r"\[SUCCESSFUL \] \S+!(\S+)", line)
                if match:
                    done += 1
                    progress(f"{done} of {total} jars: {match[1]}")
        except BaseException:
            ivy.kill()
            raise
    if ivy.returncode != 0:
        raise JarsNotFetched(
            f"The jars could not be downloaded: {_why(lines)}. What was downloaded is kept.",
            fix=f"Check the network and run `{SETUP_COMMAND}` again. Behind a proxy, set "
            "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; for a mirror, name "
            "an Ivy settings file with KAFKA_ASSETS_IVY_SETTINGS.",
        )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec else []
    jars = [jar for place in places for jar in Path(place).glob("jars/ivy-*.jar")]
    if not jars:
        raise JarsNotFetched(
            f"pyspark, which ships Ivy, is not installed in {sys.prefix}.", fix="Run `make setup`."
        )
    return jars[0]


def _why(lines: list[str]) -> str:
    """Pick Ivy's own words for its failure, without credentials of a mirror's address."""
    telling = [
        line for line in lines if re.search(r"not found|UNRESOLVED|error|ERROR|FAILED", line)
    ]
    text = "; ".join(dict.fromkeys((telling or lines)[:4])) or "Ivy said nothing"
    return re.sub(r"//[^/@\s]+@", "//***@", text)


def _java_install() -> str:
    if sys.platform == "darwin":
        return "brew install openjdk@17"
    if shutil.which("dnf"):
        return "sudo dnf install java-17-openjdk-headless"
    return "sudo apt install openjdk-17-jre-headless"


def main(arguments: list[str]) -> int:
    """Serve the set-up: `fetch` brings the jars; without it, only say whether they are complete."""
    last = 0.0

    def progress(line: str) -> None:
        # A line for each of 53 jars tells nobody anything; one every few seconds does.
        nonlocal last
        if time.monotonic() - last > 3:
            last = time.monotonic()
            print(f"      ... {line}", flush=True)

    try:
        if "fetch" in arguments:
            fetch(progress=progress)
        spark_jars()
        broker_jars()
    except KafkaAssetsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
