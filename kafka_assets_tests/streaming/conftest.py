"""Two topics whose events are (id, x), and a folder for files: what tests of sources share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kafka_assets as ka
from kafka_assets.settings import Settings
from kafka_assets_tests.helpers import Send, create_topic, produce


@pytest.fixture
def schemas(settings: Settings) -> None:
    assert settings.schemas is not None
    (settings.schemas / "event.ddl").write_text("id STRING, x INT", encoding="utf-8")


@pytest.fixture
def two_topics(settings: Settings, topic_name: str, schemas: None) -> tuple[Any, Any, Send]:
    """Two topics, `web` and `app`, and what sends (id, x) to one of them."""
    names = {"web": f"{topic_name}-web", "app": f"{topic_name}-app"}
    for name in names.values():
        create_topic(settings.kafka.bootstrap_servers, name)

    def send(topic: str, *events: tuple[str, int]) -> None:
        values = [json.dumps({"id": id_, "x": x}) for id_, x in events]
        produce(settings.kafka.bootstrap_servers, names[topic], values)

    topics = [ka.kafka_topic(names[name], name=name) for name in ("web", "app")]
    return topics[0], topics[1], send


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder
