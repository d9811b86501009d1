import dlt
from pyspark.sql.functions import col, expr, from_json

rules = {"known_kind": "kind IN ('open', 'close')", "has_account": "account IS NOT NULL"}


@dlt.view
def account_events():
    value = from_json(col("value").cast("string"), "account STRING, kind STRING, at TIMESTAMP")
    stream = spark.readStream.format("kafka").option("subscribe", "accounts").load()
    return stream.select(value.alias("a")).select("a.*")


@dlt.view(comment="Events, marked")
@dlt.expect_all(rules)
def account_events_checked():
    return dlt.read_stream("account_events").withColumn("broken", expr("kind IS NULL"))


@dlt.table(name="AccountsOpened")
def opened():
    return dlt.read_stream("account_events_checked").filter("kind = 'open' AND NOT broken")


@dlt.table(name="main.bank.accounts_broken")
def broken():
    return dlt.read_stream("account_events_checked").filter("broken")


@dlt.view
def small():
    return spark.createDataFrame([("DE", "Germany"), ("FR", "France")], "code STRING, country STRING")


@dlt.table
def accounts_per_country():
    opened = spark.sql("SELECT substr(account, 1, 2) AS code FROM LIVE.AccountsOpened")
    return opened.join(dlt.read("small"), "code").groupBy("country").count()
