"""Loaded classes in a file that all JVMs of this installation map, so that each starts sooner.

Java's class data sharing: a JVM that ends writes down which classes it had loaded, checked and
linked; later ones map the file where they would read thousands of classes out of jars. Here belong
where the files are, the JVM options that use them, and `record`, which makes them by running the
sample pipelines once. A JVM that finds none, or one that is not its own, starts as usual.

See https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

from kafka_assets.errors import KafkaAssetsError
from kafka_assets.jars import java_command, lock_hash

Use = Literal["spark", "broker"]
USES: tuple[Use, ...] = ("spark", "broker")

RECORDING = "KAFKA_ASSETS_RECORD_CLASSES"
"""Names the folder into which JVMs write their classes, in the process that `record` starts."""

QUIET = "-Xlog:cds*=off"
"""A JVM would say on standard output that it cannot use a file."""

EVENTS = 100
"""What the sample pipelines are run with: the code is the same for few events and for many."""

TIMEOUT = 600.0
"""Seconds after which recording is given up."""


def options(use: Use) -> tuple[str, ...]:
    """The JVM options that use the classes, or record them; none where there is no file."""
    recording = os.environ.get(RECORDING)
    if recording:
        return (f"-XX:ArchiveClassesAtExit={recording}/{use}.jsa", QUIET)
    file = archive(use)
    return (f"-XX:SharedArchiveFile={file}", QUIET) if file.exists() else ()


def archive(use: Use) -> Path:
    """Where the classes are: in this Python environment, named after Java, Spark and the jars."""
    return _folder() / f"{use}-{_fingerprint()}.jsa"


def recorded() -> bool:
    """Whether the classes are there for every use."""
    return all(archive(use).exists() for use in USES)


def record(*, again: bool = True) -> str | None:
    """Run the sample pipelines once, in JVMs that write down their classes, unless they are there.

    Args:
        again: Try also when it was tried before and could not be done.

    Returns:
        Why there are none; None when they are there.
    """
    if recorded():
        return None
    failed = archive("spark").with_suffix(".failed")
    if failed.exists() and not again:
        return failed.read_text(encoding="utf-8")
    why = _record()
    if why is not None:
        with suppress(OSError):
            failed.write_text(why, encoding="utf-8")
    return why


def _record() -> str | None:
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as new:
            told = _run_samples(Path(new))
            missing = [use for use in USES if not (Path(new) / f"{use}.jsa").exists()]
            if missing:
                return f"no classes of {' and '.join(missing)} were written. {told}".strip()
            for old in (*folder.glob("*.jsa"), *folder.glob("*.failed")):
                old.unlink()
            for use in USES:
                (Path(new) / f"{use}.jsa").rename(archive(use))
    except (OSError, subprocess.SubprocessError, KafkaAssetsError) as error:
        return str(error)
    return None


def _run_samples(new: Path) -> str:
    """Run them in a process of their own, and give the last line that it says."""
    ours = ("KAFKA_ASSETS_", "DAGSTER_HOME")
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(ours) or name == "KAFKA_ASSETS_JARS"
    }
    # What runs once is not worth optimizing.
    env |= {RECORDING: str(new), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    program = "from kafka_assets.cli import main; main()"
    command = [sys.executable, "-c", program, "demo", "--once", "--events", str(EVENTS)]
    # A JVM ends after the process that started it, and holds its output until then.
    done = subprocess.run(
        command,
        env=env,
        cwd=new,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=TIMEOUT,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines and done.returncode else ""


def _folder() -> Path:
    return Path(sys.prefix) / "share" / "kafka-assets"


@functools.cache
def _fingerprint() -> str:
    """Names what the classes were loaded by and from: of another one they would be of no use."""
    try:
        home = Path(java_command()).resolve().parents[1]
        java = f"{home} {(home / 'release').read_text(encoding='utf-8')}"
    except (OSError, KafkaAssetsError):
        java = "unknown"
    spark = importlib.metadata.version("pyspark")
    return hashlib.sha256(f"{java} {spark} {lock_hash()}".encode()).hexdigest()[:12]


def main() -> int:
    """Serve the set-up: record the classes, and say why when that is not possible."""
    if recorded():
        return 0
    print(
        "Recording loaded classes, so that later JVMs start sooner: a minute or two ...", flush=True
    )
    why = record(again=False)
    if why is not None:
        print(f"      could not be done, so JVMs start as usual: {why}")
        print("      to try again: kafka-assets setup")
    return 0


if __name__ == "__main__":
    sys.exit(main())
