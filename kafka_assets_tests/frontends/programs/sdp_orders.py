from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json

spark = SparkSession.active()


@dp.table(name="orders_bronze", comment="Order events")
def ingest_orders() -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "orders")
        .load()
    )


@dp.temporary_view
def orders_parsed() -> DataFrame:
    parsed = from_json(col("value").cast("string"), "id STRING, state STRING, amount DOUBLE")
    return spark.readStream.table("orders_bronze").select(parsed.alias("o")).select("o.*")


@dp.table(partition_cols=["state"])
def orders_silver() -> DataFrame:
    return spark.readStream.table("orders_parsed").where("amount IS NOT NULL")


@dp.materialized_view(comment="Orders by state")
def orders_by_state() -> DataFrame:
    return spark.read.table("orders_silver").groupBy("state").agg(count("*").alias("orders"))
