import dlt
from pyspark.sql.functions import avg, col, from_json, max, window

ENV = spark.conf.get("env")
TOPIC = f"iot-{ENV}-readings"


def decoded(frame):
    return frame.select(
        from_json(col("value").cast("string"), "device STRING, temp DOUBLE, at TIMESTAMP").alias("r")
    ).select("r.*")


@dlt.table(name="readings", temporary=True)
def all_readings():
    return decoded(
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", "kafka:9092")
        .option("subscribe", TOPIC)
        .option("includeHeaders", True)
        .load()
    )


@dlt.table(spark_conf={"spark.sql.shuffle.partitions": 2, "pipelines.trigger.interval": "1 minute"})
@dlt.expect_all_or_drop({"temp in range": "temp BETWEEN -50 AND 150", "device": "device IS NOT NULL"})
def readings_once():
    return (
        dlt.read_stream("readings")
        .withWatermark("at", "10 minutes")
        .dropDuplicatesWithinWatermark(["device", "at"])
    )


@dlt.table
def readings_by_minute():
    return (
        dlt.read_stream("readings_once")
        .withWatermark("at", "10 minutes")
        .groupBy(window("at", "1 minute"), "device")
        .agg(avg("temp").alias("mean"), max("temp").alias("highest"))
        .select(col("window.start").alias("minute"), "device", "mean", "highest")
    )


@dlt.table
def last_seen():
    return dlt.read_stream("readings_once").groupBy("device").agg(max("at").alias("seen"))
