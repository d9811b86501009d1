"""Settings come from one place, are checked when made, and never show a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_assets.errors import SettingsError
from kafka_assets.settings import Settings


def test_the_environment_sets_nested_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_LAKE", "s3a://bucket/lake/")
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__BOOTSTRAP_SERVERS", "broker:9093")
    monkeypatch.setenv("KAFKA_ASSETS_SPARK__DRIVER_MEMORY", "4g")
    settings = Settings()
    assert settings.lake == "s3a://bucket/lake"
    assert settings.local_lake is None
    assert settings.kafka.bootstrap_servers == "broker:9093"
    assert settings.spark.driver_memory == "4g"


def test_a_relative_lake_is_refused_with_its_value() -> None:
    with pytest.raises(SettingsError, match="'some/lake' is a relative path"):
        Settings(lake="some/lake")


def test_a_wrong_value_is_named_with_its_environment_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_SENSOR__MIN_RECORDS", "many")
    with pytest.raises(SettingsError) as raised:
        Settings()
    assert "sensor.min_records" in str(raised.value)
    assert "'many'" in str(raised.value)


def test_secrets_reach_the_client_and_nothing_else() -> None:
    settings = Settings(lake="/lake", kafka={"secrets": {"sasl.password": "hunter2"}})
    assert settings.kafka.client_config()["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(settings) + str(settings) + settings.model_dump_json()


def test_a_wrong_secret_is_not_shown() -> None:
    with pytest.raises(SettingsError) as raised:
        Settings(lake="/lake", kafka={"secrets": {"sasl.password": ["hunter2"]}})
    assert "hunter2" not in str(raised.value)


def test_own_schemas_come_before_the_shipped_ones(tmp_path: Path) -> None:
    assert Settings(lake="/lake", schemas=tmp_path).schema_folders[0] == tmp_path


def test_a_secret_in_a_group_of_settings_that_do_not_exist_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__SASL__PASSWORD", "hunter2")
    with pytest.raises(
        SettingsError, match=r"setting kafka\.sasl = \{password: \.\.\.\}"
    ) as refused:
        Settings(lake="/lake")
    assert "hunter2" not in str(refused.value)


def test_what_is_no_json_in_the_environment_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__SECRETS", "sasl.password=hunter2")
    with pytest.raises(SettingsError, match=r"Set are .*KAFKA_ASSETS_KAFKA__SECRETS") as refused:
        Settings(lake="/lake")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("group", ["properties", "secrets"])
@pytest.mark.parametrize("name", ["group.id", "bootstrap.servers"])
def test_a_client_property_that_is_a_setting_of_its_own_is_refused(group: str, name: str) -> None:
    """Else Spark and the admin client would ask two brokers, or Spark join a group of consumers."""
    with pytest.raises(SettingsError, match=f"{name} is the setting kafka") as raised:
        Settings(lake="/lake", kafka={group: {name: "hunter2"}})
    assert "hunter2" not in str(raised.value)
