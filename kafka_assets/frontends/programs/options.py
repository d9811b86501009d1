"""What the options of a program's tables mean here; what has no counterpart is named."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_assets.declarations import Expectation, Place
from kafka_assets.declarations.computed import never_null
from kafka_assets.declarations.expectations import row_rules
from kafka_assets.errors import DeclarationError
from kafka_assets.frontends.programs.columns import is_column, sql_of
from kafka_assets.frontends.programs.ddl import said_by
from kafka_assets.frontends.programs.registry import DATABRICKS, Dataset, Registry, Rule, snake

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_RULES = ("expect_all", "expect_all_or_drop", "expect_all_or_fail")
_UNUSED = {
    "path": "the lake decides where a table lies",
    "format": "tables are Delta tables",
    "cluster_by_auto": "name the columns with cluster_by",
    "refresh_policy": "a materialized view is computed anew when an upstream changed",
}


@dataclass
class Mapped:
    """A table's options.

    Attributes:
        common: Options of `declarations.common.Options`.
        quality: What the property `quality` says.
        schema: Columns that its rows are to have.
    """

    common: dict[str, Any] = field(default_factory=dict)
    quality: str | None = None
    schema: StructType | None = None


def mapped_options(registry: Registry, dataset: Dataset) -> Mapped:
    """Map the options of a table or view; problems and notes go to the registry."""
    mapped = Mapped()
    doc = inspect.getdoc(dataset.function) if dataset.function is not None else None
    mapped.common["comment"] = doc
    for option, value in dataset.options.items():
        if value is None or option in _RULES:
            continue
        take = _TAKERS.get(option)
        if take is not None:
            take(registry, dataset, mapped, value)
        elif option in _UNUSED:
            registry.note(
                f"{option}={value!r} of {dataset.written!r} is not used: {_UNUSED[option]}",
                dataset.place,
            )
        else:
            registry.problem(
                f"{option}= of {dataset.written!r} has no counterpart here",
                "remove it",
                dataset.place,
            )
    top = {k: v for k, v in registry.spark_conf.items() if not k.startswith(DATABRICKS)}
    conf = {**top, **mapped.common.get("spark_conf", {})}
    if conf:
        mapped.common["spark_conf"] = conf
    return mapped


def _comment(registry: Registry, dataset: Dataset, mapped: Mapped, value: Any) -> None:
    del registry, dataset
    mapped.common["comment"] = str(value)


def _conf(registry: Registry, dataset: Dataset, mapped: Mapped, value: Mapping[str, Any]) -> None:
    kept = {k: _text(v) for k, v in value.items() if k.startswith("spark.")}
    for name in value.keys() - kept.keys():
        registry.note(
            f"spark_conf {name}={value[name]!r} of {dataset.written!r} is not used: the settings "
            "decide when a table runs",
            dataset.place,
        )
    mapped.common["spark_conf"] = kept


def _properties(
    registry: Registry, dataset: Dataset, mapped: Mapped, value: Mapping[str, Any]
) -> None:
    kept: dict[str, str] = {}
    for name, one in value.items():
        text = _text(one)
        if name == "pipelines.reset.allowed":
            mapped.common["reset_allowed"] = text.lower() != "false"
        elif name.startswith("pipelines."):
            registry.note(
                f"the property {name}={text!r} of {dataset.written!r} is not used", dataset.place
            )
        else:
            kept[name] = text
            if name == "quality":
                mapped.quality = text.lower()
    if kept:
        mapped.common["properties"] = kept


def _columns(option: str) -> Callable[[Registry, Dataset, Mapped, Any], None]:
    def take(registry: Registry, dataset: Dataset, mapped: Mapped, value: Any) -> None:
        del registry, dataset
        names = [value] if isinstance(value, str) else list(value)
        if names:
            mapped.common[option] = names

    return take


def _private(registry: Registry, dataset: Dataset, mapped: Mapped, value: Any) -> None:
    del registry, dataset
    if value:
        mapped.common["private"] = True


def _schema(registry: Registry, dataset: Dataset, mapped: Mapped, value: Any) -> None:
    from pathlib import Path

    from kafka_assets.schemas import from_ddl

    if isinstance(value, str):
        try:
            said = said_by(value)
            mapped.schema = from_ddl(Path("schema="), said.columns)
        except ValueError as error:
            registry.problem(
                f"schema= of {dataset.written!r}: {error}",
                "name columns with types, NOT NULL, COMMENT and GENERATED ALWAYS AS only",
                dataset.place,
            )
            return
        mapped.common["generated"], mapped.common["constraints"] = said.generated, said.constraints
        mapped.common["column_comments"] = said.comments
        for key in said.keys:
            registry.note(f"{key} of {dataset.written!r} is not enforced", dataset.place)
        return
    mapped.schema = value
    comments = {f.name: str((f.metadata or {}).get("comment", "")) for f in value.fields}
    mapped.common["column_comments"] = {k: v for k, v in comments.items() if v}
    required = never_null(f.name for f in value.fields if not f.nullable)
    if required:
        mapped.common["constraints"] = required


_TAKERS: dict[str, Callable[[Registry, Dataset, Mapped, Any], None]] = {
    "comment": _comment,
    "spark_conf": _conf,
    "table_properties": _properties,
    "partition_cols": _columns("partition_by"),
    "cluster_by": _columns("cluster_by"),
    "temporary": _private,
    "private": _private,
    "schema": _schema,
}


def expectations_of(registry: Registry, dataset: Dataset) -> tuple[Expectation, ...]:
    """The expectations of a table or view, with names of the graph."""
    rules: list[Rule] = []
    if dataset.function is not None:
        rules += registry.rules_of(dataset.function)
    for option, action in zip(_RULES, ("warn", "drop", "fail"), strict=True):
        given = dataset.options.get(option) or {}
        rules += [Rule(str(k), v, action, dataset.place) for k, v in given.items()]  # type: ignore[arg-type]
    found: list[Expectation] = []
    for rule in rules:
        found.extend(_expectation(registry, rule, {one.name for one in found}))
    return tuple(found)


def _expectation(registry: Registry, rule: Rule, taken: set[str]) -> tuple[Expectation, ...]:
    name, number = snake(rule.written.replace(".", "_")), 2
    if not name.strip("t_"):
        name = "rule"
    while name in taken:
        name = f"{name.rstrip('0123456789').rstrip('_')}_{number}"
        number += 1
    if name != rule.written:
        registry.note(f"the expectation {rule.written!r} is named {name!r}", rule.place)
    text = sql_of(rule.rule) if is_column(rule.rule) else rule.rule
    if not isinstance(text, str):
        registry.problem(
            f"the expectation {rule.written!r} is a Column that has no simple SQL text",
            "write its condition as SQL text",
            rule.place,
        )
        return ()
    made: tuple[Expectation, ...] = checked(
        registry, rule.place, lambda: row_rules({name: text}, rule.action, rule.place), ()
    )
    return made


def checked(registry: Registry, place: Place, make: Callable[[], Any], otherwise: Any) -> Any:
    """What `make` gives; a refusal of a declaration becomes a problem of the program."""
    try:
        return make()
    except DeclarationError as error:
        what = error.what.replace(f" ({error.where})", "")
        registry.problem(what, error.fix or "", place)
        return otherwise


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
