"""The Spark session of a process: made once, shared by all tables, never stopped.

Settings of the engine that hold for every table are here and nowhere else.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_assets import class_archive
from kafka_assets.errors import RunFailed
from kafka_assets.jars import java_command, spark_jars
from kafka_assets.settings import Settings, is_secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = {
    "spark.app.name": "kafka_assets",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    # Half the bytes of INT96, and with minimum and maximum in each file.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A batch is kept for seconds: compressing it costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # A process with many tables would compile the same code over and over with room for 100.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Never used, and made all the same: not in the folder that one stands in.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "kafka-assets-warehouse"),
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.stopTimeout": "60000",
    "spark.sql.streaming.stopActiveRunOnRestart": "false",
    # Each commit reads the table's list of files: one task, where Delta would start fifty.
    "spark.databricks.delta.snapshotPartitions": "1",
    # Columns would note the line that makes each of them, for messages that are not shown whole:
    # a quarter of the time that it takes to say what decoding is.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Options named here are not shown in plans and logs; they can hold a broker's password.
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|jaas|access[.]?key|credential",
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|jaas|access[.]?key",
}
"""What the product sets on every session; `settings.spark.conf` wins over it."""

JVM_FLAGS = "spark.driver.extraJavaOptions"
LOGGING = Path(__file__).with_name("log4j2.properties")

# What starts a run is called a few thousand times, which HotSpot takes for code worth optimizing:
# nearly half the CPU time of a run of few rows. Twenty times its defaults leaves the optimizing
# compiler to what is called for each row.
PATIENT_COMPILER = (
    "-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000 "
    "-XX:Tier4CompileThreshold=300000 -XX:Tier4BackEdgeThreshold=800000"
)

_lock = threading.Lock()
_conf_lock = threading.Lock()


def session_conf(settings: Settings) -> dict[str, Any]:
    """All Spark settings of a session, as a Connect server needs them too."""
    jars = ",".join(str(jar) for jar in spark_jars())
    level = "warn" if settings.debug else "off"
    return {
        **CONF,
        "spark.jars": jars,
        "spark.driver.memory": settings.spark.driver_memory,
        # Strict decoding makes generated methods that HotSpot would leave interpreted.
        "spark.executor.extraJavaOptions": "-XX:-DontCompileHugeMethods",
        JVM_FLAGS: "-XX:+UseParallelGC -XX:-DontCompileHugeMethods "
        f"{PATIENT_COMPILER} "
        f"-Dkafka_assets.log={level} "
        f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        **settings.spark.conf,
    }


def spark_session(settings: Settings) -> SparkSession:
    """The session of this process; started on the first call, found again on later ones.

    Args:
        settings: Which Spark to use.

    Returns:
        A classic session, or a Spark Connect session when `settings.spark.remote` is given.

    Raises:
        JarsMissing: The connectors' jars are not on this machine.
        RunFailed: Java is missing, or the Connect server does not answer.
    """
    from pyspark.sql import SparkSession

    with _lock:
        if settings.spark.remote is not None:
            return _connect(SparkSession, settings)
        os.environ.setdefault("JAVA_HOME", _java_home())
        # Workers must be this Python: another one on the PATH may lack what a function needs.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        conf = session_conf(settings)
        # Only here: a Connect server has no such file, or another one.
        flags = " ".join((*class_archive.options("spark"), conf[JVM_FLAGS]))
        conf |= {JVM_FLAGS: flags}
        seen = {name: value for name, value in conf.items() if not is_secret(name)}
        builder = SparkSession.builder.master(settings.spark.master).config(map=seen)
        with _out_of_sight({n: v for n, v in conf.items() if n not in seen}):
            return builder.getOrCreate()


@contextmanager
def conf_of_a_run(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set Spark settings of one run: while its query starts, which keeps them, or its view runs.

    Nothing else starts in this session meanwhile, whether or not it has settings of its own.
    """
    with _conf_lock, ExitStack() as restored:
        for name, value in conf.items():
            old: str | None = session.conf.get(name, None)
            session.conf.set(name, value)
            if old is None:
                restored.callback(session.conf.unset, name)
            else:
                restored.callback(session.conf.set, name, old)
        yield


@contextmanager
def _out_of_sight(secrets: Mapping[str, str]) -> Iterator[None]:
    """Hand settings to the JVM in a file of this user's own, not in its command line.

    The command line of a process is everybody's to read.
    """
    if not secrets:
        yield
        return
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    with tempfile.NamedTemporaryFile("w", prefix="kafka-assets-", suffix=".conf") as file:
        # Made by mkstemp: readable by this user alone, and gone when the session is up.
        for name, value in secrets.items():
            file.write(f"{name}={_property(value)}\n")
        file.flush()
        os.environ["PYSPARK_SUBMIT_ARGS"] = (
            f"--properties-file {file.name} {before or 'pyspark-shell'}"
        )
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYSPARK_SUBMIT_ARGS"]
            else:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _property(value: str) -> str:
    """A value as Java's properties files write it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _connect(session_type: type[SparkSession], settings: Settings) -> SparkSession:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    remote = str(settings.spark.remote)
    try:
        builder: Any = session_type.builder
        remote_session: Any = builder.remote(remote).getOrCreate()
        # The default waits ten minutes for a server that is gone; this, about one.
        patience = DefaultPolicy(max_retries=9, max_backoff=10_000)
        remote_session.client.set_retry_policies([patience])
        remote_session.conf.set("spark.sql.session.timeZone", "UTC")
        session: SparkSession = remote_session
    except Exception as error:
        raise RunFailed(
            f"the Spark Connect server at {remote} does not answer: {error}",
            fix="start it, or correct KAFKA_ASSETS_SPARK__REMOTE",
        ) from error
    return session


def _java_home() -> str:
    return str(Path(java_command()).resolve().parents[1])
