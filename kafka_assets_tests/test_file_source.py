"""What a file source refuses when it is declared, and what its folder's state says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kafka_assets as ka
from kafka_assets.errors import DeclarationError
from kafka_assets.graph import Graph
from kafka_assets.settings import Settings
from kafka_assets.sources.files import state_of
from kafka_assets_tests.helpers import graph_of


def graph(lake: Path, **given: Any) -> Graph:
    """One table over one file source."""
    arrived = ka.file_source("arrived", **{"path": "landing", "format": "json", **given})

    @ka.streaming_table(layer="bronze")
    def raw(arrived: Any) -> Any:
        return arrived

    return graph_of(Settings(lake=str(lake)), arrived, raw)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "jsn", "schema": "id INT"}, "there is no format 'jsn'"),
        ({"path": "a/../b", "schema": "id INT"}, "is no path"),
        ({}, "nothing says which columns its json files have"),
        ({"format": "text", "schema": "id INT"}, "text files have columns of their own"),
        ({"schema": "id WHATEVER"}, "file source 'arrived'"),
        ({"schema": "absent.ddl"}, "there is no such file"),
        ({"schema": "id INT", "options": {"mutiLine": True}}, "did you mean multiLine?"),
        ({"schema": "id INT", "options": {"mode": "DROPMALFORMED"}}, "mode='DROPMALFORMED' cannot"),
        ({"schema": "id INT", "options": {"maxFileAge": "7d"}}, "maxFileAge='7d' cannot be set"),
        (
            {"format": "text", "options": {"maxFilesPerTrigger": 1, "maxBytesPerTrigger": 9}},
            "both say how large a batch is",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_when_it_is_declared(
    tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        graph(tmp_path, **given)
    assert message in str(refused.value)
    assert "test_file_source.py:" in str(refused.value)


def test_a_path_without_a_beginning_lies_in_the_lake_and_text_that_does_not_fit_has_a_column(
    tmp_path: Path,
) -> None:
    made = graph(tmp_path, schema="id INT").files["arrived"]
    assert made.path == f"{tmp_path}/landing"
    assert made.schema.names == ["id", "_rescued_data"]
    assert graph(tmp_path, path="s3://x/y", schema="id INT").files["arrived"].path == "s3://x/y"


def test_a_windowed_table_reads_no_files_and_a_view_reads_them_as_they_are(tmp_path: Path) -> None:
    arrived = ka.file_source("arrived", "landing", format="binaryFile")

    @ka.windowed_table(layer="gold", event_time="modificationTime", window="1 hour")
    def hourly(arrived: Any) -> Any:
        return arrived.groupBy("path").count()

    @ka.materialized_view(layer="gold")
    def names(arrived: Any) -> Any:
        return arrived.select("path")

    settings = Settings(lake=str(tmp_path))
    with pytest.raises(DeclarationError, match="windowed table cannot read the files 'arrived'"):
        graph_of(settings, arrived, hourly)
    (one,) = graph_of(settings, arrived, names).tables["names"].inputs
    assert (one.source.name, one.read) == ("arrived", "static")


def test_other_columns_change_the_code_version_of_the_readers(tmp_path: Path) -> None:
    versions = {
        graph(tmp_path, schema=columns).tables["raw"].code_version
        for columns in ("id INT", "id BIGINT", "id INT")
    }
    assert len(versions) == 2


def test_a_folders_version_changes_with_its_files_alone(tmp_path: Path) -> None:
    source = graph(tmp_path, schema="id INT").files["arrived"]
    empty = state_of(source)
    assert (empty.files, empty.bytes) == (0, 0)
    inside = tmp_path / "landing" / "day=1"
    inside.mkdir(parents=True)
    (inside / "_SUCCESS").touch()
    (inside / ".draft.json").write_text("{}")
    assert state_of(source).version == empty.version
    (inside / "a.json").write_text("{}")
    one = state_of(source)
    assert (one.files, one.version != empty.version) == (1, True)
    assert state_of(source) == one
    (inside / "a.json").write_text("{ }")
    assert state_of(source).version != one.version


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("in", 3),
        ("in/a", 2),
        ("in/*/*.txt", 4),
        ("in/{a,b}/[0-9].txt", 3),
        ("in/{a,{b,c}}", 3),
        ("in/a/1.txt", 1),
        ("_in/*.txt", 1),
        ("_in", 1),
        ("in/none*", 0),
    ],
)
def test_the_files_that_are_seen_are_those_that_spark_reads(
    tmp_path: Path, path: str, seen: int
) -> None:
    names = ("a/1.txt", "a/2.txt", "b/3.txt", "a/_hidden.txt", "a/.hidden.txt", "_temporary/4.txt")
    for name in (*(f"in/{name}" for name in names), "_in/5.txt", "_in/_6.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("a line")
    below = {"recursiveFileLookup": True}
    files = graph(tmp_path, path=path, format="text", options=below).files["arrived"]
    assert state_of(files).files == seen
