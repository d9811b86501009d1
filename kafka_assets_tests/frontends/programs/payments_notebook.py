# Databricks notebook source
# MAGIC %md
# MAGIC # Payments
# MAGIC Bronze and silver of the payment service.

# COMMAND ----------

# MAGIC %pip install phonenumbers

# COMMAND ----------

# MAGIC %run ./includes/payments_settings

# COMMAND ----------

import dlt
from pyspark.sql.functions import col, from_json

dbutils.widgets.text("topic", "payments")
topic = dbutils.widgets.get("topic")
password = dbutils.secrets.get(scope="kafka", key="password")

# COMMAND ----------

@dlt.table(comment="Payments as they came")
def payments_bronze():
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("kafka.security.protocol", "SASL_SSL")
        .option("kafka.sasl.jaas.config", f"org.apache.kafka.common.security.plain.PlainLoginModule required username='svc' password='{password}';")
        .option("subscribe", topic)
        .load()
    )

# COMMAND ----------

@dlt.table
@dlt.expect_all_or_fail(RULES)
def payments_silver():
    payload = from_json(col("value").cast("string"), PAYMENT).alias("p")
    return dlt.read_stream("payments_bronze").select(payload, "timestamp").select("p.*", "timestamp")

# COMMAND ----------

display(spark.createDataFrame([(1,)], "x INT"))
