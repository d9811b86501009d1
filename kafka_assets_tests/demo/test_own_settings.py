"""The demo keeps to its own broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_assets.demo.own_settings import environment, settings_of


def test_another_cluster_in_the_environment_is_not_the_demos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__BOOTSTRAP_SERVERS", "theirs:9092")
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__PROPERTIES", '{"security.protocol": "SASL_SSL"}')
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__SECRETS", '{"sasl.password": "hunter2"}')
    monkeypatch.setenv("KAFKA_ASSETS_DEBUG", "true")
    settings = settings_of(tmp_path, "127.0.0.1:1")
    assert settings.kafka.client_config()["bootstrap.servers"] == "127.0.0.1:1"
    assert "hunter2" not in str(settings.kafka.client_config())
    assert (settings.kafka.properties, settings.debug) == ({}, True)
    given = environment(settings)
    assert {k: v for k, v in given.items() if "KAFKA__" in k} == {
        "KAFKA_ASSETS_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"
    }
