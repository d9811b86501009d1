import dlt

REGIONS = ["eu", "us", "apac"]

dlt.create_streaming_table(
    name="sales",
    comment="Sales of all regions",
    schema="""
        region STRING COMMENT 'where it was sold', payload STRING, at TIMESTAMP,
        day DATE GENERATED ALWAYS AS (CAST(at AS DATE))
    """,
    partition_cols=["day"],
    expect_all={"has_payload": "payload IS NOT NULL"},
    expect_all_or_drop={"known_region": "region IN ('eu', 'us', 'apac')"},
)


def add_region(region):
    @dlt.append_flow(target="sales", name=f"sales_{region}")
    def flow():
        return (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", "kafka:9092")
            .option("subscribe", f"sales-{region}")
            .load()
            .selectExpr(f"'{region}' AS region", "CAST(value AS STRING) AS payload", "timestamp AS at")
        )


for region in REGIONS:
    add_region(region)


@dlt.table
def archive():
    return dlt.read_stream("sales").where("region = 'eu'")


dlt.create_streaming_table("sales_copy")


@dlt.append_flow(target="sales_copy", once=True)
def backfill():
    return dlt.read("archive")


@dlt.append_flow(target="sales_copy")
def live():
    return spark.readStream.option("skipChangeCommits", "true").table("LIVE.sales")
