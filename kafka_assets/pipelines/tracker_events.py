"""Heart-rate events of fitness trackers: cleaned, then summed up by hour and model."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import kafka_assets as ka

OWNERS = ("team:data-platform",)

tracker_events = ka.kafka_topic(
    "tracker-events",
    description="One message for each heart-rate measurement of a tracker.",
    owners=OWNERS,
)


@ka.streaming_table(layer="bronze", reset_allowed=False, owners=OWNERS)
def tracker_bronze(tracker_events: DataFrame) -> DataFrame:
    """Every message of the topic as it came, with its place in Kafka."""
    return tracker_events


@ka.streaming_table(
    layer="silver",
    schema="tracker_events.json",
    freshness=timedelta(minutes=10),
    owners=OWNERS,
)
@ka.expect_or_drop("plausible_heart_rate", "heart_bpm BETWEEN 30 AND 220")
@ka.expect("model_known", "model IS NOT NULL")
def tracker_silver(tracker_bronze: DataFrame) -> DataFrame:
    """Measurements with a plausible heart rate, each with the hour that it falls into."""
    return tracker_bronze.withColumn("hour", F.date_trunc("hour", "time"))


@ka.windowed_table(layer="gold", event_time="time", window="1 hour", owners=OWNERS)
def tracker_hourly(tracker_silver: DataFrame) -> DataFrame:
    """Heart rate and energy by hour and model; late measurements correct their hour."""
    return tracker_silver.groupBy("hour", "model").agg(
        F.count("*").alias("measurements"),
        F.avg("heart_bpm").alias("mean_bpm"),
        F.max("heart_bpm").alias("highest_bpm"),
        F.sum("kcal").alias("kcal"),
    )
