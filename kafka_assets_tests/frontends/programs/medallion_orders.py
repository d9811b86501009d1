import dlt
from pyspark.sql.functions import *
from pyspark.sql.types import *

KAFKA = spark.conf.get("shop.kafka.bootstrap", "broker-1.shop.internal:9092")

order_schema = StructType([
    StructField("order_id", StringType(), False),
    StructField("customer_id", StringType()),
    StructField("amount", DoubleType()),
    StructField("status", StringType()),
    StructField("order_ts", TimestampType()),
])


@dlt.table(
    name="orders_raw",
    comment="Every order event as it arrived from Kafka",
    table_properties={"quality": "bronze", "pipelines.reset.allowed": "false"},
)
def orders_raw():
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", KAFKA)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .select(col("value").cast("string").alias("payload"), "topic", "timestamp")
    )


@dlt.table(
    comment="Orders that can be trusted",
    table_properties={"quality": "silver"},
    partition_cols=["order_date"],
)
@dlt.expect_or_drop("valid_amount", "amount > 0")
@dlt.expect("known_customer", "customer_id IS NOT NULL")
@dlt.expect_or_fail("has_id", "order_id IS NOT NULL")
def orders_clean():
    return (
        dlt.read_stream("orders_raw")
        .select(from_json("payload", order_schema).alias("o"))
        .select("o.*")
        .withColumn("order_date", to_date("order_ts"))
    )


@dlt.table(comment="Revenue by day", table_properties={"quality": "gold"})
def daily_revenue():
    return (
        dlt.read("orders_clean")
        .groupBy("order_date")
        .agg(sum("amount").alias("revenue"), countDistinct("customer_id").alias("customers"))
    )


@dlt.table(comment="The customers that spend most")
def top_customers():
    spent = dlt.read("orders_clean").groupBy("customer_id").agg(sum("amount").alias("spent"))
    return spent.orderBy(desc("spent")).limit(100)
