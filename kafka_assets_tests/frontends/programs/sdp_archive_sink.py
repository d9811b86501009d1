import pyspark.pipelines as dp

dp.create_streaming_table(
    "events",
    comment="Events of the app and the web site",
    table_properties={"delta.appendOnly": "true"},
    cluster_by=["source"],
)

dp.create_sink("archive", "delta", {"path": "/mnt/archive/events"})


def events_of(topic):
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "k:9092")
    rows = reader.option("subscribe", topic).load()
    return rows.selectExpr(f"'{topic}' AS source", "CAST(value AS STRING) AS body", "timestamp")


@dp.append_flow(target="events")
def from_app():
    return events_of("app-events")


@dp.append_flow(target="events")
def from_web():
    return events_of("web-events")


@dp.append_flow(target="archive")
def to_archive():
    return spark.readStream.table("events").where("source = 'app-events'")
