"""Operations on tables are Dagster jobs, and what they did shows on the assets' pages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import dagster as dg

from kafka_assets.graph import Graph
from kafka_assets.orchestration.build import graph_defs
from kafka_assets.settings import Settings
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.run import run_table
from kafka_assets_tests.pipeline import Bronze, Pipeline, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_job(
    graph: Graph, settings: Settings, instance: dg.DagsterInstance, name: str, **config: Any
) -> dg.ExecuteInProcessResult:
    defs = graph_defs(graph, settings)
    job = defs.resolve_job_def(name)
    (step,) = job.nodes
    return job.execute_in_process(
        run_config={"ops": {step.name: {"config": config}}}, instance=instance, raise_on_error=False
    )


def observation(instance: dg.DagsterInstance, *key: str) -> dict[str, Any]:
    (record, *_) = instance.fetch_observations(dg.AssetKey(list(key)), limit=1).records
    assert record.asset_observation is not None
    return {name: value.value for name, value in record.asset_observation.metadata.items()}


def test_dead_letters_are_listed_replayed_and_discarded_by_jobs(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    pipeline = Pipeline(spark, settings, topic_name)
    pipeline.produce(event("a", 1), event("b", -1), b"no json")
    pipeline.run("raw", "clean")
    with dg.DagsterInstance.ephemeral() as instance:

        def job(name: str, **config: Any) -> dict[str, Any]:
            found = run_job(pipeline.graph, settings, instance, name, table="clean", **config)
            assert found.success
            return observation(instance, "dlq", "clean")

        assert job("dead_letters_list")["open"] == 2
        shown = job("dead_letters_show", limit=1)
        assert shown["found"] == 2
        assert shown["letters"][0]["value"]["text"] in ("no json", json.dumps(event("b", -1)))
        replayed = job("dead_letters_replay", rule="positive")
        assert (replayed["tried"], replayed["still_dead"]) == (1, 1)
        assert job("dead_letters_discard", because="a test")["discarded"] == 2
        assert job("dead_letters_list")["open"] == 0
        (closed, *_) = job("dead_letters_show", closed=True)["letters"]
        assert (closed["status"], closed["decided"]["reason"]) == ("discarded", "a test")
        assert closed["decided"]["run_id"]
        # A night's schedule removes them when the retention is over.
        refused = run_job(pipeline.graph, settings, instance, "dead_letters_purge")
        assert not refused.success
        assert "purged" not in purged(pipeline, instance, days=7)
        with lease(pipeline.graph.tables["clean"], settings, "another run"):
            assert "purged" not in purged(pipeline, instance, days=0)
        assert purged(pipeline, instance, days=0)["purged"] == 2
        assert job("dead_letters_show", closed=True)["found"] == 0


def purged(pipeline: Pipeline, instance: dg.DagsterInstance, days: int) -> dict[str, Any]:
    """What stands on the page of the letters after the schedule's job."""
    kept = pipeline.settings.dead_letters.model_copy(update={"retention_days": days})
    settings = pipeline.settings.model_copy(update={"dead_letters": kept})
    schedule = graph_defs(pipeline.graph, settings).resolve_schedule_def(
        "dead_letters_purge_nightly"
    )
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    assert run_job(pipeline.graph, settings, instance, schedule.job_name).success
    return observation(instance, "dlq", "clean")


def test_a_reset_by_a_job_makes_all_of_the_topic_lag(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    bronze = Bronze(spark, settings, topic_name)
    with dg.DagsterInstance.ephemeral() as instance:
        assert run_job(bronze.graph, settings, instance, "reset", table="raw").success
        event = instance.get_latest_materialization_event(dg.AssetKey(["bronze", "raw"]))
        assert event is not None
        assert event.asset_materialization is not None
        position = event.asset_materialization.metadata["kafka_assets/position"].value
        assert isinstance(position, dict)
        assert position["offsets"] == {}
    assert bronze.run().kept == 3


def test_a_refused_operation_fails_its_job_with_the_reason(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    bronze = Bronze(spark, settings, topic_name)
    bronze.produce(b"d", b"e")
    bronze.delete_records(before=4)
    with dg.DagsterInstance.ephemeral() as instance:
        refused = run_job(bronze.graph, settings, instance, "reset", table="raw")
        assert not refused.success
        (failed,) = [e for e in refused.all_events if e.is_step_failure]
        assert "lose 3 rows of raw" in str(failed.step_failure_data.user_failure_data)

        done = run_job(bronze.graph, settings, instance, "accept_loss", table="raw", because="old")
        assert done.success
        assert "[3, 4)" in observation(instance, "bronze", "raw")["lost"]
    report = run_table(bronze.node, spark, settings, reported_version=1)
    assert report.extra["accepted_loss"] == f"{topic_name}/0 [3, 4)"
