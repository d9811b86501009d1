"""Assembly: what is loaded, and what is refused before anything runs."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import dagster as dg
import pytest

import kafka_assets as ka
from kafka_assets.errors import DeclarationError
from kafka_assets.graph import pipeline_modules
from kafka_assets.orchestration.build import build_defs
from kafka_assets.settings import Settings
from kafka_assets_tests.orchestration.harness import pipeline

SETTINGS = Settings(lake="/lake")


def module_of(*declared: ka.Table | ka.Topic) -> ModuleType:
    module = ModuleType("made")
    for one in declared:
        setattr(module, one.name, one)
    return module


def test_a_package_stands_for_all_modules_in_it(tmp_path, monkeypatch):
    package = tmp_path / "some_pipelines"
    (package / "deeper").mkdir(parents=True)
    for file in ("__init__.py", "first.py", "deeper/__init__.py", "deeper/second.py"):
        (package / file).write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = pipeline_modules(importlib.import_module("some_pipelines"))
    assert [m.__name__ for m in found] == [
        "some_pipelines",
        "some_pipelines.deeper",
        "some_pipelines.deeper.second",
        "some_pipelines.first",
    ]
    for module in found:
        del sys.modules[module.__name__]


def test_modules_are_given_one_by_one():
    defs = build_defs([pipeline("a"), pipeline("b")], SETTINGS)
    assert len(defs.resolve_all_asset_specs()) == 2 * 5


def test_a_code_location_without_tables_loads():
    defs = build_defs([module_of(ka.kafka_topic("lonely"))], SETTINGS)
    dg.Definitions.validate_loadable(defs)
    assert [s.key.path for s in defs.resolve_all_asset_specs()] == [["kafka", "lonely"]]


def test_an_unknown_upstream_is_refused_by_name():
    @ka.streaming_table(layer="bronze")
    def raw(evnets): ...

    with pytest.raises(DeclarationError, match=r"'raw'.*test_build\.py:\d+.*'evnets'"):
        build_defs([module_of(ka.kafka_topic("events"), raw)], SETTINGS)


def test_an_expectation_may_not_take_the_name_of_a_conservation_check():
    @ka.streaming_table(layer="bronze")
    @ka.expect("rows_returned", "offset > 0")
    def raw(events): ...

    with pytest.raises(DeclarationError, match=r"'rows_returned'.*every table gets by itself"):
        build_defs([module_of(ka.kafka_topic("events"), raw)], SETTINGS)


def test_a_tag_that_dagster_refuses_names_the_table():
    @ka.streaming_table(layer="bronze", tags={"not a tag!": "x"})
    def raw(events): ...

    with pytest.raises(DeclarationError, match=r"table 'raw' .*not a tag!"):
        build_defs([module_of(ka.kafka_topic("events"), raw)], SETTINGS)


def test_tables_with_names_that_dagster_reserves_load():
    def input(events): ...

    table = ka.streaming_table(layer="bronze")(input)
    build_defs([module_of(ka.kafka_topic("events"), table)], SETTINGS)
