"""The demo's settings: its own lake and its own broker, whatever the environment says of others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kafka_assets.settings import KafkaSettings, Settings

_OF_A_BROKER = "KAFKA_ASSETS_KAFKA"


def settings_of(lake: Path, bootstrap: str) -> Settings:
    """Settings for a lake and the embedded broker.

    Args:
        lake: Where the tables go.
        bootstrap: Where the broker answers.
    """
    # Security settings and secrets of another cluster are not for this broker.
    kafka = KafkaSettings(bootstrap_servers=bootstrap)
    return Settings(lake=str(lake)).model_copy(update={"kafka": kafka})


def environment(settings: Settings) -> Mapping[str, str]:
    """The environment in which other processes have these settings."""
    kept = {k: v for k, v in os.environ.items() if not k.upper().startswith(_OF_A_BROKER)}
    return {
        **kept,
        "KAFKA_ASSETS_LAKE": settings.lake,
        "KAFKA_ASSETS_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
    }
