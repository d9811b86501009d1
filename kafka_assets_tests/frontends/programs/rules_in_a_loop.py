import dlt
from pyspark.sql.functions import col, current_timestamp, from_json

SOURCES = {
    "invoices": {
        "schema": "id STRING, total DECIMAL(12, 2), paid BOOLEAN",
        "rules": {"id_is_there": "id IS NOT NULL", "total_not_negative": "total >= 0"},
    },
    "shipments": {
        "schema": "id STRING, carrier STRING, weight DOUBLE",
        "rules": {"id_is_there": "id IS NOT NULL", "weighs_something": "weight > 0"},
    },
}


def make_bronze(source):
    @dlt.table(name=f"{source}_bronze", comment=f"Raw {source}")
    def bronze():
        return (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", "kafka:9092")
            .option("subscribe", f"erp.{source}")
            .load()
        )


def make_silver(source, schema, rules):
    quarantine = "NOT ({})".format(" AND ".join(f"({rule})" for rule in rules.values()))

    def rows():
        value = from_json(col("value").cast("string"), schema).alias("v")
        return dlt.read_stream(f"{source}_bronze").select(value).select("v.*")

    @dlt.table(name=f"{source}_silver")
    @dlt.expect_all_or_drop(rules)
    def silver():
        return rows().withColumn("loaded_at", current_timestamp())

    @dlt.table(name=f"{source}_quarantine")
    @dlt.expect_all_or_drop({"broken": quarantine})
    def quarantined():
        return rows()


for name, about in SOURCES.items():
    make_bronze(name)
    make_silver(name, about["schema"], about["rules"])


@dlt.table
def open_shipments():
    unpaid = dlt.read("invoices_silver").filter("NOT paid").drop("loaded_at")
    return dlt.read("shipments_silver").join(unpaid, "id")
