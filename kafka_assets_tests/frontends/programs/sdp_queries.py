from pyspark import pipelines as dp


@dp.table
def trips_raw():
    return spark.readStream.format("kafka").option("subscribe", "trips").load()


@dp.table
def trips():
    return spark.sql("""
        SELECT t.*
        FROM (
            SELECT from_json(CAST(value AS STRING), 'driver STRING, km DOUBLE, at TIMESTAMP') AS t
            FROM STREAM(trips_raw)
        )
    """)


@dp.materialized_view
def drivers():
    return spark.sql("""
        WITH known AS (SELECT driver, km FROM trips WHERE driver IS NOT NULL)
        SELECT driver, sum(km) AS km FROM known GROUP BY driver
    """)


@dp.table
def trips_of_known_drivers():
    trips = spark.readStream.table("trips")
    trips.createOrReplaceTempView("new_trips")
    spark.table("new_trips").where("km > 0").createOrReplaceTempView("new_trips")
    return spark.sql("SELECT n.* FROM new_trips n JOIN drivers d ON n.driver = d.driver")


@dp.materialized_view
def calendar():
    return spark.range(7).selectExpr("id AS day", "id >= 5 AS weekend")
