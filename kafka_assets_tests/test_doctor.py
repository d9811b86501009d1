"""The doctor: every part is looked at, a required problem decides, and no secret is shown."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from kafka_assets import doctor
from kafka_assets.cli import app
from kafka_assets.doctor import Finding
from kafka_assets.settings import KafkaSettings, Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(lake=str(tmp_path / "lake"))


def by_part(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.part: finding for finding in findings}


def test_every_part_is_looked_at(settings: Settings):
    parts = by_part(doctor.examine(settings)).keys()
    assert parts >= {
        "python", "java", "spark jars", "broker jars", "lake", "DAGSTER_HOME", "broker",
        "port 3000", "chromium",
    }  # fmt: skip


def test_looking_makes_no_folder(settings: Settings, tmp_path: Path):
    finding = by_part(doctor.examine(settings))["lake"]
    assert finding.ok
    assert "to be made" in finding.found
    assert list(tmp_path.iterdir()) == []


def test_a_pinned_package_of_another_version_is_a_problem(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "importlib.metadata.requires",
        lambda _name: ["rich==0.1", "typer", "no-such-package", 'mypy==0; extra == "dev"'],
    )
    found = by_part(doctor._packages())
    assert "wanted ==0.1" in found["rich"].found
    assert not found["rich"].ok
    assert found["typer"].ok
    assert found["no-such-package"].found == "missing, wanted any"
    assert "mypy" not in found


def test_missing_jars_are_a_problem_with_the_command(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("KAFKA_ASSETS_JARS", str(tmp_path / "none"))
    findings = doctor.examine(settings)
    assert "kafka-assets setup" in (by_part(findings)["spark jars"].fix or "")
    assert not doctor.healthy(findings)


def test_a_lake_that_cannot_be_written_is_a_problem(tmp_path: Path):
    (tmp_path / "file").write_text("")
    finding = doctor._lake(Settings(lake=str(tmp_path / "file")))
    assert not finding.ok
    assert "KAFKA_ASSETS_LAKE" in (finding.fix or "")


def test_a_dagster_home_that_is_no_folder_is_a_problem_and_none_is_a_remark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "none"))
    assert doctor._dagster_home().required
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    assert doctor._dagster_home().ok
    monkeypatch.delenv("DAGSTER_HOME")
    assert not doctor._dagster_home().required


def test_a_broker_that_does_not_answer_is_a_problem_only_when_it_is_configured():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{closed.getsockname()[1]}"
        kafka = KafkaSettings(bootstrap_servers=servers, request_timeout_seconds=1)
        finding = doctor._broker(Settings(kafka=kafka))
    assert not finding.ok
    assert servers in finding.found
    assert doctor._broker(Settings(kafka=KafkaSettings())).ok


def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__SECRETS", '{"sasl.password": "pa55word"}')
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:9")
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__REQUEST_TIMEOUT_SECONDS", "0.5")
    monkeypatch.setenv("KAFKA_ASSETS_LAKE", "s3a://me:pa55word@bucket/lake")
    for arguments in (["doctor"], ["doctor", "--json"]):
        result = CliRunner().invoke(app, arguments)
        assert "pa55word" not in result.output
        assert "127.0.0.1:9" in result.output


def test_a_remark_does_not_make_the_machine_unhealthy():
    good = Finding("a", "1", ok=True)
    remark = Finding("b", "missing", ok=False, required=False)
    assert doctor.healthy([good, remark])
    assert not doctor.healthy([good, Finding("c", "missing", ok=False)])


def test_the_table_says_what_to_do_about_problems_only():
    console = Console(width=120, record=True, file=io.StringIO())
    findings = [
        Finding("good", "1", ok=True, fix="never said"),
        Finding("bad", "[missing]", ok=False, fix="do [this]"),
    ]
    console.print(doctor.as_table(findings))
    text = console.export_text()
    assert "never said" not in text
    assert "[missing]" in text
    assert "do [this]" in text


def test_json_is_for_programs_and_the_exit_code_tells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("KAFKA_ASSETS_JARS", str(tmp_path / "none"))
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 1
    found = {finding["part"]: finding for finding in json.loads(result.stdout)}
    assert found["spark jars"]["ok"] is False
