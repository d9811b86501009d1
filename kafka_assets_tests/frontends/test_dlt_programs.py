"""Programs of Databricks' DLT, unchanged: their tables, layers, rules and every edge."""

from __future__ import annotations

from pathlib import Path

from kafka_assets.declarations import Changes
from kafka_assets_tests.frontends.shown import (
    edges,
    graph_of_program,
    load,
    rules,
    tables,
    written,
)


def test_a_medallion_of_orders_keeps_its_chain_and_its_three_kinds_of_rules(tmp_path: Path) -> None:
    loaded = load("medallion_orders.py")
    assert tables(loaded) == {
        "orders_raw": "bronze streaming_table",
        "orders_clean": "silver streaming_table",
        "daily_revenue": "gold materialized_view",
        "top_customers": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("orders", "orders_raw"),
        ("orders_raw", "orders_clean"),
        ("orders_clean", "daily_revenue"),
        ("orders_clean", "top_customers"),
    }
    assert rules(loaded) == {
        "orders_clean": [
            ("valid_amount", "drop", "amount > 0"),
            ("known_customer", "warn", "customer_id IS NOT NULL"),
            ("has_id", "fail", "order_id IS NOT NULL"),
        ],
    }
    graph_of_program(loaded, tmp_path)
    bronze, silver = loaded.tables["orders_raw"], loaded.tables["orders_clean"]
    assert not bronze.reset_allowed
    assert bronze.comment == "Every order event as it arrived from Kafka"
    assert silver.options.partition_by == ("order_date",)


def test_changes_of_type_1_and_2_come_from_a_view_that_becomes_a_private_table(
    tmp_path: Path,
) -> None:
    loaded = load("retail_cdc.py")
    assert tables(loaded) == {
        "customers_changes": "silver streaming_table",
        "customers": "silver auto_cdc",
        "customers_history": "silver auto_cdc",
        "customers_by_city": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("retail_public_customers", "customers_changes"),
        ("customers", "customers_by_city"),
        ("customers_changes", "customers"),
        ("customers_changes", "customers_history"),
    }
    assert rules(loaded) == {}
    graph_of_program(loaded, tmp_path)
    now, history = (flow.changes for flow in loaded.flows)
    assert now == Changes(
        keys=("id",),
        sequence_by="ts_ms",
        apply_as_deletes="op = 'd'",
        apply_as_truncates="op = 't'",
        except_columns=("op", "ts_ms"),
    )
    assert history == Changes(
        keys=("id",),
        sequence_by="ts_ms",
        apply_as_deletes="op = 'd'",
        except_columns=("op",),
        ignore_null_updates=True,
        scd_type=2,
        track_history_except=("email",),
    )
    assert loaded.tables["customers_changes"].options.private


def test_sessions_with_a_watermark_are_a_gold_stream_read_through_a_view(tmp_path: Path) -> None:
    loaded = load("clickstream_sessions.py")
    assert tables(loaded) == {
        "clicks_raw": "bronze streaming_table",
        "clicks": "silver temporary_view",
        "sessions": "gold streaming_table",
        "page_views": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("web_clicks", "clicks_raw"),
        ("clicks_raw", "clicks"),
        ("clicks", "sessions"),
        ("clicks", "page_views"),
    }
    assert rules(loaded) == {
        "sessions": [
            ("short", "warn", "clicks < 1000"),
        ],
    }
    graph_of_program(loaded, tmp_path)
    assert loaded.tables["sessions"].options.cluster_by == ("user_id",)
    assert loaded.tables["sessions"].keys == ()
    assert loaded.tables["clicks_raw"].options.max_rows_per_batch == 50000


def test_a_topic_name_from_the_configuration_and_duplicates_removed_by_watermark(
    tmp_path: Path,
) -> None:
    loaded = load("iot_dedupe.py", conf={"env": "prod"})
    assert tables(loaded) == {
        "readings": "bronze streaming_table",
        "readings_once": "silver streaming_table",
        "readings_by_minute": "gold streaming_table",
        "last_seen": "gold streaming_table",
    }
    assert edges(loaded) == {
        ("iot_prod_readings", "readings"),
        ("readings", "readings_once"),
        ("readings_once", "readings_by_minute"),
        ("readings_once", "last_seen"),
    }
    assert rules(loaded) == {
        "readings_once": [
            ("temp_in_range", "drop", "temp BETWEEN -50 AND 150"),
            ("device", "drop", "device IS NOT NULL"),
        ],
    }
    graph_of_program(loaded, tmp_path)
    assert loaded.tables["readings"].options.private
    assert loaded.tables["readings_once"].options.spark_conf == {
        "spark.sql.shuffle.partitions": "2"
    }
    assert {name: table.keys for name, table in loaded.tables.items() if table.keys} == {
        "last_seen": ("device",)
    }


def test_tables_made_in_a_loop_each_have_their_own_rules_and_edges(tmp_path: Path) -> None:
    loaded = load("rules_in_a_loop.py")
    assert tables(loaded) == {
        "invoices_bronze": "bronze streaming_table",
        "invoices_silver": "silver streaming_table",
        "invoices_quarantine": "silver streaming_table",
        "shipments_bronze": "bronze streaming_table",
        "shipments_silver": "silver streaming_table",
        "shipments_quarantine": "silver streaming_table",
        "open_shipments": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("erp_invoices", "invoices_bronze"),
        ("invoices_bronze", "invoices_silver"),
        ("invoices_bronze", "invoices_quarantine"),
        ("erp_shipments", "shipments_bronze"),
        ("shipments_bronze", "shipments_silver"),
        ("shipments_bronze", "shipments_quarantine"),
        ("invoices_silver", "open_shipments"),
        ("shipments_silver", "open_shipments"),
    }
    assert rules(loaded) == {
        "invoices_silver": [
            ("id_is_there", "drop", "id IS NOT NULL"),
            ("total_not_negative", "drop", "total >= 0"),
        ],
        "invoices_quarantine": [
            ("broken", "drop", "NOT ((id IS NOT NULL) AND (total >= 0))"),
        ],
        "shipments_silver": [
            ("id_is_there", "drop", "id IS NOT NULL"),
            ("weighs_something", "drop", "weight > 0"),
        ],
        "shipments_quarantine": [
            ("broken", "drop", "NOT ((id IS NOT NULL) AND (weight > 0))"),
        ],
    }
    graph_of_program(loaded, tmp_path)


def test_flows_of_several_topics_feed_one_table_and_a_backfill_another(tmp_path: Path) -> None:
    loaded = load("regions_append.py")
    assert tables(loaded) == {
        "sales": "bronze streaming_table",
        "archive": "silver streaming_table",
        "sales_copy": "silver streaming_table",
    }
    assert edges(loaded) == {
        ("sales", "archive"),
        ("sales_eu", "sales"),
        ("sales_us", "sales"),
        ("sales_apac", "sales"),
        ("archive", "sales_copy"),
        ("sales", "sales_copy"),
    }
    assert rules(loaded) == {
        "sales": [
            ("has_payload", "warn", "payload IS NOT NULL"),
            ("known_region", "drop", "region IN ('eu', 'us', 'apac')"),
        ],
    }
    graph_of_program(loaded, tmp_path)
    assert [flow.name for flow in loaded.flows if flow.once] == ["backfill"]
    assert loaded.tables["sales"].options.column_comments == {"region": "where it was sold"}


def test_a_stream_looks_things_up_in_tables_of_this_and_of_another_program(tmp_path: Path) -> None:
    loaded = load("enriched_stream.py", tables={"crm.main.customers": "customers"})
    assert tables(loaded) == {
        "products_log": "bronze streaming_table",
        "products": "gold materialized_view",
        "order_events": "bronze streaming_table",
        "order_lines": "silver streaming_table",
    }
    assert edges(loaded) == {
        ("products_topic", "products_log"),
        ("products_log", "products"),
        ("order_events_topic", "order_events"),
        ("order_events", "order_lines"),
        ("customers", "order_lines"),
        ("products", "order_lines"),
    }
    assert rules(loaded) == {
        "order_lines": [
            ("product_known", "warn", "title IS NOT NULL"),
        ],
    }
    graph_of_program(loaded, tmp_path)
    assert loaded.tables["order_lines"].reads == {"products": "static", "customers": "static"}
    assert loaded.borrowed == ("customers",)


def test_an_exported_notebook_runs_its_includes_and_reads_its_widgets(tmp_path: Path) -> None:
    loaded = load("payments_notebook.py")
    assert tables(loaded) == {
        "payments_bronze": "bronze streaming_table",
        "payments_silver": "silver streaming_table",
    }
    assert edges(loaded) == {
        ("payments", "payments_bronze"),
        ("payments_bronze", "payments_silver"),
    }
    assert rules(loaded) == {
        "payments_silver": [
            ("has_currency", "fail", "currency IS NOT NULL"),
            ("amount", "fail", "amount > 0"),
        ],
    }
    graph_of_program(loaded, tmp_path)
    notes = " ".join(note.text for note in loaded.notes)
    assert "phonenumbers" in notes
    assert "payments_settings" not in notes
    assert "jaas" in notes
    assert "PlainLoginModule" not in notes


def test_a_view_with_rules_becomes_a_private_table_and_names_become_snake_case(
    tmp_path: Path,
) -> None:
    loaded = load("checked_views.py")
    assert tables(loaded) == {
        "account_events": "silver temporary_view",
        "account_events_checked": "silver streaming_table",
        "accounts_opened": "silver streaming_table",
        "accounts_broken": "silver streaming_table",
        "small": "silver temporary_view",
        "accounts_per_country": "gold materialized_view",
    }
    assert edges(loaded) == {
        ("accounts", "account_events"),
        ("account_events", "account_events_checked"),
        ("account_events_checked", "accounts_opened"),
        ("account_events_checked", "accounts_broken"),
        ("accounts_opened", "accounts_per_country"),
        ("small", "accounts_per_country"),
    }
    assert rules(loaded) == {
        "account_events_checked": [
            ("known_kind", "warn", "kind IN ('open', 'close')"),
            ("has_account", "warn", "account IS NOT NULL"),
        ],
    }
    graph_of_program(loaded, tmp_path)
    assert loaded.tables["account_events_checked"].options.private
    assert [note.text for note in loaded.notes] == [
        "the view 'account_events_checked' becomes a private table, because it has expectations",
        "'AccountsOpened' is named 'accounts_opened'",
        "'main.bank.accounts_broken' is named 'accounts_broken'",
    ]


def test_a_flow_to_kafka_is_an_edge_to_its_sink(tmp_path: Path) -> None:
    loaded = load("fraud_alerts.py")
    assert tables(loaded) == {
        "card_payments": "bronze streaming_table",
        "suspicious": "silver streaming_table",
        "alerts": "sink sink",
    }
    assert edges(loaded) == {
        ("card_payments_topic", "card_payments"),
        ("card_payments", "suspicious"),
        ("suspicious", "alerts"),
    }
    assert rules(loaded) == {
        "suspicious": [
            ("has_card", "drop", "card IS NOT NULL"),
        ],
    }
    graph_of_program(loaded, tmp_path)


def test_a_frame_at_the_top_and_values_that_nobody_gave_are_no_obstacle(tmp_path: Path) -> None:
    loaded = load("heart_rates.py")
    assert tables(loaded) == {
        "band_events": "bronze streaming_table",
        "band_fields": "silver streaming_table",
        "band_clean": "silver streaming_table",
        "band_totals": "gold materialized_view",
        "band_minutes": "gold streaming_table",
    }
    assert edges(loaded) == {
        ("wrist_bands", "band_events"),
        ("band_events", "band_fields"),
        ("band_fields", "band_clean"),
        ("band_clean", "band_totals"),
        ("band_clean", "band_minutes"),
    }
    assert rules(loaded) == {
        "band_clean": [
            ("pulse_is_there", "drop", "bpm IS NOT NULL"),
            ("pulse_of_the_living_0", "drop", "bpm > 0"),
            ("band_known", "drop", "band <> 'undef' "),
        ],
    }
    graph_of_program(loaded, tmp_path)
    assert loaded.tables["band_minutes"].keys == ("band", "window")
    assert not loaded.tables["band_events"].reset_allowed
    unknown = [note.text for note in loaded.notes if "has no value" in note.text]
    assert [text.partition(" has no value")[0] for text in unknown] == [
        "spark.conf.get('BAND_BROKER')",
        "spark.conf.get('bandUser')",
        "dbutils.secrets.get('bands', 'password')",
    ]


def test_readers_take_their_arguments_by_the_names_that_spark_gives_them(tmp_path: Path) -> None:
    text = (
        "import dlt\n"
        "@dlt.table\n"
        "def raw():\n"
        '    reader = spark.readStream.format(source="kafka")\n'
        '    return reader.option(key="subscribe", value="orders").load()\n'
        "@dlt.table\n"
        "def copy(): return spark.readStream.table(tableName='raw')\n"
    )
    assert edges(written(tmp_path, text)) == {("orders", "raw"), ("raw", "copy")}
