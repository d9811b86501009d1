"""TBLPROPERTIES -> options: those of ours by name, the rest as properties of the Delta table."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from kafka_assets.declarations.common import Options
from kafka_assets.declarations.model import LAYERS
from kafka_assets.frontends.sql.statements import Property, TableStatement
from kafka_assets.options import JsonOptions

OURS = "kafka_assets."
_JSON = f"{OURS}json."
_TAGS = f"{OURS}tags."
_CONF = f"{OURS}spark_conf."
_READS = f"{OURS}reads."


@dataclass
class Said:
    """What the properties of a table say.

    Attributes:
        layer: Its layer, when one is said.
        common: Options that all tables have.
        own: Options of a table with a function, as attributes of `Table`.
        changes: Upstreams whose change feed is read.
    """

    layer: str | None = None
    common: Options = field(default_factory=Options)
    own: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Property] = field(default_factory=dict)


def _text(value: str) -> str:
    return value


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return value.lower() == "true"


def _number(value: str) -> int:
    if not value.replace("_", "").isdecimal():
        raise ValueError("write a whole number")
    return int(value)


def _share(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError("write a number from 0 to 1") from None


def _list(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(","))


def _duration(value: str) -> timedelta:
    found = re.fullmatch(r"(\d+) (second|minute|hour|day|week)s?", value.strip().lower())
    if found is None:
        raise ValueError("write a number and a unit, such as '10 minutes'")
    return timedelta(**{f"{found[2]}s": int(found[1])})


_COMMON: dict[str, Callable[[str], Any]] = {
    "freshness": _duration,
    "reset_allowed": _flag,
    "owners": _list,
    "path": _text,
    "max_rows_per_batch": _number,
    "max_dead_share": _share,
}
_OWN: dict[str, Callable[[str], Any]] = {
    "schema": _text,
    "keys": _list,
    "event_time": _text,
    "window": _text,
    "window_column": _text,
}
_WORDS = ("layer", *_COMMON, *_OWN)


DATABRICKS = "pipelines."
"""What properties begin with that are for Databricks' own engine, but pipelines.reset.allowed."""


def said_by(statement: TableStatement, subject: str) -> Said:
    """Sort the properties of a table.

    A property `quality` that names a layer, as many pipelines have it, says the layer where
    nothing else does.

    Raises:
        DeclarationError: One that is meant for a pipeline does not exist, or has a wrong value.
    """
    said = Said()
    others: dict[str, str] = {}
    nested: dict[str, dict[str, str]] = {_JSON: {}, _TAGS: {}, _CONF: {}}
    for key, one in statement.properties.items():
        group = next((prefix for prefix in nested if key.startswith(prefix)), None)
        if group is not None:
            nested[group][key.removeprefix(group)] = one.value
        elif key.startswith(_READS):
            said.changes[key.removeprefix(_READS)] = one
        elif key.startswith(OURS):
            _ours(statement, subject, key, one, said)
        elif key == "pipelines.reset.allowed":
            said.common["reset_allowed"] = _converted(statement, subject, key, one, _flag)
        elif key.startswith(DATABRICKS):
            # Noted where the table is declared: it means nothing elsewhere.
            continue
        else:
            others[key] = one.value
    if others:
        said.common["properties"] = others
    if said.layer is None and others.get("quality") in LAYERS:
        said.layer = others["quality"]
    _keep_groups(statement, subject, nested, said)
    return said


def _keep_groups(
    statement: TableStatement, subject: str, nested: Mapping[str, dict[str, str]], said: Said
) -> None:
    if nested[_TAGS]:
        said.common["tags"] = nested[_TAGS]
    if nested[_CONF]:
        said.common["spark_conf"] = nested[_CONF]
    if nested[_JSON]:
        said.own["json"] = _json(statement, subject, nested[_JSON])


def _ours(statement: TableStatement, subject: str, key: str, one: Property, said: Said) -> None:
    word = key.removeprefix(OURS)
    if word == "layer":
        said.layer = one.value
    elif word in _COMMON:
        value = _converted(statement, subject, key, one, _COMMON[word])
        said.common[word] = value  # type: ignore[literal-required]
    elif word in _OWN:
        said.own[word] = _converted(statement, subject, key, one, _OWN[word])
    else:
        close = difflib.get_close_matches(word, _WORDS, n=1)
        raise statement.source.refused(
            subject,
            one.offset,
            f"there is no property {key!r}",
            f"did you mean '{OURS}{close[0]}'?"
            if close
            else f"use one of {', '.join(OURS + name for name in _WORDS)}, "
            f"{_JSON}*, {_TAGS}*, {_CONF}*, {_READS}*",
        )


def _converted(
    statement: TableStatement,
    subject: str,
    key: str,
    one: Property,
    convert: Callable[[str], Any],
) -> Any:
    try:
        return convert(one.value)
    except ValueError as error:
        raise statement.source.refused(
            subject, one.offset, f"{key!r} = {one.value!r} cannot be used", str(error)
        ) from None


def _json(statement: TableStatement, subject: str, given: Mapping[str, str]) -> JsonOptions:
    known = [one.name for one in fields(JsonOptions)]
    for name in given:
        if name not in known:
            raise statement.source.refused(
                subject,
                statement.properties[_JSON + name].offset,
                f"there is no property '{_JSON}{name}'",
                f"use one of {', '.join(_JSON + one for one in known)}",
            )
    try:
        choices: dict[str, Any] = dict(given)
        return JsonOptions(**choices)
    except ValueError as error:
        wrong = next(name for name in given if str(error).startswith(name))
        raise statement.source.refused(
            subject, statement.properties[_JSON + wrong].offset, str(error), "choose one of these"
        ) from None
