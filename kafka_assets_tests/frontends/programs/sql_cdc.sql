-- Customers as they are, and every state they had, from a change log.
CREATE OR REFRESH STREAMING TABLE cdc_bronze.customers AS
SELECT from_json(cast(value AS STRING),
  'id STRING, name STRING, city STRING, operation STRING, seq BIGINT') AS c
FROM STREAM read_kafka(bootstrapServers => 'cdc.internal:9092', subscribe => 'customers-sql');

CREATE TEMPORARY LIVE VIEW customers_changed (
  CONSTRAINT has_key EXPECT (id IS NOT NULL) ON VIOLATION DROP ROW
) AS SELECT c.* FROM STREAM(cdc_bronze.customers);

CREATE OR REFRESH STREAMING TABLE cdc_silver.customers;

APPLY CHANGES INTO LIVE.cdc_silver.customers
FROM STREAM(LIVE.customers_changed)
KEYS (id)
APPLY AS DELETE WHEN operation = "DELETE"
SEQUENCE BY seq
COLUMNS * EXCEPT (operation, seq)
STORED AS SCD TYPE 1;

CREATE OR REFRESH STREAMING TABLE customer_states;

APPLY CHANGES INTO LIVE.customer_states
FROM STREAM(LIVE.customers_changed)
KEYS (id)
SEQUENCE BY seq
COLUMNS * EXCEPT (operation, seq)
STORED AS SCD TYPE 2;
