"""The Spark session as a Dagster resource: lazy, one for each process, never stopped.

For runs only. A sensor that took it would start a JVM in the daemon.
"""

from __future__ import annotations

from typing import Any

from dagster_pyspark import LazyPySparkResource

from kafka_assets.settings import Settings
from kafka_assets.streaming.session import spark_session

SPARK = "spark"
"""The resource's key."""


def spark_resource(settings: Settings) -> LazyPySparkResource:
    """A `LazyPySparkResource` whose session `streaming.session` makes.

    The plain one knows only config keys: it cannot choose between a master and a Connect server,
    check Java and the jars with a readable message, or keep secrets out of the UI, which prints a
    resource's config. As it is one, `LazyPySparkResource(spark_config=...)` can stand in for it.
    """

    # Dagster copies resources by their config alone, so the settings are enclosed, not attributes.
    class SparkResource(LazyPySparkResource):
        spark_config: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field

        @property
        def spark_session(self) -> Any:
            return spark_session(settings)

        @property
        def spark_context(self) -> Any:
            return self.spark_session.sparkContext

    return SparkResource()
