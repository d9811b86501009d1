"""What a declaration is, as frozen values: topics, tables, flows, sinks, expectations.

How they are written is `tables`, `flows` and `expectations`; how they fit together is decided in
`graph`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from kafka_assets.options import JsonOptions

Action = Literal["warn", "drop", "fail"]
Kind = Literal[
    "streaming_table", "windowed_table", "materialized_view", "temporary_view", "auto_cdc", "sink"
]
Read = Literal["stream", "static", "changes"]
Rule = str | Callable[[], Any]
Author = Callable[..., Any]

LAYERS = ("bronze", "silver", "gold")


@dataclass(frozen=True)
class Place:
    """Where a declaration stands, for messages.

    Attributes:
        file: The file.
        line: The line, from 1.
        column: The column, from 1; 0 where only the line is known.
    """

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")


@dataclass(frozen=True)
class Topic:
    """A Kafka topic that tables read.

    Attributes:
        name: The topic's snake_case name in the graph.
        topic: Its name at the broker.
        description: Shown in the Dagster UI.
        owners: Emails, or `team:name`.
        place: Where it is declared.
    """

    name: str
    topic: str
    description: str | None
    owners: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class ExternalTable:
    """A Delta table that another code location, or another program, writes.

    Attributes:
        name: Its snake_case name in this graph.
        key: Its asset key there, such as `("silver", "customers")`.
        path: Where it lies: relative to the lake, or absolute.
        description: Shown in the Dagster UI.
        place: Where it is declared.
    """

    name: str
    key: tuple[str, ...]
    path: str
    description: str | None
    place: Place


@dataclass(frozen=True)
class FileSource:
    """A folder in which files appear.

    Attributes:
        name: Its snake_case name in the graph.
        path: The folder or a pattern: relative to the lake, or absolute.
        format: Spark's name of the files' format.
        schema: A schema file's name, or columns as DDL; None for formats that have their own.
        options: Options of Spark's reader.
        description: Shown in the Dagster UI.
        owners: Emails, or `team:name`.
        place: Where it is declared.
    """

    name: str
    path: str
    format: str
    schema: str | None
    options: Mapping[str, str]
    description: str | None
    owners: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class Expectation:
    """A rule that every row of a table should keep.

    Attributes:
        name: snake_case name; also the asset check's name.
        rule: A SQL condition, or a function without arguments that returns a Column (it is
            called inside a run, because Columns need a session). NULL counts as broken.
        action: `warn` keeps the row, `drop` moves it to the dead letters, `fail` stops the batch
            before anything of it commits.
        place: Where it is declared.
        above: Of a fail rule: how many broken rows of a batch are put up with, as a share below 1
            or as a count. Those rows are kept.
    """

    name: str
    rule: Rule
    action: Action
    place: Place
    above: float = 0

    @property
    def text(self) -> str:
        """The rule as a person reads it."""
        return self.rule if isinstance(self.rule, str) else f"{self.rule.__name__}()"


TableRule = Literal["unique", "row_count", "new_rows", "values_in", "fresh"]


@dataclass(frozen=True)
class TableExpectation:
    """A rule that a table as a whole should keep; it is looked at after each run.

    Attributes:
        name: snake_case name; also the asset check's name.
        rule: What is looked at.
        columns: The columns that it is about.
        least: The smallest number allowed; None for no bound.
        most: The largest number allowed; None for no bound.
        other: For `values_in`: the table and column that have the allowed values.
        within: For `fresh`: how old the newest value may be.
        blocking: A broken rule holds back the tables downstream.
        place: Where it is declared.
    """

    name: str
    rule: TableRule
    place: Place
    columns: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    other: tuple[str, str] | None = None
    within: timedelta | None = None
    blocking: bool = False

    @property
    def text(self) -> str:
        """The rule as a person reads it."""
        columns = ", ".join(self.columns)
        if self.rule == "unique":
            return f"{columns} unique"
        if self.rule == "values_in":
            return f"{columns} in {'.'.join(self.other or ())}"
        if self.rule == "fresh":
            return f"{columns} at most {self.within} old"
        bounds = [f">= {self.least}"] if self.least is not None else []
        bounds += [f"<= {self.most}"] if self.most is not None else []
        return f"{self.rule} {' and '.join(bounds)}"


@dataclass(frozen=True)
class Changes:
    """How the rows of a source are changes to the rows of a target.

    Attributes:
        keys: Columns that say which row is meant.
        sequence_by: A SQL expression; of two changes to a row the one with the higher value is
            the later one.
        apply_as_deletes: A SQL condition: the change removes its row.
        apply_as_truncates: A SQL condition: the change removes all earlier rows.
        columns: The columns that the target gets; None for all but `except_columns`.
        except_columns: Columns that the target does not get.
        ignore_null_updates: A null in a change keeps the value that was there.
        scd_type: 1 keeps the present state of each row; 2 keeps every state with the sequence
            values `__START_AT` and `__END_AT` between which it held.
        track_history: For type 2, the columns whose change begins a new state; None for all but
            `track_history_except`. Changes of other columns are written over the present state.
        track_history_except: Columns whose change begins no new state.
    """

    keys: tuple[str, ...]
    sequence_by: str
    apply_as_deletes: str | None = None
    apply_as_truncates: str | None = None
    columns: tuple[str, ...] | None = None
    except_columns: tuple[str, ...] = ()
    ignore_null_updates: bool = False
    scd_type: Literal[1, 2] = 1
    track_history: tuple[str, ...] | None = None
    track_history_except: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableOptions:
    """How a table is laid out and run, apart from what is in it.

    Attributes:
        partition_by: Columns that the files are parted by.
        cluster_by: Columns that Delta clusters the files by (liquid clustering). It needs a Delta
            feature that deltalake and DuckDB can read and not write.
        properties: Properties of the Delta table.
        column_comments: Column name -> comment.
        generated: Column that is computed -> SQL expression on those that the function returns.
        constraints: Name -> SQL condition that Delta holds every row to, whoever writes it.
        spark_conf: Spark settings of this table's queries.
        max_rows_per_batch: A micro-batch takes about so many rows of the source at most.
        private: For this pipeline alone: its files lie in the lake, and other code locations are
            asked not to read it.
    """

    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    column_comments: Mapping[str, str] = field(default_factory=dict)
    generated: Mapping[str, str] = field(default_factory=dict)
    constraints: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    max_rows_per_batch: int | None = None
    private: bool = False


@dataclass(frozen=True)
class Sink:
    """A place outside the lake that flows write to.

    Attributes:
        name: snake_case name in the graph.
        format: `kafka` or `delta`.
        options: Of `kafka`: `topic`, and further properties of the Kafka producer that begin with
            `kafka.`; of `delta`: `path`.
        description: Shown in the Dagster UI.
        place: Where it is declared.
    """

    name: str
    format: Literal["kafka", "delta"]
    options: Mapping[str, str] = field(repr=False)
    description: str | None
    place: Place


@dataclass(frozen=True)
class Table:
    """A declared table. Called with DataFrames, it is the author's function.

    The parameters of the words that make it give the attributes' meaning. `shares` is the name that
    it would have if no other table of its text were named so in another schema: its rows may lie
    under it.
    """

    name: str
    function: Author = field(repr=False)
    kind: Kind
    layer: str
    upstreams: tuple[str, ...]
    place: Place
    expectations: tuple[Expectation, ...] = ()
    table_expectations: tuple[TableExpectation, ...] = ()
    schema: str | None = None
    json: JsonOptions = field(default_factory=JsonOptions)
    reads: Mapping[str, Read] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    changes: Changes | None = None
    freshness: timedelta | None = None
    reset_allowed: bool = True
    comment: str | None = None
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    event_time: str | None = None
    window: str | None = None
    window_column: str | None = None
    max_dead_share: float | None = None
    options: TableOptions = field(default_factory=TableOptions)
    sink: Sink | None = None
    shares: str | None = None

    def __call__(self, *frames: Any, **named: Any) -> Any:
        """Run the author's function on plain DataFrames: no broker, no Delta, no Dagster."""
        return self.function(*frames, **named)

    def expectations_that(self, action: Action) -> tuple[Expectation, ...]:
        """The expectations with this action, in declared order."""
        return tuple(e for e in self.expectations if e.action == action)

    @property
    def may_have_dead_letters(self) -> bool:
        """True when rows of this table can die: it decodes, or it has a drop rule."""
        return self.schema is not None or bool(self.expectations_that("drop"))

    @property
    def waits_for_flows(self) -> bool:
        """True when it was made by `create_streaming_table`, and flows feed it."""
        return self.function is fed_by_flows


def fed_by_flows(*_frames: Any, **_named: Any) -> Any:
    """The function of a table that has none of its own.

    Raises:
        TypeError: Always: call the flow's function instead.
    """
    raise TypeError("this table is fed by flows; call the function of one of them")


@dataclass(frozen=True)
class Flow:
    """One of the ways in which rows come into a table, with a checkpoint of its own.

    Attributes:
        name: snake_case name; its checkpoint's folder.
        target: Name of the table or sink that it feeds.
        function: From the upstreams' frames to the rows.
        upstreams: Names of the topics and tables that it reads.
        place: Where it is declared.
        schema: As in `streaming_table`.
        json: As in `streaming_table`.
        reads: As in `streaming_table`.
        once: It brings what its upstreams hold when it first runs, and never runs again.
        changes: How its rows change the target's; None when they are added to them.
    """

    name: str
    target: str
    function: Author = field(repr=False)
    upstreams: tuple[str, ...]
    place: Place
    schema: str | None = None
    json: JsonOptions = field(default_factory=JsonOptions)
    reads: Mapping[str, Read] = field(default_factory=dict)
    once: bool = False
    changes: Changes | None = None

    def __call__(self, *frames: Any, **named: Any) -> Any:
        """Run the author's function on plain DataFrames."""
        return self.function(*frames, **named)


Declaration = Topic | ExternalTable | FileSource | Table | Flow | Sink
