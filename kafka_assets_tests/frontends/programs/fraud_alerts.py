import dlt
from pyspark.sql.functions import col, current_timestamp, from_json, struct, to_json

BROKERS = "kafka:9092"

dlt.create_sink(
    name="alerts",
    format="kafka",
    options={"kafka.bootstrap.servers": BROKERS, "topic": "fraud-alerts"},
)


@dlt.table
def card_payments():
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "card-payments")
        .load()
    )
    value = from_json(col("value").cast("string"), "card STRING, amount DOUBLE, country STRING")
    return stream.select(value.alias("p"), "timestamp").select("p.*", "timestamp")


@dlt.table
@dlt.expect_or_drop("has_card", "card IS NOT NULL")
def suspicious():
    rows = dlt.read_stream("card_payments")
    marked = rows.where((rows.amount > 5000) | (rows["country"] != "DE"))
    return marked.withColumn("_seen_at", current_timestamp())


@dlt.append_flow(name="send_alerts", target="alerts")
def send():
    rows = dlt.read_stream("suspicious")
    return rows.select(col("card").alias("key"), to_json(struct("card", "amount")).alias("value"))
