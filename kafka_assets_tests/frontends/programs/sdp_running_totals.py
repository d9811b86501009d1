from pyspark import pipelines as dp
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

topic = spark.conf.get("totals.topic", "page-views")


@F.pandas_udf(StringType())
def host(urls):
    return urls.str.split("/").str[2]


@dp.table
def page_views():
    rows = spark.readStream.format("kafka").option("subscribe", topic).load()
    view = F.from_json(F.col("value").cast("string"), "url STRING, user STRING, at TIMESTAMP")
    return rows.select(view.alias("v")).select("v.*").withColumn("host", host("url"))


@dp.table
def views_by_host():
    return (
        spark.readStream.table("page_views")
        .groupBy("host", F.to_date("at").alias("day"))
        .agg(F.count("*").alias("views"))
        .withColumnRenamed("host", "site")
    )


@dp.table
def views_by_hour():
    views = spark.readStream.table("page_views")
    by_hour = views.groupBy(F.window("at", "1 hour")).agg(F.count("*").alias("views"))
    return by_hour.select("window.start", "views")
