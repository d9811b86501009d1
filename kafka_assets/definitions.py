"""What Dagster loads (`workspace.yaml` points here): all pipelines of `kafka_assets.pipelines`."""

from __future__ import annotations

import kafka_assets.pipelines
from kafka_assets.orchestration.build import build_defs

defs = build_defs(kafka_assets.pipelines)
