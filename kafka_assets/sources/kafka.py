"""Kafka as a source: what a topic holds now, how Spark reads it, and published offsets.

Admin calls go through confluent-kafka with their own timeout and never consume. How bytes become
columns is `decoding`'s; whether a checkpoint fits a topic is `streaming.fence`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafka_assets.declarations import Topic
from kafka_assets.errors import SourceError
from kafka_assets.settings import KafkaSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "key",
    "value",
    "headers",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType AS timestamp_type",
    # Through an array, because Spark writes a time that stands alone into the code which it
    # generates, and would compile that code anew for each batch.
    "transform(array(current_timestamp()), now -> now)[0] AS ingested_at",
)
FRAME_DDL = (
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING, "
    "partition INT, offset BIGINT, timestamp TIMESTAMP, timestamp_type INT, ingested_at TIMESTAMP"
)
"""The frame that a table gets for a topic."""


@dataclass(frozen=True)
class TopicState:
    """What a topic holds now.

    Attributes:
        topic: Its name at the broker.
        topic_id: Kafka's own id of it; another one after the topic was deleted and recreated.
        earliest: Partition -> first offset that is still there.
        end: Partition -> the offset after the last record.
    """

    topic: str
    topic_id: str
    earliest: Mapping[int, int]
    end: Mapping[int, int]


class KafkaAdmin:
    """Asks a broker about topics. Cheap to make; connects on first use.

    Args:
        settings: How the broker is reached, and the time limit of one call.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._timeout = settings.request_timeout_seconds
        self._refused: list[KafkaError] = []
        config: dict[str, Any] = {
            **settings.client_config(),
            "client.id": "kafka-assets-admin",
            "log_level": 0,
            "socket.timeout.ms": int(self._timeout * 1000),
            # A call whose login is refused only ends with its time.
            "error_cb": self._refused.append,
        }
        self._client = AdminClient(config)

    def describe(self, topics: Iterable[str]) -> dict[str, TopicState]:
        """Ask for the ids, partitions, earliest and end offsets of topics, in batched calls.

        Args:
            topics: Names at the broker.

        Returns:
            Name -> state.

        Raises:
            SourceError: The broker does not answer, or a topic does not exist or may not be
                described.
        """
        names = sorted(set(topics))
        if not names:
            return {}
        futures = self._client.describe_topics(
            TopicCollection(names), request_timeout=self._timeout
        )
        described = {name: self._result(future, name) for name, future in futures.items()}
        partitions = [
            TopicPartition(name, info.id) for name, d in described.items() for info in d.partitions
        ]
        earliest = self.offsets(partitions, OffsetSpec.earliest())
        end = self.offsets(partitions, OffsetSpec.latest())
        return {
            name: TopicState(
                topic=name,
                topic_id=str(described[name].topic_id),
                earliest={p: o for (t, p), o in earliest.items() if t == name},
                end={p: o for (t, p), o in end.items() if t == name},
            )
            for name in names
        }

    def offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[tuple[str, int], int]:
        """Offsets of many partitions in one call; -1 where no record fits a time.

        An open transaction's records do not count: Spark cannot read them yet.
        """
        request = dict.fromkeys(partitions, spec)
        if not request:
            return {}
        futures = self._client.list_offsets(
            request,
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self._timeout,
        )
        return {
            (p.topic, p.partition): int(self._result(future, f"{p.topic}/{p.partition}").offset)
            for p, future in futures.items()
        }

    def waiting_since(self, offsets: Mapping[tuple[str, int], int], before_ms: int) -> set[str]:
        """Topics that hold a record at or beyond `offsets` that is older than `before_ms`.

        Args:
            offsets: (topic, partition) -> first offset not yet read.
            before_ms: Milliseconds since 1970-01-01 UTC.
        """
        partitions = [TopicPartition(topic, partition) for topic, partition in offsets]
        first_young = self.offsets(partitions, OffsetSpec.for_timestamp(before_ms))
        end = self.offsets(partitions, OffsetSpec.latest())
        return {
            topic
            for (topic, partition), saved in offsets.items()
            if saved < end[topic, partition] and not 0 <= first_young[topic, partition] <= saved
        }

    def publish_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set the offsets of an informational consumer group, for lag tools to see.

        Raises:
            SourceError: The broker refused it.
        """
        positions = [TopicPartition(topic, p, offset) for (topic, p), offset in offsets.items()]
        futures = self._client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, positions)], request_timeout=self._timeout
        )
        for future in futures.values():
            self._result(future, f"consumer group {group}")

    def _result(self, future: Any, subject: str) -> Any:
        try:
            return future.result(timeout=self._timeout + 5)
        except KafkaException as error:
            raise self._translated(error.args[0], subject) from None
        except TimeoutError:
            raise self._unreachable("no answer in time") from None

    def _translated(self, error: KafkaError, subject: str) -> SourceError:
        code = error.code()
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return SourceError(
                f"the topic {subject!r} does not exist at {self._settings.bootstrap_servers}",
                fix=f"create it, or correct ka.kafka_topic({subject!r})",
            )
        if code in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        ):
            return SourceError(
                f"no permission for {subject!r} at {self._settings.bootstrap_servers}: "
                f"{error.name()}",
                fix="allow Describe and Read on the topic (and Read on the group) to this user",
            )
        if code in (
            KafkaError._TIMED_OUT,
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError.REQUEST_TIMED_OUT,
        ):
            return self._unreachable(error.name())
        return SourceError(f"{subject!r}: the broker answered {error.name()}: {error.str()}")

    def _unreachable(self, why: str) -> SourceError:
        self._client.poll(0)
        for error in self._refused:
            if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
                return SourceError(
                    f"the broker at {self._settings.bootstrap_servers} refused the login of this "
                    f"user ({error.str()}); nothing was read and nothing written",
                    fix="correct KAFKA_ASSETS_KAFKA__PROPERTIES and KAFKA_ASSETS_KAFKA__SECRETS "
                    "(or SECRET_FILES); then run again",
                )
        return SourceError(
            f"the broker at {self._settings.bootstrap_servers} cannot be reached ({why}); nothing "
            "was read and nothing written",
            fix="start the broker, or set KAFKA_ASSETS_KAFKA__BOOTSTRAP_SERVERS; then run again",
            transient=True,
        )


def read_stream(
    session: SparkSession, topic: Topic, settings: KafkaSettings, *, most: int | None = None
) -> DataFrame:
    """The topic as a streaming frame (`FRAME_DDL`), from the earliest offset on.

    Records of aborted transactions are left out, and lost offsets stop the stream.

    Args:
        session: Where it is read.
        topic: The topic.
        settings: The broker.
        most: Records of a micro-batch at most; by default the setting's.
    """
    reader = session.readStream.format("kafka").options(**spark_options(topic, settings))
    if most is not None:
        reader = reader.option("maxOffsetsPerTrigger", most)
    return reader.load().selectExpr(*COLUMNS)


def empty_frame(session: SparkSession) -> DataFrame:
    """An empty frame with a topic's columns."""
    return session.createDataFrame([], FRAME_DDL)


def spark_options(topic: Topic, settings: KafkaSettings) -> dict[str, str]:
    """Options of Spark's Kafka source; they may hold secrets, so never log them.

    Security properties are given in librdkafka's names and are translated where Java's differ.
    """
    client = {
        name: value
        for name, value in settings.client_config().items()
        if name not in ("bootstrap.servers", *_LIBRDKAFKA_ONLY)
    }
    client.update(_java_security(settings.client_config()))
    timeout = int(settings.request_timeout_seconds * 1000)
    return {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "subscribe": topic.topic,
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        "groupIdPrefix": f"kafka-assets-{topic.name}",
        "maxOffsetsPerTrigger": str(settings.max_offsets_per_trigger),
        # A broker that is gone ends the run after about a minute, not after ten.
        "kafka.request.timeout.ms": str(timeout),
        "kafka.default.api.timeout.ms": str(2 * timeout),
        "kafkaConsumer.pollTimeoutMs": str(6 * timeout),
        "fetchOffset.numRetries": "3",
        "fetchOffset.retryIntervalMs": "1000",
        # Kafka's default of 500 records a poll costs a sixth of the time of a bronze table.
        "kafka.max.poll.records": "5000",
        **{f"kafka.{name}": value for name, value in client.items()},
    }


_LIBRDKAFKA_ONLY = (
    "sasl.username",
    "sasl.password",
    "sasl.mechanisms",
    "ssl.ca.location",
)


def producer_options(sink: Mapping[str, str], settings: KafkaSettings) -> dict[str, str]:
    """Options of Spark's Kafka writer; they may hold secrets, so never log them.

    Args:
        sink: `topic`, and properties that begin with `kafka.`. With `kafka.bootstrap.servers` the
            sink is at a broker of its own, which is not told the secrets of ours.
        settings: The broker of the topics.
    """
    given = {name: value for name, value in sink.items() if name != "topic"}
    own = "kafka.bootstrap.servers" in given
    ours = {"kafka.bootstrap.servers": settings.bootstrap_servers}
    client = {} if own else settings.client_config()
    security = {
        name: value
        for name, value in client.items()
        if name.startswith(("security.", "sasl.", "ssl.")) and name not in _LIBRDKAFKA_ONLY
    }
    security |= _java_security(client)
    return {
        **({} if own else ours),
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        **{f"kafka.{name}": value for name, value in security.items()},
        **given,
        "topic": sink["topic"],
    }


def _java_security(client: Mapping[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    mechanism = client.get("sasl.mechanism", client.get("sasl.mechanisms"))
    if mechanism is not None:
        java["sasl.mechanism"] = mechanism
    if "sasl.username" in client and mechanism is not None:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        java["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required "
            f"username={_quoted(client['sasl.username'])} "
            f"password={_quoted(client.get('sasl.password', ''))};"
        )
    if "ssl.ca.location" in client:
        java["ssl.truststore.type"] = "PEM"
        java["ssl.truststore.location"] = client["ssl.ca.location"]
    return java


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
