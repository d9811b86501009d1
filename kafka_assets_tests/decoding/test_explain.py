"""The reason for an undecodable payload; none of these tests needs a JVM."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import types as t

import kafka_assets as ka
from kafka_assets.decoding.explain import explain_json
from kafka_assets.options import JsonOptions
from kafka_assets.schemas import from_ddl
from kafka_assets_tests.decoding.corpus import DEFAULT, GROUPS, ID_NOTE, Dead, Group, one
from kafka_assets_tests.decoding.harness import as_bytes


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_every_dead_payload_has_its_reason_and_no_other_payload_has_one(group: Group) -> None:
    wrong = []
    for payload, expected in group.cases:
        reason = explain_json(as_bytes(payload), group.schema, group.options)
        fits = expected.reason in (reason or "") if isinstance(expected, Dead) else reason is None
        if not fits:
            wrong.append((str(payload)[:80], expected, reason))
    assert wrong == []


def examples() -> list[tuple[str, str, str]]:
    """The lines of the page's table: columns, payload, and what becomes of it."""
    page = Path(__file__).parents[2] / "docs" / "decoding.md"
    line = re.compile(r"\| `(.+?)` \| `(\{.+\})` \| (a row|a dead letter) \|")
    return [found.groups() for found in line.finditer(page.read_text(encoding="utf-8"))]  # type: ignore[misc]


def test_the_examples_in_the_docs_become_what_the_page_says() -> None:
    found = examples()
    assert len(found) > 20
    for columns, payload, becomes in found:
        schema = from_ddl(Path("docs/decoding.md"), columns)
        reason = explain_json(payload.encode(), schema, DEFAULT)
        assert (reason is None) == (becomes == "a row"), f"{columns} {payload}: {reason}"


def test_the_choices_in_the_docs_are_the_defaults() -> None:
    page = (Path(__file__).parents[2] / "docs" / "decoding.md").read_text(encoding="utf-8")
    (choices,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    assert eval(choices, {"ka": ka}) == JsonOptions()


def test_a_reason_never_quotes_more_than_80_characters_of_a_value() -> None:
    reason = explain_json(b'{"x":"%s"}' % (b"9" * 5000), one(t.LongType()), DEFAULT)
    assert reason is not None
    assert "..." in reason
    assert len(reason) < 110


def test_a_payload_of_ten_megabytes_is_read_whole() -> None:
    payload = b'{"note":"%s"}' % (b"x\\n" * 3_500_000)
    assert explain_json(payload, ID_NOTE, DEFAULT) is None
    reason = explain_json(payload + b"}", ID_NOTE, DEFAULT)
    assert reason == f"characters after the JSON object, at character {len(payload)}"


def test_the_reason_can_be_found_where_our_package_is_not_importable() -> None:
    check = (
        "import sys, pathlib; sys.modules['kafka_assets'] = None; names = {'__name__': 'sent'};"
        "exec(compile(pathlib.Path(sys.argv[1]).read_text(), 'sent', 'exec'), names);"
        "from pyspark.sql.types import StructType;"
        "print(names['explain_json'](None, StructType(), None))"
    )
    path = sys.modules[explain_json.__module__].__file__
    assert path is not None
    command = [sys.executable, "-c", check, path]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "null value (tombstone)\n"
