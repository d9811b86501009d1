import dlt
from pyspark.sql import functions as F
from pyspark.sql import types as T

SESSION_GAP = "30 minutes"


@F.udf(returnType="string")
def device_of(agent):
    return "mobile" if agent and "Mobile" in agent else "desktop"


@dlt.create_table(name="clicks_raw")
def ingest():
    return (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": "kafka:9092", "subscribe": "web-clicks"})
        .option("maxOffsetsPerTrigger", 50000)
        .load()
    )


@dlt.create_view()
def clicks():
    """Clicks with their columns."""
    schema = "user_id STRING, url STRING, agent STRING, at TIMESTAMP"
    return (
        dlt.read_stream("clicks_raw")
        .select(F.from_json(F.col("value").cast("string"), schema).alias("e"))
        .select("e.*")
        .withColumn("device", device_of("agent"))
    )


@dlt.create_table(comment="One row for each visit", cluster_by=["user_id"])
@dlt.expect("short", "clicks < 1000")
def sessions():
    visits = (
        dlt.read_stream("clicks")
        .withWatermark("at", "1 hour")
        .groupBy(F.session_window("at", SESSION_GAP), "user_id", "device")
    )
    return visits.agg(F.count("*").alias("clicks"), F.min("url").alias("first_url"))


@dlt.create_table
def page_views():
    return dlt.read("clicks").groupBy("url").agg(F.approx_count_distinct("user_id").alias("users"))
