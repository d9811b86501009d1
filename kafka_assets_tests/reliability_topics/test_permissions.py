"""A broker that refuses its user says so by name: nothing is lost, and a right login goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pydantic import SecretStr

from kafka_assets.demo import broker_config
from kafka_assets.demo.broker import Broker
from kafka_assets.demo.ports import free_ports
from kafka_assets.errors import SourceError
from kafka_assets.streaming.query import translated
from kafka_assets_tests.reliability_topics.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.settings import Settings

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
STRICT = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.guarded.plain.sasl.jaas.config": f'{LOGIN} required user_reader="right";',
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    """A broker that asks who somebody is, at an address of its own, and what they may."""
    guarded = next(free_ports())
    made = broker_config.properties

    def properties(storage: Path, port: int, controller_port: int) -> Mapping[str, object]:
        own = made(storage, port, controller_port)
        mine = f"GUARDED://127.0.0.1:{guarded}"
        return {
            **own,
            **STRICT,
            "listeners": f"{own['listeners']},{mine}",
            "advertised.listeners": f"{own['advertised.listeners']},{mine}",
            "listener.security.protocol.map": f"{own['listener.security.protocol.map']},"
            "GUARDED:SASL_PLAINTEXT",
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafka_assets.demo.broker.properties", properties)
        with Broker(tmp_path_factory.mktemp("strict")) as running:
            yield running, f"127.0.0.1:{guarded}"


@pytest.fixture
def chain(
    spark: SparkSession, settings: Settings, strict: tuple[Broker, str], topic_name: str
) -> Chain:
    changed = {
        "bootstrap_servers": strict[0].bootstrap,
        "group_id": "lag",
        "request_timeout_seconds": 5,
    }
    there = settings.model_copy(update={"kafka": settings.kafka.model_copy(update=changed)})
    made = Chain(spark, there, topic_name)
    made.send(b'{"id":1}')
    return made


def deny(chain: Chain, kind: ResourceType, name: str, operation: AclOperation) -> None:
    deny = AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        operation,
        AclPermissionType.DENY,
    )
    client = AdminClient({"bootstrap.servers": chain.bootstrap, "log_level": 0})
    for done in client.create_acls([deny]).values():
        done.result(20)


def logged_in(chain: Chain, address: str, password: str) -> Any:
    """The same lake, asked for with a login."""
    client = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
    }
    secrets = {"sasl.password": SecretStr(password)}
    changed = {"bootstrap_servers": address, "properties": client, "secrets": secrets}
    kafka = chain.settings.kafka.model_copy(update=changed)
    return chain.settings.model_copy(update={"kafka": kafka})


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.DESCRIBE])
def test_a_topic_that_may_not_be_read_is_named(chain: Chain, operation: AclOperation) -> None:
    deny(chain, ResourceType.TOPIC, chain.topic, operation)
    with pytest.raises(SourceError, match=f"no permission for '{chain.topic}'") as raised:
        chain.run("direct")
    assert not raised.value.transient
    assert "allow Describe and Read on the topic" in str(raised.value.fix)


def test_a_permission_that_is_taken_in_the_middle_of_a_run_is_named(chain: Chain) -> None:
    text = "Caused by: org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized"
    error = translated(text, chain.graph.tables["direct"])
    assert isinstance(error, SourceError)
    assert "the broker refused this user (TopicAuthorizationException: Not auth" in error.what


def test_a_group_that_may_not_be_written_costs_no_figure(chain: Chain) -> None:
    deny(chain, ResourceType.GROUP, "lag.direct", AclOperation.READ)
    with pytest.warns(UserWarning, match="offsets are not published for lag tools"):
        report = chain.run("direct")
    assert (report.kept, report.lag) == (1, 0)


def test_a_wrong_password_is_named_and_not_shown_and_the_right_one_goes_on(
    chain: Chain, strict: tuple[Broker, str]
) -> None:
    chain.settings = logged_in(chain, strict[1], "wrong-one")
    with pytest.raises(SourceError, match="refused the login of this user") as raised:
        chain.run("direct")
    assert not raised.value.transient
    assert "wrong-one" not in str(raised.value)
    chain.settings = logged_in(chain, strict[1], "right")
    assert chain.run("direct").kept == 1
