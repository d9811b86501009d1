"""The shipped pipelines through Dagster, on a real broker and real Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import dagster as dg
import pytest
from deltalake import DeltaTable

import kafka_assets.pipelines
from kafka_assets.demo.broker import Broker
from kafka_assets.orchestration.build import build_defs
from kafka_assets.orchestration.names import LAG_SENSOR
from kafka_assets.pipelines import orders, tracker_events
from kafka_assets.settings import KafkaSettings, Settings, SparkSettings
from kafka_assets_tests.helpers import create_topic, produce


def tracker(number: int, **changed: object) -> str:
    event = {
        "event_id": str(number),
        "time": f"2026-03-01T12:{number:02d}:00Z",
        "version": "2.0.0",
        "model": "aria-2",
        "heart_bpm": 60 + number,
        "kcal": 1.5,
    }
    return json.dumps(event | changed)


def order(number: int, **changed: object) -> str:
    event = {
        "order_id": str(number),
        "customer_id": "c-1",
        "amount": "10.50",
        "status": "paid",
        "order_time": f"2026-03-01T12:{number:02d}:00Z",
    }
    return json.dumps(event | changed)


class Location:
    """The shipped code location on an instance, with the sensor as the only one who starts runs."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance) -> None:
        self.settings = settings
        self.instance = instance
        self.defs = build_defs(kafka_assets.pipelines, settings)
        self.cursor: str | None = None
        self.skipped: str | None = None

    def tick(self) -> list[dg.ExecuteInProcessResult]:
        context = dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, definitions=self.defs
        )
        tick = self.defs.get_sensor_def(LAG_SENSOR).evaluate_tick(context)
        self.cursor, self.skipped = tick.cursor, tick.skip_message
        for event in tick.asset_events:
            self.instance.report_runless_asset_event(event)
        return [self.execute(r.asset_selection or [], r.tags) for r in tick.run_requests or []]

    def execute(self, keys, tags) -> dg.ExecuteInProcessResult:
        job = self.defs.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance, asset_selection=list(keys), tags=tags, raise_on_error=False
        )

    def rows(self, table: str) -> list[dict]:
        return DeltaTable(f"{self.settings.lake}/{table}").to_pyarrow_table().to_pylist()

    def metadata(self, *key: str) -> dict:
        event = self.instance.get_latest_materialization_event(dg.AssetKey(list(key)))
        assert event is not None
        assert event.asset_materialization is not None
        return {k: v.value for k, v in event.asset_materialization.metadata.items()}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory) -> Iterator[str]:
    # A broker of its own: the shipped pipelines' topics have fixed names.
    with Broker(tmp_path_factory.mktemp("broker"), heap="512m") as running:
        for topic in ("tracker-events", "orders"):
            create_topic(running.bootstrap, topic)
        yield running.bootstrap


@pytest.fixture(scope="module")
def location(tmp_path_factory, bootstrap, spark) -> Iterator[Location]:
    settings = Settings(
        lake=str(tmp_path_factory.mktemp("lake")),
        kafka=KafkaSettings(bootstrap_servers=bootstrap),
        spark=SparkSettings(master="local[2]"),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        yield Location(settings, instance)


@pytest.fixture(scope="module")
def first(location, bootstrap) -> dict[str, dg.ExecuteInProcessResult]:
    """Both chains after their first records."""
    assert location.tick() == []
    bad = [tracker(7, heart_bpm=500), "{broken | <b>", tracker(8, model=None)]
    produce(bootstrap, "tracker-events", [*map(tracker, range(5)), *bad])
    bad = [order(7, amount="-1"), order(8, customer_id=None), order(9, status="lost")]
    produce(bootstrap, "orders", [*map(order, range(5)), *bad])
    results = location.tick()
    assert [r.success for r in results] == [True, True]
    return {r.dagster_run.tags["kafka_assets/chain"]: r for r in results}


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {c.check_name: c.passed for c in result.get_asset_check_evaluations()}


def test_events_arrive_in_gold(location, first):
    (row,) = [r for r in location.rows("gold/tracker_hourly") if r["model"] == "aria-2"]
    assert (row["measurements"], row["mean_bpm"], row["highest_bpm"]) == (5, 62.0, 64)
    assert row["hour"] == datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_orders_arrive_in_gold(location, first):
    (row,) = location.rows("gold/orders_hourly")
    assert (row["orders"], row["revenue"]) == (6, Decimal("63.00"))


def test_checks_tell_what_was_dropped_and_what_was_only_odd(first):
    assert checks(first["tracker_events"]) == {
        "plausible_heart_rate": False,
        "model_known": False,
        "rows_read": True,
        "rows_returned": True,
    }
    assert checks(first["orders"]) == {
        "positive_amount": False,
        "customer_known": False,
        "status_known": False,
        "rows_read": True,
        "rows_returned": True,
    }


def test_figures_of_silver(location, first):
    found = location.metadata("silver", "tracker_silver")
    figures = ("rows_read", "decoded", "undecodable", "filtered", "kept", "dead")
    assert [found[name] for name in figures] == [8, 7, 1, 0, 6, 2]
    assert found["dagster/row_count"] == 6


def test_bronze_knows_where_it_stands_in_kafka(location, first):
    found = location.metadata("bronze", "tracker_bronze")
    assert found["kafka_assets/position"]["offsets"] == {"tracker-events/0": 8}
    assert found["lag"] == 0


def test_dead_letters_have_a_sample_without_markup(location, first):
    sample = location.metadata("dlq", "tracker_silver")["sample"]
    assert r"\{broken \| &lt;b&gt;" in sample
    assert r"plausible\_heart\_rate" in sample


def test_columns_of_the_materialization_are_those_of_the_table(location, first):
    schema = location.metadata("silver", "orders_silver")["dagster/column_schema"]
    assert "hour" in [column.name for column in schema.columns]


def test_nothing_new_starts_nothing(location, first):
    assert location.tick() == []
    assert location.skipped == "orders: no lag; tracker_events: no lag"


def test_a_run_without_new_rows_keeps_data_versions_and_answers_all_checks(location, first):
    keys = [["bronze", "orders_bronze"], ["silver", "orders_silver"], ["gold", "orders_hourly"]]

    def versions() -> list[object]:
        events = [location.instance.get_latest_materialization_event(dg.AssetKey(k)) for k in keys]
        return [e.asset_materialization.tags["dagster/data_version"] for e in events]

    before = versions()
    result = location.execute([*map(dg.AssetKey, keys), dg.AssetKey(["dlq", "orders_silver"])], {})
    assert result.success
    assert versions() == before
    assert set(checks(result).values()) == {True}
    assert len(checks(result)) == 5
    made = [e.asset_key.path[0] for e in result.get_asset_materialization_events()]
    assert "dlq" not in made


@pytest.mark.verify
def test_compaction_keeps_the_data_version(location, first, spark):
    key = dg.AssetKey(["silver", "orders_silver"])

    def state() -> tuple[str, int]:
        event = location.instance.get_latest_materialization_event(key)
        materialization = event.asset_materialization
        version = materialization.metadata["kafka_assets/position"].value["version"]
        return materialization.tags["dagster/data_version"], version

    produce(location.settings.kafka.bootstrap_servers, "orders", [order(20)])
    location.tick()
    version, delta = state()
    spark.sql(f"OPTIMIZE delta.`{location.settings.lake}/silver/orders_silver`")
    assert location.execute([key, dg.AssetKey(["dlq", "orders_silver"])], {}).success
    assert state()[1] > delta
    assert state()[0] == version


def test_the_decorated_functions_take_plain_frames(spark):
    events = spark.createDataFrame(
        [(datetime(2026, 3, 1, 12, 5), "aria-2", 60, 1.0)],
        "time timestamp, model string, heart_bpm int, kcal double",
    )
    (row,) = tracker_events.tracker_hourly(tracker_events.tracker_silver(events)).collect()
    assert (row.measurements, row.mean_bpm, row.kcal) == (1, 60.0, 1.0)
    placed = spark.createDataFrame(
        [(datetime(2026, 3, 1, 12, 5), Decimal("2.50"))],
        "order_time timestamp, amount decimal(12,2)",
    )
    (row,) = orders.orders_hourly(orders.orders_silver(placed)).collect()
    assert (row.orders, row.revenue) == (1, Decimal("2.50"))


def test_a_topic_that_is_gone_is_named_and_the_other_goes_on(tmp_path, bootstrap):
    create_topic(bootstrap, "lonely")
    settings = Settings(lake=str(tmp_path), kafka=KafkaSettings(bootstrap_servers=bootstrap))
    import kafka_assets as ka
    from kafka_assets_tests.helpers import module_of

    @ka.streaming_table(layer="bronze")
    def lonely_bronze(lonely): ...

    @ka.streaming_table(layer="bronze")
    def gone_bronze(gone): ...

    made = module_of(ka.kafka_topic("lonely"), ka.kafka_topic("gone"), lonely_bronze, gone_bronze)
    produce(bootstrap, "lonely", ["x"])
    defs = build_defs([made], settings)
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, definitions=defs)
        tick = defs.get_sensor_def(LAG_SENSOR).evaluate_tick(context)
    assert [r.tags["kafka_assets/chain"] for r in tick.run_requests or []] == ["lonely"]


def test_a_broker_that_is_down_is_a_skip_that_names_it(tmp_path):
    settings = Settings(
        lake=str(tmp_path),
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1", request_timeout_seconds=2),
    )
    defs = build_defs(kafka_assets.pipelines, settings)
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, definitions=defs)
        tick = defs.get_sensor_def(LAG_SENSOR).evaluate_tick(context)
    assert not tick.run_requests
    assert "127.0.0.1:1 cannot be reached" in (tick.skip_message or "")
