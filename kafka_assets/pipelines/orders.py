"""Orders of the shop: checked, then orders and revenue by hour."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import kafka_assets as ka

OWNERS = ("team:data-platform",)

orders = ka.kafka_topic(
    "orders",
    description="One message for each order.",
    owners=OWNERS,
)


@ka.streaming_table(layer="bronze", reset_allowed=False, owners=OWNERS)
def orders_bronze(orders: DataFrame) -> DataFrame:
    """Every message of the topic as it came, with its place in Kafka."""
    return orders


@ka.streaming_table(
    layer="silver", schema="orders.ddl", freshness=timedelta(minutes=10), owners=OWNERS
)
@ka.expect_all_or_drop(
    {
        "positive_amount": "amount > 0",
        "customer_known": "customer_id IS NOT NULL",
    }
)
@ka.expect("status_known", "status IN ('placed', 'paid', 'shipped', 'cancelled')")
def orders_silver(orders_bronze: DataFrame) -> DataFrame:
    """Orders that have a customer and a positive amount, each with the hour it was placed in."""
    return orders_bronze.withColumn("hour", F.date_trunc("hour", "order_time"))


@ka.windowed_table(layer="gold", event_time="order_time", window="1 hour", owners=OWNERS)
def orders_hourly(orders_silver: DataFrame) -> DataFrame:
    """Orders and revenue by hour; late orders correct their hour."""
    return orders_silver.groupBy("hour").agg(
        F.count("*").alias("orders"),
        F.sum("amount").alias("revenue"),
    )
