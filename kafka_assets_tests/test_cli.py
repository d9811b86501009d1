"""The command line's own part: how errors, interrupts and the version come out."""

from __future__ import annotations

import errno
import os
import sys

import pytest

from kafka_assets import __version__, cli
from kafka_assets.errors import KafkaAssetsError


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["kafka-assets", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("kafka_assets.jars.check_java", fail)


def test_the_version_is_printed(monkeypatch, capsys):
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == __version__


def test_an_error_is_one_message_with_its_fix_and_no_stack_trace(monkeypatch, capsys):
    raising(monkeypatch, KafkaAssetsError("Table [x] is gone.", fix="make it [bold]again"))
    assert run(monkeypatch, "setup") == 1
    text = capsys.readouterr().err
    assert text == "Error: Table [x] is gone.\nTo fix: make it [bold]again\n"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_disk_that_takes_nothing_is_one_message_with_the_file(monkeypatch, capsys, code):
    raising(monkeypatch, OSError(code, os.strerror(code), "/lake/a.json"))
    assert run(monkeypatch, "setup") == 1
    assert f"/lake/a.json cannot be used: {os.strerror(code)}" in capsys.readouterr().err


def test_options_that_a_form_of_the_demo_has_no_use_for_are_refused(monkeypatch, capsys):
    assert run(monkeypatch, "demo", "--lake", "x", "--json") == 2
    assert "--lake, --json: only with --once" in capsys.readouterr().err
    assert run(monkeypatch, "demo", "--once", "--per-second", "3") == 2
    assert "--per-second: only without --once" in capsys.readouterr().err


def test_debug_shows_the_stack_trace(monkeypatch):
    raising(monkeypatch, KafkaAssetsError("gone"))
    monkeypatch.setenv("KAFKA_ASSETS_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["kafka-assets", "setup"])
    with pytest.raises(KafkaAssetsError):
        cli.main()


def test_ctrl_c_exits_with_130(monkeypatch):
    raising(monkeypatch, KeyboardInterrupt())
    assert run(monkeypatch, "setup") == 130


def test_an_unknown_command_is_a_usage_error(monkeypatch, capsys):
    assert run(monkeypatch, "nope") == 2
    assert "nope" in capsys.readouterr().err
