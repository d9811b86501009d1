from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json, struct

spark = SparkSession.builder.appName("inventory").getOrCreate()


@dp.table
def inventory_log():
    return spark.readStream.format("kafka").option("subscribe", "inventory").load()


@dp.table
def inventory_changes():
    row = from_json(col("value").cast("string"), "sku STRING, site STRING, stock INT, op STRING, seq BIGINT")
    return spark.readStream.table("inventory_log").select(row.alias("r"), "offset").select("r.*", "offset")


dp.create_streaming_table("inventory")

dp.create_auto_cdc_flow(
    name="inventory_flow",
    target="inventory",
    source="inventory_changes",
    keys=["sku", "site"],
    sequence_by=struct("seq", "offset"),
    apply_as_deletes="op = 'DELETE'",
    column_list=["sku", "site", "stock"],
    stored_as_scd_type=1,
)


@dp.materialized_view
def stock_by_sku():
    return spark.read.table("inventory").groupBy("sku").sum("stock")
