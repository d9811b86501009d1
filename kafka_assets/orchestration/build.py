"""The only assembly: pipeline modules -> one `Definitions`.

Loading starts no JVM and touches no network. What is wrong with a declaration is raised here,
before anything runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import dagster as dg

from kafka_assets.graph import Graph, build_graph
from kafka_assets.orchestration.assets import (
    RunTable,
    files_asset,
    outside_asset,
    table_asset,
    topic_asset,
    view_asset,
)
from kafka_assets.orchestration.automation import automation_sensor
from kafka_assets.orchestration.folders import new_files_sensor
from kafka_assets.orchestration.jobs import operation_jobs, purge_schedule
from kafka_assets.orchestration.names import chains_of, folder_chains_of, keys_of
from kafka_assets.orchestration.resources import SPARK, spark_resource
from kafka_assets.orchestration.sensors import Admin, kafka_lag_sensor
from kafka_assets.settings import KafkaSettings, Settings
from kafka_assets.sources.kafka import KafkaAdmin
from kafka_assets.streaming.run import run_table


def build_defs(
    modules: ModuleType | Iterable[ModuleType], settings: Settings | None = None
) -> dg.Definitions:
    """Make the Dagster definitions of pipelines.

    Args:
        modules: Pipeline modules; a package stands for all modules in it.
        settings: The installation's settings; by default those of the environment.

    Returns:
        Assets, checks, sensors and resources, for a code location to load.

    Raises:
        DeclarationError: A declaration is wrong; names it, its file, line and the fix.
        SettingsError: A setting cannot be used.
    """
    settings = settings if settings is not None else Settings()
    graph = build_graph(modules, settings)
    return graph_defs(graph, settings)


def graph_defs(
    graph: Graph,
    settings: Settings,
    *,
    run: RunTable = run_table,
    spark: Any = None,
    admin: Callable[[KafkaSettings], Admin] = KafkaAdmin,
    clock: Callable[[], float] = time.time,
) -> dg.Definitions:
    """Make the Dagster definitions of a graph.

    Args:
        graph: The topics and tables.
        settings: The installation's settings.
        run: What brings a table up to date.
        spark: The Spark resource; by default `resources.spark_resource`.
        admin: Makes what asks the broker.
        clock: What `kafka_lag` takes for the time.
    """
    topics = [topic_asset(topic, settings) for topic in graph.topics.values()]
    topics += [outside_asset(outside) for outside in graph.outside.values()]
    topics += [files_asset(files) for files in graph.files.values()]
    topics += [view_asset(view) for view in graph.views.values()]
    tables = [table_asset(node, graph, settings, run=run) for node in graph.tables.values()]
    keys = [key for node in graph.tables.values() for key in keys_of(node)]
    sensors: list[dg.SensorDefinition] = []
    if keys:
        sensors.append(automation_sensor(keys))
    if chains_of(graph):
        sensors.append(kafka_lag_sensor(graph, settings, admin=admin, clock=clock))
    if folder_chains_of(graph):
        sensors.append(new_files_sensor(graph, settings, clock=clock))
    return dg.Definitions(
        assets=[*topics, *tables],
        sensors=sensors,
        schedules=[purge_schedule(settings)] if keys else [],
        jobs=operation_jobs(graph, settings) if keys else [],
        resources={SPARK: spark_resource(settings) if spark is None else spark},
        # One JVM for a run, not one for each table.
        executor=dg.in_process_executor,
    )
