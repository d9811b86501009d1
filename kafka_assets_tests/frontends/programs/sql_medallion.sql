-- Web shop orders: bronze, silver and gold in one pipeline.
CREATE OR REFRESH STREAMING LIVE TABLE shop_orders_raw
COMMENT "Order events as they arrive from Kafka"
TBLPROPERTIES ("quality" = "bronze", "pipelines.autoOptimize.managed" = "true")
AS SELECT
  cast(value AS STRING) AS payload,
  topic,
  timestamp AS received_at
FROM STREAM read_kafka(
  bootstrapServers => 'broker-1.shop.internal:9092',
  subscribe => 'shop-orders-sql',
  startingOffsets => 'earliest'
);

CREATE TEMPORARY STREAMING LIVE VIEW shop_orders_parsed AS
SELECT from_json(payload, 'order_id STRING, customer_id STRING, amount DOUBLE, country STRING') AS o
FROM STREAM(LIVE.shop_orders_raw);

CREATE OR REFRESH STREAMING LIVE TABLE shop_orders_clean (
  CONSTRAINT valid_amount EXPECT (amount > 0) ON VIOLATION DROP ROW,
  CONSTRAINT `Known country` EXPECT (country IS NOT NULL),
  CONSTRAINT has_id EXPECT (order_id IS NOT NULL) ON VIOLATION FAIL UPDATE
)
CLUSTER BY AUTO
COMMENT "Orders that can be trusted"
TBLPROPERTIES ("quality" = "silver")
AS SELECT o.* FROM STREAM(LIVE.shop_orders_parsed);

CREATE OR REFRESH STREAMING TABLE shop_orders_by_country
AS SELECT country, count(*) AS orders, sum(amount) AS revenue
FROM STREAM(shop_orders_clean)
GROUP BY country;

CREATE OR REFRESH LIVE TABLE shop_best_customers
COMMENT "The customers that spend most"
AS SELECT customer_id, sum(amount) AS spent
FROM LIVE.shop_orders_clean
GROUP BY customer_id
ORDER BY spent DESC
LIMIT 100;
