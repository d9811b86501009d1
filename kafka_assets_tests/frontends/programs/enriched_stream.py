import dlt
from pyspark.sql.functions import broadcast, col, from_json

ORDERS = "order_id STRING, product_id STRING, customer_id STRING, quantity INT"


@dlt.table
def products_log():
    return spark.readStream.format("kafka").option("subscribe", "products").load()


@dlt.table
def products():
    schema = "product_id STRING, title STRING, price DOUBLE"
    rows = spark.table("LIVE.products_log").select(from_json(col("value").cast("string"), schema).alias("p"))
    return rows.select("p.*").dropDuplicates(["product_id"])


@dlt.table
def order_events():
    return spark.readStream.format("kafka").option("subscribe", "order-events").load()


@dlt.table
@dlt.expect("product_known", "title IS NOT NULL")
def order_lines():
    events = spark.readStream.table("LIVE.order_events")
    lines = events.select(from_json(events.value.cast("string"), ORDERS).alias("l")).select("l.*")
    customers = spark.read.table("crm.main.customers").select("customer_id", "segment")
    return (
        lines.join(broadcast(spark.read.table("LIVE.products")), "product_id", "left")
        .join(customers, on="customer_id", how="left")
        .withColumn("total", col("quantity") * col("price"))
    )
