"""How the query of each kind of table is started: what it reads, and what each batch does.

Whether it may start is `fence`'s, which is asked first; what a batch does is `batch`'s, `windows`',
`changes`' and `sinks`'.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kafka_assets.declarations import Changes, Read, Topic
from kafka_assets.decoding.explain import explain_json
from kafka_assets.graph import Files, Node, Outside, Source
from kafka_assets.schemas import fingerprint
from kafka_assets.settings import Settings
from kafka_assets.sources import files
from kafka_assets.sources.kafka import TopicState, producer_options, read_stream
from kafka_assets.streaming import by_value, fence
from kafka_assets.streaming.batch import run_batch, run_keyed
from kafka_assets.streaming.belonging import open_letters
from kafka_assets.streaming.changes import ChangesSpec, run_changes
from kafka_assets.streaming.creating import set_property
from kafka_assets.streaming.interpreted import engine_conf
from kafka_assets.streaming.plan import Planned, decoded_frame, folding, plan_table
from kafka_assets.streaming.plan_records import RAW
from kafka_assets.streaming.session import conf_of_a_run
from kafka_assets.streaming.spec import BatchSpec, Rule, Through
from kafka_assets.streaming.tables import LakeTable
from kafka_assets.streaming.windows import WindowSpec, run_windows, window_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

YOUNG = 50
"""A table of fewer commits is first read commit by commit."""

HELD_RECORDS = 1_000_000
"""Records of a topic in one batch of a table that looks at its batch more than once."""
HELD_BYTES = 256 * 1024**2
"""Bytes of files of another table in such a batch, or one file; in memory they are several times
as large."""


@dataclass(frozen=True)
class Run:
    """What the steps of one run share.

    Attributes:
        node: The table, or one of its flows.
        session: Where it runs.
        settings: The lake and the broker.
        run_id: Id of the run.
        planned: The table's columns.
        table: The table as it lies in the lake.
    """

    node: Node
    session: SparkSession
    settings: Settings
    run_id: str
    planned: Planned
    table: LakeTable


def start(run: Run, topics: Mapping[str, TopicState], *, alone: bool = False) -> StreamingQuery:
    """Start the query behind the fence; both again when an orphan had to be waited for.

    Args:
        run: The table or flow.
        topics: State of the topics that it reads.
        alone: The function is given each batch by itself, so that a row on which it raises can be
            found; only where the plan says that it may be.

    Raises:
        FenceRefused: Checkpoint, table and source do not fit together.
    """
    node = run.node
    table = LakeTable.existing(node.path)
    position = fence.check(node, table, topics)
    if node.flow is not None and fence.begun(node.flow) not in table.properties:
        # From now on, a checkpoint of this flow that is missing has been lost.
        set_property(run.session, node.path, fence.begun(node.flow), "true")
    with conf_of_a_run(run.session, engine_conf(node, run.session, topics, position)):
        return _start(run, position, alone=alone)


def _start(run: Run, position: fence.Position, *, alone: bool) -> StreamingQuery:
    node = run.node
    if node.table.kind == "windowed_table":
        return _start_windows(run, position)
    if node.table.changes is not None:
        return _start_changes(run, position, node.table.changes)
    if node.only_stream is not None and (alone or _looks_up_records(run)):
        return _start_alone(run, position, _read(run, position, node.only_stream, "stream"))
    frames = node.frames(lambda upstream, how: _read(run, position, upstream, how))
    if node.payload is not None:
        (raw,) = frames.values()
        return _start_batches(run, position, decoded_frame(raw, node))
    result = node.table(*frames.values())
    if node.table.keys:
        return _start_keyed(run, position, result)
    if _is_held(node):
        return _start_batches(run, position, result)
    return _start_append(run, position, result)


def _is_held(node: Node) -> bool:
    """Whether a batch is kept in memory while it is counted and written, not passed through."""
    table = node.table
    looked_at = table.expectations or table.keys or table.sink is not None
    return node.payload is not None or bool(looked_at)


def _looks_up_records(run: Run) -> bool:
    """Whether the function is given each batch by itself, for the sake of its dead letters.

    They keep their records as they were. Rows whose function computes key, value or headers do not
    have these any more, and where no bronze table has them either, only the batch knows them.
    """
    if run.planned.records != "batch" or _in_bronze(run):
        return False
    # A program's function needs this package, which a server does not have.
    return run.settings.spark.remote is None or not hasattr(run.node.table.function, "of_program")


def _in_bronze(run: Run) -> bool:
    """Whether the records of dead rows are looked up in a table upstream."""
    return run.planned.has_source and _raw_path(run.node, run.session) is not None


def batch_spec(run: Run, position: fence.Position | None = None) -> BatchSpec:
    """What a batch of this run is told."""
    node, table, planned = run.node, run.node.table, run.planned
    decodes = node.payload is not None
    return BatchSpec(
        table=node.name,
        path=node.path,
        dead_letters_path=node.dead_letters_path if open_letters(node) is not None else None,
        checkpoint=node.checkpoint,
        run_id=run.run_id,
        code_version=node.code_version,
        fingerprint=fingerprint(node.payload) if node.payload is not None else None,
        rules=tuple(Rule(e.name, e.action, e.rule, e.above) for e in table.expectations),
        columns=tuple(planned.schema.names),
        decodes=decodes,
        function=table.function if decodes else None,
        raw_path=_raw_path(node, run.session),
        has_source=planned.has_source,
        varies=planned.varies,
        replayed=-1 if position is None else position.replayed,
        committed=-1 if position is None else position.committed,
        letters_version=-1 if position is None else position.letters_version,
        sources={} if position is None else position.sources,
        explain=partial(explain_json, schema=node.payload, options=table.json)
        if node.payload is not None
        else None,
        keys=table.keys,
        sink=_sink_options(run),
        most_dead=run.settings.dead_letters.share_of(table.max_dead_share),
        guarded=run.settings.dead_letters.guarded_rows,
        keeps_records=planned.records == "row" and not _in_bronze(run),
    )


def _sink_options(run: Run) -> dict[str, str] | None:
    sink = run.node.table.sink
    if sink is None or not run.node.goes_to_kafka:
        return None
    return producer_options(sink.options, run.settings.kafka)


def _raw_path(node: Node, session: SparkSession) -> str | None:
    """The nearest table upstream that keeps records as they were."""
    upstream = node.inputs[0].source if len(node.inputs) == 1 else node.only_stream
    if not isinstance(upstream, Node):
        return None
    columns = set(plan_table(upstream, session).schema.names)
    raw = not upstream.decodes and bool(upstream.topics) and columns >= RAW
    return upstream.path if raw else _raw_path(upstream, session)


def _read(run: Run, position: fence.Position, upstream: Source, how: Read) -> DataFrame:
    held = _is_held(run.node)
    if isinstance(upstream, Topic):
        most = run.node.table.options.max_rows_per_batch
        if most is None and held:
            most = min(HELD_RECORDS, run.settings.kafka.max_offsets_per_trigger)
        return read_stream(run.session, upstream, run.settings.kafka, most=most)
    if isinstance(upstream, Files):
        read = files.read_all if how == "static" else files.read_stream
        return read(run.session, upstream)
    if how == "static":
        return run.session.read.format("delta").load(upstream.path)
    reader = run.session.readStream.format("delta")
    if held:
        reader = reader.option("maxBytesPerTrigger", HELD_BYTES)
    first = position.checkpoint.last_offsets < 0
    if how == "changes":
        reader = reader.option("readChangeFeed", True)
        if position.checkpoint.last_commit < 0 and _has_all_changes(upstream):
            reader = reader.option("startingVersion", 0)
    elif first and _only_grew(LakeTable.existing(upstream.path)):
        reader = reader.option("startingVersion", 0)
    return reader.load(upstream.path)


def _has_all_changes(upstream: Node | Outside) -> bool:
    """Whether the change feed goes back to the first row; else a reader begins with those of now.

    The feed of a table of others may have been switched on later, and old commits are cleaned up.
    """
    if isinstance(upstream, Outside):
        return False
    return any(commit.version == 0 for commit in LakeTable.existing(upstream.path).commits())


def _only_grew(upstream: LakeTable) -> bool:
    """Whether a first read can follow the upstream's few commits instead of its list of files.

    It starts sooner, and stands at a commit from its first batch on, so that the rows which it
    reads can be compared with those that the upstream's commits say it has.
    """
    commits = upstream.commits() if upstream.version < YOUNG else []
    return len(commits) == upstream.version + 1 and all(
        commit.appended or commit.operation in ("CREATE TABLE", "SET TBLPROPERTIES")
        for commit in commits
    )


def _start_append(run: Run, position: fence.Position, result: DataFrame) -> StreamingQuery:
    """A table without rules: Delta's own sink names query and batch in its commits."""
    info = {
        "run_id": run.run_id,
        "code_version": run.node.code_version,
        "sources": dict(position.sources),
    }
    return (
        result.writeStream.format("delta")
        .outputMode("append")
        .queryName(f"{run.node.name}-{run.run_id[:8]}")
        .option("checkpointLocation", run.node.checkpoint)
        .option("userMetadata", json.dumps(info))
        .trigger(availableNow=True)
        .start(run.node.path)
    )


def _start_batches(run: Run, position: fence.Position, stream: DataFrame) -> StreamingQuery:
    spec = by_value.sent(batch_spec(run, position), run.node)
    return _for_each(run, stream, partial(run_batch, spec))


def _start_alone(run: Run, position: fence.Position, stream: DataFrame) -> StreamingQuery:
    function = Through((*_through(run.node).views, run.node.table.function))
    at = "_source." if "_source" in stream.columns else ""
    spec = replace(batch_spec(run, position), function=function, at=at)
    return _for_each(run, stream, partial(run_batch, by_value.sent(spec, run.node)))


def _start_keyed(run: Run, position: fence.Position, stream: DataFrame) -> StreamingQuery:
    spec = by_value.sent(batch_spec(run, position), run.node)
    return _for_each(run, stream, partial(run_keyed, spec), mode="update")


def _start_windows(run: Run, position: fence.Position) -> StreamingQuery:
    table = run.node.table
    seconds = window_seconds(str(table.window))
    event_time = str(table.event_time)
    upstream, stream = _only_table(run, position)
    views = _through(run.node)
    spec = WindowSpec(
        table=by_value.sent(batch_spec(run, position), run.node),
        upstream_path=upstream,
        event_time=event_time,
        seconds=seconds,
        column=str(run.planned.window_column),
        function=table.function,
        through=views,
    )
    starts = views(stream).select(window_start(event_time, seconds))
    return _for_each(run, starts, partial(run_windows, spec))


def _start_changes(run: Run, position: fence.Position, changes: Changes) -> StreamingQuery:
    upstream, stream = _only_table(run, position)
    views = _through(run.node)
    spec = ChangesSpec(
        table=by_value.sent(batch_spec(run, position), run.node),
        source_path=upstream,
        folding=folding(changes),
        through=views,
    )
    return _for_each(run, views(stream), partial(run_changes, spec))


def _only_table(run: Run, position: fence.Position) -> tuple[str, DataFrame]:
    """Path and stream of the one table that is read."""
    upstream = run.node.only_stream
    if upstream is None or isinstance(upstream, Topic | Files):
        raise TypeError(f"table {run.node.name!r} reads no table, or several")
    return upstream.path, _read(run, position, upstream, "stream")


def _through(node: Node) -> Through:
    """The temporary views that a table of one upstream reads it through."""
    views = []
    (upstream,) = node.upstreams.values()
    while isinstance(upstream, Node) and upstream.is_view:
        views.append(upstream.table.function)
        (upstream,) = upstream.upstreams.values()
    return Through(tuple(reversed(views)))


def _for_each(
    run: Run, stream: DataFrame, body: Callable[[DataFrame, int], None], mode: str = "append"
) -> StreamingQuery:
    return (
        stream.writeStream.foreachBatch(body)
        .outputMode(mode)
        .queryName(f"{run.node.name}-{run.run_id[:8]}")
        .option("checkpointLocation", run.node.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def window_seconds(window: str) -> int:
    """Length of a declared window such as `"15 minutes"`, in seconds."""
    number, unit = window.split()
    sizes = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
    return int(number) * sizes[unit.rstrip("s")]
