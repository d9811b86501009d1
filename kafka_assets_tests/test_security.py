"""Secrets are seen by nobody, and text in a declaration does no more than it says."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pydantic import SecretStr

import kafka_assets as ka
from kafka_assets.errors import DeclarationError, SettingsError
from kafka_assets.orchestration.build import graph_defs
from kafka_assets.settings import KafkaSettings, Settings
from kafka_assets.streaming.run import run_table
from kafka_assets_tests.helpers import create_topic, graph_of, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "xyzzy-do-not-show"


def with_secret(settings: Settings) -> Settings:
    """Settings of a client that has a password; the test's broker does not ask for it."""
    kafka = KafkaSettings(
        bootstrap_servers=settings.kafka.bootstrap_servers,
        properties={"sasl.mechanism": "PLAIN", "sasl.username": "somebody"},
        secrets={"sasl.password": SecretStr(SECRET)},
    )
    return settings.model_copy(update={"kafka": kafka})


def test_a_password_is_in_no_file_of_the_lake_and_in_no_output(
    spark: SparkSession, settings: Settings, topic_name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = with_secret(settings)
    create_topic(settings.kafka.bootstrap_servers, topic_name)
    produce(settings.kafka.bootstrap_servers, topic_name, [b"a"])
    events = ka.kafka_topic(topic_name, name="events")

    @ka.streaming_table(layer="bronze")
    @ka.expect("not_empty", "value IS NOT NULL")
    def raw(events: Any) -> Any:
        return events

    graph = graph_of(settings, events, raw)
    report = run_table(graph.tables["raw"], spark, settings)
    assert report.kept == 1
    specs = graph_defs(graph, settings).resolve_all_asset_specs()
    files = [file for file in Path(settings.lake).rglob("*") if file.is_file()]
    assert len(files) > 5
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]
    shown = "".join(capfd.readouterr()) + repr(settings) + str(settings) + repr(report)
    assert SECRET not in shown + repr(specs) + settings.model_dump_json()


def command_lines(process: psutil.Process) -> list[str]:
    """What anyone on the machine reads of a process and its children in the process list."""
    lines = []
    for member in [process, *process.children(recursive=True)]:
        # A launcher that has ended meanwhile, or was not waited for yet, has no command line.
        with suppress(psutil.NoSuchProcess):
            lines.append(" ".join(member.cmdline()))
    return lines


@pytest.mark.spark
def test_secret_settings_of_spark_are_not_in_the_process_list() -> None:
    code = (
        "from kafka_assets.settings import Settings; "
        "from kafka_assets.streaming.session import spark_session; "
        "session = spark_session(Settings()); "
        "print('has', session.conf.get('spark.hadoop.fs.s3a.secret.key'), flush=True); input()"
    )
    conf = f'{{"spark.hadoop.fs.s3a.secret.key": "{SECRET}"}}'
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "KAFKA_ASSETS_SPARK__CONF": conf},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        # The session has it ...
        assert process.stdout.readline().strip() == f"has {SECRET}"
        # ... and nobody sees it.
        lines = command_lines(psutil.Process(process.pid))
        assert any("java" in line for line in lines)
        assert not [line for line in lines if SECRET in line]
    finally:
        process.communicate("\n", timeout=60)


def test_a_secret_can_come_from_a_file_and_a_missing_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    kafka = KafkaSettings(secret_files={"sasl.password": file})
    assert kafka.client_config()["sasl.password"] == SECRET
    assert SECRET not in repr(kafka)
    file.unlink()
    with pytest.raises(SettingsError, match="password"):
        kafka.client_config()


@pytest.mark.parametrize(
    "rule",
    [
        "reflect('java.lang.System', 'exit', 1)",
        "java_method('java.lang.System', 'getenv') IS NULL",
        "`reflect`('java.lang.System', 'getenv') IS NULL",
        "x > 0 AND system.builtin.try_reflect('java.lang.System', 'getenv') IS NULL",
        "`system`.`builtin`.`java_method`('java.lang.System', 'getenv') IS NULL",
        "x > 0; DROP TABLE t",
        "x > 0) OR (SELECT max(x) FROM other) > 1 AND (true",
        "x IN (SELECT x FROM other)",
        "x > 0 -- )",
    ],
)
def test_a_rule_can_only_look_at_the_columns_of_its_row(rule: str) -> None:
    if rule.endswith("-- )"):
        # A comment ends with its line: this one is only a condition.
        ka.expect("fine", rule)
        return
    with pytest.raises(DeclarationError):
        ka.expect("sly", rule)


@pytest.mark.parametrize("path", ["../outside", "/etc/x", "a/../../b", "s3a://other/x", "dlq/x"])
def test_a_table_cannot_lie_outside_of_the_lake_or_over_what_is_ours(
    tmp_path: Path, path: str
) -> None:
    events = ka.kafka_topic("events")

    @ka.streaming_table(layer="bronze", path=path)
    def raw(events: Any) -> Any:
        return events

    with pytest.raises(DeclarationError, match="path"):
        graph_of(Settings(lake=str(tmp_path / "lake")), events, raw)


@pytest.mark.parametrize("topic", ["../x", "a b", "x'y", "", "..", "x" * 250])
def test_a_topic_has_a_legal_name_or_is_refused(topic: str) -> None:
    with pytest.raises(DeclarationError):
        ka.kafka_topic(topic, name="events")
