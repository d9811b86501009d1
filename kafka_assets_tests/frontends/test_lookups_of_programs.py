"""Files that programs read as they are: which tables begin there, and which look things up."""

from __future__ import annotations

from pathlib import Path

from kafka_assets_tests.frontends.shown import (
    JSON,
    START,
    edges,
    notes,
    program,
    refused,
    tables,
    written,
)


def test_a_table_that_only_looks_files_up_does_not_begin_there(tmp_path: Path) -> None:
    loaded = written(
        tmp_path,
        START + f"@dlt.table\ndef raw(): return {JSON}.load('/in')\n"
        '@dlt.table\ndef named(): return dlt.read_stream("raw").join('
        'spark.read.schema("id INT").json("/names"), "id")\n'
        '@dlt.table\ndef both(): return dlt.read("raw").join('
        'spark.read.schema("id INT").json("/names"), "id")\n',
    )
    assert tables(loaded) == {
        "raw": "bronze streaming_table",
        "named": "silver streaming_table",
        "both": "gold materialized_view",
    }
    assert ("names", "named") in edges(loaded)


def test_a_view_that_is_looked_up_is_like_the_files_that_it_shows(tmp_path: Path) -> None:
    loaded = written(
        tmp_path,
        START + f"@dlt.table\ndef raw(): return {JSON}.load('/in')\n"
        '@dlt.view\ndef names(): return spark.read.schema("id INT").json("/names")\n'
        '@dlt.table\ndef named(): return dlt.read_stream("raw").join(dlt.read("names"), "id")\n'
        '@dlt.table\ndef both(): return dlt.read("raw").join(dlt.read("names"), "id")\n'
        '@dlt.table\ndef kept(): return dlt.read("names")\n',
    )
    assert {name: kind.split()[0] for name, kind in tables(loaded).items()} == {
        "raw": "bronze",
        "names": "silver",
        "named": "silver",
        "both": "gold",
        "kept": "bronze",
    }


def test_limits_are_those_of_the_stream_that_reads_a_folder_also_read_as_it_is(
    tmp_path: Path,
) -> None:
    limited = JSON + ".option('maxFilesPerTrigger', 5)"
    whole = 'spark.read.schema("id INT").json("/in")'
    for readers in ((limited + ".load('/in')", whole), (whole, limited + ".load('/in')")):
        loaded = written(tmp_path, program(*readers))
        assert loaded.files["in"].options == {"maxFilesPerTrigger": "5"}
    ignored = whole.replace(".json", ".option('maxFilesPerTrigger', 5).json")
    loaded = written(tmp_path, program(ignored))
    assert loaded.files["in"].options == {}
    assert notes(loaded) == ["4: maxFilesPerTrigger is not needed: all files are read"]
    other = limited.replace("5", "6")
    (problem,) = refused(tmp_path, program(limited + ".load('/in')", other + ".load('/in')"))
    assert "reads the files at '/in' in another way" in problem
