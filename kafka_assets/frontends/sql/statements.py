"""The statements of a pipeline in SQL, as frozen values: what is written, not what it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlglot.tokenizer_core import Token

from kafka_assets.declarations.model import Action
from kafka_assets.frontends.sql.text import Source

TableKind = Literal["streaming_table", "materialized_view", "temporary_view"]
Name = tuple[str, ...]
"""A name with its catalog and schema, in lower case."""


@dataclass(frozen=True)
class Column:
    """A column of a list; its type is None where only its name or comment is said.

    Attributes:
        generated: The expression that computes it; None for what the SELECT returns.
        required: Whether NOT NULL is said.
    """

    name: str
    type: str | None
    comment: str | None
    offset: int
    generated: str | None = None
    required: bool = False


@dataclass(frozen=True)
class Constraint:
    """An expectation, or with the action None what no row may break: CHECK.

    Attributes:
        written: The name as its author wrote it; `name` is in lower case, as SQL means it.
    """

    name: str
    written: str
    condition: str
    action: Action | None
    offset: int


@dataclass(frozen=True)
class Key:
    """A PRIMARY KEY or FOREIGN KEY, which nobody enforces."""

    text: str
    offset: int


@dataclass(frozen=True)
class Property:
    """A property's value, and where its key stands."""

    value: str
    offset: int


@dataclass(frozen=True)
class Select:
    """A SELECT, as its tokens."""

    tokens: tuple[Token, ...] = field(repr=False)
    offset: int


@dataclass(frozen=True)
class TableStatement:
    """CREATE STREAMING TABLE, MATERIALIZED VIEW or TEMPORARY VIEW."""

    source: Source = field(repr=False)
    kind: TableKind
    name: Name
    offset: int
    private: bool = False
    columns: tuple[Column, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    keys: tuple[Key, ...] = ()
    comment: str | None = None
    properties: Mapping[str, Property] = field(default_factory=dict)
    partitioned_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    select: Select | None = None


@dataclass(frozen=True)
class FlowStatement:
    """CREATE FLOW ... AS INSERT INTO."""

    source: Source = field(repr=False)
    name: Name
    offset: int
    target: Name
    select: Select
    once: bool
    comment: str | None


@dataclass(frozen=True)
class ChangesStatement:
    """AUTO CDC INTO, or APPLY CHANGES INTO; without CREATE FLOW it has no name."""

    source: Source = field(repr=False)
    name: Name | None
    offset: int
    target: Name
    upstream: Name
    keys: tuple[str, ...]
    sequence_by: str
    deletes: str | None
    truncates: str | None
    columns: tuple[str, ...] | None
    except_columns: tuple[str, ...] | None
    ignore_nulls: bool
    scd_type: Literal[1, 2]
    track: tuple[str, ...] | None
    track_except: tuple[str, ...] | None


Statement = TableStatement | FlowStatement | ChangesStatement
