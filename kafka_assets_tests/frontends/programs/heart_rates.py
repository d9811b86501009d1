# Databricks notebook source
# MAGIC %md
# MAGIC # Heart rates of wrist bands

# COMMAND ----------

# MAGIC %python
# MAGIC page = "https://example.org/bands"
# MAGIC displayHTML(f"<a href='{page}'>The bands</a>")

# COMMAND ----------

import dlt
from pyspark.sql.functions import *
from pyspark.sql.types import *

TOPIC = "wrist-bands"
BROKER = spark.conf.get("BAND_BROKER")
user = spark.conf.get("bandUser")
secret = dbutils.secrets.get("bands", "password")

band_stream = (
    spark.readStream.format("kafka")
    .option("subscribe", TOPIC)
    .option("kafka.bootstrap.servers", BROKER)
    .option("kafka.security.protocol", "SASL_SSL")
    .option("kafka.sasl.jaas.config", "PlainLoginModule required username='{}' password='{}';".format(user, secret))
    .option("startingOffsets", "earliest")
    .load()
)

# COMMAND ----------

reset = "false"

@dlt.table(comment="Events as they came", table_properties={"pipelines.reset.allowed": reset})
def band_events():
    return band_stream

# COMMAND ----------

event_schema = StructType([
    StructField("at", TimestampType(), True),
    StructField("band", StringType(), True),
    StructField("pulse", FloatType(), True),
])

@dlt.table(comment="Events with their fields", temporary=True)
def band_fields():
    return (
        dlt.read_stream("band_events")
        .select(col("timestamp"), from_json(col("value").cast("string"), event_schema).alias("e"))
        .select("timestamp", "e.*")
    )

# COMMAND ----------

@dlt.table
@dlt.expect_or_drop("pulse is there", "bpm IS NOT NULL")
@dlt.expect_or_drop("pulse of the living > 0", "bpm > 0")
@dlt.expect_or_drop("band known", "band <> 'undef' ")
def band_clean(table_properties={"pipelines.reset.allowed": reset}):
    return dlt.read_stream("band_fields").withColumnRenamed("pulse", "bpm").select("at", "bpm", "band")

# COMMAND ----------

@dlt.table(name="band_totals")
def totals_of_all():
    return (
        dlt.read_stream("band_clean").groupBy()
        .agg(count("bpm").alias("events"), max("bpm").alias("highest"), avg("bpm").alias("mean"))
    )

# COMMAND ----------

@dlt.table
def band_minutes():
    return dlt.read_stream("band_clean").groupBy("band", window("at", "1 minute")).agg(avg("bpm").alias("mean"))
