"""Orders that another system exports as JSON files, with Auto Loader."""

import dlt
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

LANDING = spark.conf.get("landing")

ORDER = StructType(
    [
        StructField("order_id", StringType()),
        StructField("ordered_at", TimestampType()),
        StructField(
            "lines",
            ArrayType(
                StructType(
                    [
                        StructField("item", StringType()),
                        StructField("price", DecimalType(9, 2)),
                    ]
                )
            ),
        ),
    ]
)


@dlt.table(comment="What is sold, as the shop exports it each night.")
def items():
    return spark.read.csv(
        f"{LANDING}/items.csv", header=True, inferSchema=True, schema="item STRING, kind STRING"
    ).drop("_rescued_data")


@dlt.table(comment="Orders as they were exported.", table_properties={"quality": "bronze"})
def orders_bronze():
    return (
        spark.readStream.format("cloudFiles")
        .option("cloudFiles.format", "json")
        .option("cloudFiles.schemaLocation", f"{LANDING}/_schemas")
        .option("cloudFiles.maxFilesPerTrigger", 1)
        .option("rescuedDataColumn", "_rescued_data")
        .schema(ORDER)
        .load(f"{LANDING}/orders/")
        .select("*", "_metadata.file_path", F.current_timestamp().alias("loaded_at"))
    )


@dlt.table
@dlt.expect_or_drop("fits", "_rescued_data IS NULL")
@dlt.expect("has_lines", "size(lines) > 0")
def orders_silver():
    return dlt.read_stream("orders_bronze").withColumn(
        "file", F.element_at(F.split("file_path", "/"), -1)
    )


@dlt.table
def revenue():
    lines = dlt.read("orders_silver").select(F.explode("lines").alias("line"))
    known = lines.select("line.*").join(dlt.read("items"), "item", "left")
    return known.groupBy("item", "kind").agg(F.sum("price").alias("revenue"))
