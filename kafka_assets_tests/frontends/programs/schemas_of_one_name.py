"""Shop orders, published into one schema for each quality."""
import dlt
from pyspark.sql import functions as F

KAFKA = {"kafka.bootstrap.servers": "broker-1.shop.internal:9092", "subscribe": "shop-orders"}


@dlt.table(name="bronze.orders", comment="Order events as they came")
def orders_bronze():
    raw = spark.readStream.format("kafka").options(**KAFKA).load()
    return raw.select(F.from_json(F.col("value").cast("string"), "id STRING, amount INT").alias("o"))


@dlt.table(name="silver.orders")
@dlt.expect_or_drop("paid", "amount > 0")
def orders_silver():
    return spark.readStream.table("bronze.orders").select("o.*")


@dlt.table(name="gold.orders")
def orders_gold():
    return spark.sql(
        """
        SELECT s.id, s.amount, count(*) AS events
        FROM shop.silver.orders s JOIN bronze.orders b ON b.o.id = s.id
        GROUP BY s.id, s.amount
        """
    )


dlt.create_streaming_table("gold.audit")


@dlt.append_flow(target="gold.audit")
def audited():
    return dlt.read_stream("silver.orders").select("id")
