# Customers of a shop, from the change log that Debezium writes to Kafka.
import dlt
from pyspark.sql.functions import col, expr, from_json

changes = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "localhost:9092")
    .option("subscribe", "retail.public.customers")
    .option("failOnDataLoss", "false")
    .load()
)

SCHEMA = "id INT, name STRING, city STRING, email STRING, op STRING, ts_ms BIGINT"


@dlt.view(name="customers_changes", comment="One row for each change")
def parsed():
    payload = from_json(col("value").cast("string"), SCHEMA).alias("c")
    return changes.select(payload).select("c.*").filter(col("id").isNotNull())


dlt.create_streaming_table(
    name="customers",
    comment="Customers as they are now",
    table_properties={"delta.enableChangeDataFeed": "true"},
)

dlt.apply_changes(
    target="customers",
    source="customers_changes",
    keys=["id"],
    sequence_by=col("ts_ms"),
    apply_as_deletes=expr("op = 'd'"),
    apply_as_truncates=expr("op = 't'"),
    except_column_list=["op", "ts_ms"],
    stored_as_scd_type=1,
)

dlt.create_target_table("customers_history")

dlt.apply_changes(
    target="customers_history",
    source="customers_changes",
    keys=[col("id")],
    sequence_by="ts_ms",
    apply_as_deletes=col("op") == "d",
    except_column_list=["op"],
    stored_as_scd_type="2",
    track_history_except_column_list=["email"],
    ignore_null_updates=True,
)


@dlt.table
def customers_by_city():
    return dlt.read("customers").groupBy("city").count()
