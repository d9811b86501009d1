"""A pipeline with every kind of table, as a team would write it: for tests of what all must keep.

Importing it declares the tables; `build_graph([every_kind], settings)` gives the graph. Its topics
and the place of its Delta sink are named by the environment, because tests share a broker.
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import kafka_assets as ka

PREFIX = os.environ.get("EVERY_KIND_PREFIX", "every")
ARCHIVE = os.environ.get("EVERY_KIND_ARCHIVE", "/elsewhere/archive")

orders_topic = ka.kafka_topic(f"{PREFIX}-orders", name="orders_topic")
returns_topic = ka.kafka_topic(f"{PREFIX}-returns", name="returns_topic")
customers_topic = ka.kafka_topic(f"{PREFIX}-customers", name="customers_topic")
coupons = ka.file_source("coupons", "landing", format="csv", schema="code STRING, off INT")
countries = ka.external_table("countries", layer="silver", description="Kept by another team.")


@ka.streaming_table(layer="bronze")
def orders_raw(orders_topic: DataFrame) -> DataFrame:
    """Orders as they came."""
    return orders_topic


@ka.temporary_view()
def orders_with_value(orders_raw: DataFrame) -> DataFrame:
    """Orders that are no tombstones."""
    return orders_raw.filter("value IS NOT NULL")


@ka.streaming_table(layer="silver", schema="every_order.ddl")
@ka.expect_or_drop("positive", "amount > 0")
@ka.expect("customer_known", "customer IS NOT NULL")
def orders(orders_with_value: DataFrame) -> DataFrame:
    """Orders, decoded and checked."""
    return orders_with_value


movements = ka.create_streaming_table(
    "movements", layer="silver", expect_all={"has_id": "id IS NOT NULL"}
)


@ka.append_flow(target=movements)
def from_orders(orders: DataFrame) -> DataFrame:
    """What customers paid."""
    return orders.select("id", "customer", "amount", "_source")


@ka.append_flow(target=movements, schema="every_order.ddl")
def from_returns(returns_topic: DataFrame) -> DataFrame:
    """What they got back."""
    return returns_topic.select("id", "customer", (-F.col("amount")).alias("amount"), "_source")


@ka.append_flow(target=movements, once=True)
def from_before(countries: DataFrame) -> DataFrame:
    """What customers had when the table was begun: nothing."""
    nothing = F.lit(0).alias("amount")
    return countries.select(F.lit("before").alias("id"), "customer", nothing)


@ka.streaming_table(layer="bronze", schema="every_customer.ddl")
def customer_changes(customers_topic: DataFrame) -> DataFrame:
    """Changes to customers, in the order in which they came."""
    return customers_topic


@ka.latest_per_key(layer="silver", schema="every_customer.ddl")
def customers_now(customers_topic: DataFrame) -> DataFrame:
    """The newest record of each key of the topic."""
    return customers_topic


customers = ka.create_streaming_table("customers", layer="silver")
ka.create_auto_cdc_flow(
    target=customers,
    source=customer_changes,
    keys="id",
    sequence_by="seq",
    apply_as_deletes="op = 'delete'",
    except_column_list=["op"],
)

customer_states = ka.create_streaming_table("customer_states", layer="silver")
ka.create_auto_cdc_flow(
    target=customer_states,
    source=customer_changes,
    keys="id",
    sequence_by="seq",
    apply_as_deletes="op = 'delete'",
    except_column_list=["op", "seq"],
    stored_as_scd_type=2,
)


@ka.streaming_table(layer="gold", reads={"customers": "changes"})
def customer_feed(customers: DataFrame) -> DataFrame:
    """What happened to customers."""
    return customers.select("id", "name", F.col("_change_type").alias("what"))


@ka.streaming_table(layer="silver", reads={"countries": "static"})
def orders_abroad(orders: DataFrame, countries: DataFrame) -> DataFrame:
    """Orders with the country of their customer."""
    return orders.join(countries, "customer").select("id", "country", "amount", "_source")


@ka.streaming_table(layer="bronze")
@ka.expect("fits", "_rescued_data IS NULL")
def coupons_kept(coupons: DataFrame) -> DataFrame:
    """Coupons, from files that partners upload."""
    return coupons


@ka.streaming_table(layer="silver")
def orders_once(orders: DataFrame) -> DataFrame:
    """Each order once, also when its producer sent it twice."""
    return orders.withWatermark("at", "30 days").dropDuplicatesWithinWatermark(["id"])


@ka.windowed_table(layer="gold", event_time="at", window="1 hour")
def hourly(orders: DataFrame) -> DataFrame:
    """Orders of each hour; late ones correct it."""
    hour = F.date_trunc("hour", "at").alias("hour")
    return orders.groupBy(hour).agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))


@ka.streaming_table(layer="gold")
def closed_hours(orders: DataFrame) -> DataFrame:
    """Orders of each hour that is over for half a day."""
    hour = F.window("at", "1 hour").alias("hour")
    hours = orders.withWatermark("at", "12 hours").groupBy(hour).count()
    return hours.select(F.col("hour.start").alias("hour"), "count")


@ka.streaming_table(layer="silver")
def orders_with_twins(orders: DataFrame, orders_once: DataFrame) -> DataFrame:
    """Each order beside the one of its id that came first."""
    order = orders.withWatermark("at", "30 days").alias("o")
    first = orders_once.withWatermark("at", "30 days").alias("f")
    near = "f.at BETWEEN o.at - INTERVAL 2 DAYS AND o.at + INTERVAL 2 DAYS"
    return order.join(first, F.expr(f"o.id = f.id AND {near}")).select("o.id", "o.amount", "o.at")


@ka.streaming_table(layer="gold", keys="customer")
def spent(orders: DataFrame) -> DataFrame:
    """What each customer spent."""
    return orders.groupBy("customer").agg(F.sum("amount").alias("amount"))


@ka.materialized_view(layer="gold")
@ka.expect_row_count("not_empty", at_least=1)
@ka.expect_unique("one_row_a_customer", "customer")
def balances(movements: DataFrame) -> DataFrame:
    """What is left of it."""
    return movements.groupBy("customer").agg(F.sum("amount").alias("amount"))


alerts = ka.create_sink("alerts", "kafka", {"topic": f"{PREFIX}-alerts"})


archive = ka.create_sink("archive", "delta", {"path": ARCHIVE})


@ka.append_flow(target=archive)
def all_orders(orders: DataFrame) -> DataFrame:
    """Orders for another team."""
    return orders.select("id", "amount")


@ka.append_flow(target=alerts)
def large_orders(orders: DataFrame) -> DataFrame:
    """Orders that somebody should look at."""
    return orders.filter("amount > 900").select(
        F.col("id").alias("key"), F.to_json(F.struct("id", "amount")).alias("value")
    )
