"""Settings of a code location: where the lake is, how Kafka and Spark are reached.

One place for every knob that belongs to an installation rather than to a table. Values come from
arguments, else from environment variables with the prefix `KAFKA_ASSETS_` (nested with `__`, for
example `KAFKA_ASSETS_KAFKA__BOOTSTRAP_SERVERS`). What belongs to one table stands in its
declaration instead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FilePath,
    SecretStr,
    ValidationError,
)
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableSettings

from kafka_assets.errors import SettingsError

SECRET_WORDS = ("password", "secret", "token", "key", "jaas", "credential")
"""A Kafka client property whose name holds one of these words is never printed."""


def _absolute(value: str) -> str:
    if "://" in value:
        return value.rstrip("/")
    path = Path(value).expanduser()
    if not path.is_absolute():
        raise ValueError(
            f"{value!r} is a relative path; give an absolute path or a URL such as s3a://bucket/lake"
        )
    return str(path)


_HAVE_THEIR_OWN = {"bootstrap.servers": "bootstrap_servers", "group.id": "group_id"}
"""Client properties that are settings of their own."""


def _no_others(properties: dict[str, Any]) -> dict[str, Any]:
    for name, setting in _HAVE_THEIR_OWN.items():
        if name in properties:
            raise ValueError(f"{name} is the setting kafka.{setting}, and is said there alone")
    return properties


_Properties = AfterValidator(_no_others)


def _below(minimum: int) -> Any:
    return Field(ge=minimum)


class KafkaSettings(BaseModel):
    """How the broker is reached.

    Attributes:
        bootstrap_servers: Comma-separated host:port list.
        properties: Further client properties in librdkafka's names, which are Kafka's own for
            all security settings (`security.protocol`, `sasl.mechanism`, ...). Not for secrets.
        secrets: Client properties that must not be printed, such as `sasl.password`.
        secret_files: The same as files that hold nothing but the value, as containers mount them;
            read anew whenever a client is made.
        request_timeout_seconds: How long one admin call may take.
        group_id: Informational consumer group that the offsets of finished runs are published
            to, with the table's name appended; None publishes nothing. Never read back.
        max_offsets_per_trigger: Most records of one micro-batch, which is what a retry repeats.
            A table that decodes records or checks them holds its batch in memory, and takes a
            million at most. A table's own `max_rows_per_batch` wins over both.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap_servers: str = "127.0.0.1:9092"
    properties: Annotated[dict[str, str], _Properties] = Field(default_factory=dict)
    secrets: Annotated[dict[str, SecretStr], _Properties] = Field(default_factory=dict)
    secret_files: Annotated[dict[str, FilePath], _Properties] = Field(default_factory=dict)
    request_timeout_seconds: Annotated[float, Field(gt=0)] = 10.0
    group_id: str | None = "kafka-assets"
    max_offsets_per_trigger: Annotated[int, _below(1)] = 5_000_000

    def client_config(self) -> dict[str, str]:
        """Properties for a confluent-kafka client, secrets included; never log the result."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **self.properties,
            **{name: value.get_secret_value() for name, value in self.secrets.items()},
            **{name: _secret(name, file) for name, file in self.secret_files.items()},
        }


def _secret(name: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(
            f"the file of kafka.secret_files.{name}, {file}, cannot be read: {error.strerror}",
            fix="mount it, or correct KAFKA_ASSETS_KAFKA__SECRET_FILES",
        ) from None


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds something that must not be seen."""
    return any(word in name.lower() for word in SECRET_WORDS)


class SparkSettings(BaseModel):
    """Which Spark runs the tables.

    Attributes:
        master: Spark master of a classic session.
        remote: Spark Connect address (`sc://host:port`); when given, `master` is not used.
        driver_memory: Heap of the classic driver.
        conf: Further Spark settings; they win over the product's own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str = "local[*]"
    remote: str | None = None
    driver_memory: Annotated[str, Field(pattern=r"^\d+[kmgt]$")] = "2g"
    conf: dict[str, str] = Field(default_factory=dict)


class DeadLetterSettings(BaseModel):
    """What may become a dead letter, and how long it is kept.

    Attributes:
        max_share: A batch of which a larger share would die stops before it commits: one bad
            deployment must not empty a topic into the dead letters. A table's own
            `max_dead_share` wins.
        guarded_rows: Batches of fewer rows than this are not stopped.
        retention_days: Letters that were replayed or discarded are removed this many days after,
            each night by the schedule `dead_letters_purge_nightly`, or by
            `kafka-assets dlq purge`; open letters stay. None keeps all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    guarded_rows: Annotated[int, _below(1)] = 1000
    retention_days: Annotated[int, _below(0)] | None = None

    def share_of(self, own: float | None) -> float:
        """The share that holds for a table: its own, if it has one."""
        return self.max_share if own is None else own


class SensorSettings(BaseModel):
    """When the lag sensor starts a chain.

    Attributes:
        interval_seconds: How often the broker is asked for its end offsets.
        min_records: A chain starts when this many records of a topic wait ...
        max_age_seconds: ... or when the oldest waiting record is this old; None leaves age to
            the tables' freshness.
        backoff_first_seconds: Pause after a chain's first failure; doubles with each further one.
        backoff_most_seconds: Longest pause after failures.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    interval_seconds: Annotated[int, _below(1)] = 15
    min_records: Annotated[int, _below(1)] = 1
    max_age_seconds: Annotated[float, Field(gt=0)] | None = None
    backoff_first_seconds: Annotated[float, Field(gt=0)] = 60.0
    backoff_most_seconds: Annotated[float, Field(gt=0)] = 3600.0


class Settings(BaseSettings):
    """All settings of a code location.

    Attributes:
        lake: Root of all tables and checkpoints: an absolute path, or any Hadoop URL.
        schemas: Folder of the schema files; None means `schemas/` of the working folder, and
            the schema files shipped in the package where that has none.
        kafka: How the broker is reached.
        spark: Which Spark runs the tables.
        sensor: When the lag sensor starts a chain.
        dead_letters: What may become a dead letter, and how long it is kept.
        debug: Print stack traces and keep Spark's log lines.

    Raises:
        SettingsError: A value cannot be used; the message names the variable and the value.
    """

    model_config = SettingsConfigDict(
        env_prefix="KAFKA_ASSETS_", env_nested_delimiter="__", extra="ignore", frozen=True
    )

    lake: Annotated[str, AfterValidator(_absolute)] = Field(
        default_factory=lambda: str(Path.cwd() / "lake")
    )
    schemas: Path | None = None
    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    sensor: SensorSettings = Field(default_factory=SensorSettings)
    dead_letters: DeadLetterSettings = Field(default_factory=DeadLetterSettings)
    debug: bool = False

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(
                "; ".join(_explain(e) for e in error.errors(include_url=False)),
                fix="correct the value in the environment or in the call of Settings()",
            ) from None
        except UnreadableSettings as error:
            given = sorted(name for name in os.environ if name.startswith("KAFKA_ASSETS_"))
            raise SettingsError(
                f"{str(error).splitlines()[0]}: not JSON. Set are {', '.join(given)}",
                fix="write lists and mappings as JSON, such as "
                """KAFKA_ASSETS_KAFKA__PROPERTIES='{"client.id": "me"}'""",
            ) from None

    @property
    def local_lake(self) -> Path | None:
        """The lake as a local path, or None when it is elsewhere."""
        if self.lake.startswith("file:"):
            return Path(self.lake.removeprefix("file:").removeprefix("//"))
        return None if "://" in self.lake else Path(self.lake)

    @property
    def schema_folders(self) -> tuple[Path, ...]:
        """Folders searched for schema files, in order."""
        own = self.schemas if self.schemas is not None else Path.cwd() / "schemas"
        package = Path(__file__).parent
        return (own, package / "_schemas", package.parent / "schemas")


def _shown(value: object) -> str:
    """A value for people; of what holds several, which may be secrets, only their names."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: ..." for name in value) + "}"
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    return f"a {type(value).__name__}"


def _explain(error: Any) -> str:
    path = [str(part) for part in error["loc"]]
    variable = "KAFKA_ASSETS_" + "__".join(part.upper() for part in path)
    secret = any(is_secret(part) for part in path)
    value = "(not shown)" if secret else _shown(error.get("input"))
    set_by = f" (environment variable {variable})" if variable in os.environ else ""
    return f"setting {'.'.join(path)}{set_by} = {value}: {error['msg']}"
