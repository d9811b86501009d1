"""One run of one table: the only way in which a table is written.

The order is always the same: the table exists, the lease is held, the fence agrees, the function
fits, the batches are written, the report is read from the commits, the offsets are published.
Dagster, the command line and tests all come through `run_table`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from kafka_assets.declarations import Topic
from kafka_assets.decoding.explain import explain_json
from kafka_assets.errors import SourceError
from kafka_assets.graph import Graph, Node
from kafka_assets.schemas import fingerprint
from kafka_assets.settings import Settings
from kafka_assets.sources.kafka import KafkaAdmin, TopicState, read_stream
from kafka_assets.streaming import by_value, collect, fence, places, views
from kafka_assets.streaming.batch import run_batch
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.plan import Planned, decoded_frame, plan_table
from kafka_assets.streaming.query import await_query, named_errors, start_query
from kafka_assets.streaming.report import RunReport
from kafka_assets.streaming.spec import BatchSpec, Rule
from kafka_assets.streaming.tables import LakeTable, ensure_letters, ensure_table
from kafka_assets.streaming.windows import WindowSpec, run_windows, window_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True)
class Run:
    """What the steps of one run share."""

    node: Node
    session: SparkSession
    settings: Settings
    run_id: str
    planned: Planned
    table: LakeTable


def run_table(
    node: Node,
    session: SparkSession,
    settings: Settings,
    *,
    run_id: str | None = None,
    reported_version: int | None = None,
) -> RunReport:
    """Bring one table up to date with its upstreams, and stop.

    Args:
        node: The table, from a validated graph.
        session: A classic or Spark Connect session.
        settings: The lake and the broker.
        run_id: Id of the run, written into every commit; by default a new one.
        reported_version: Version of the table that the last report ended at; commits since then
            are reported, also those of runs that died before they could. By default only this
            run's own.

    Returns:
        What the run did. Running again without new data returns a report of nothing.

    Raises:
        PlanError: The function does not fit its inputs; nothing was read.
        PlaceChanged: The table is declared in another place than where its rows lie.
        LeaseHeld: Another run is writing the table.
        FenceRefused: Checkpoint, table and source do not fit together; nothing was written.
        ExpectationFailed: A batch broke an `expect_or_fail` rule; nothing of it was committed.
        DeadShareExceeded: Too many rows of a batch would have died; nothing of it was committed.
        SourceError: The broker or a topic cannot be read.
        LakeError: The lake cannot be read or written.
        RunFailed: The engine stopped the run; batches committed before stay.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    run_id = run_id or str(uuid.uuid4())
    with named_errors(node):
        planned = plan_table(node, session)
    with lease(node, settings, run_id), named_errors(node):
        topics = _describe_topics(node, settings)
        _require_upstreams(node)
        places.refuse_other_place(node, settings)
        table = ensure_table(
            session,
            node.path,
            planned.schema,
            name=node.name,
            properties=_properties(node, settings),
            comment=node.table.comment,
        )
        if node.table.may_have_dead_letters:
            ensure_letters(session, node.dead_letters_path, node.name)
        places.keep_place(node, settings)
        run = Run(node, session, settings, run_id, planned, table)
        if node.table.kind == "materialized_view":
            views.run_view(node, session, batch_spec(run), table)
            checkpoint = None
        else:
            await_query(start_query(lambda: _start(run, topics), node), node)
            checkpoint = node.checkpoint
        since = table.version if reported_version is None else reported_version
        if since > table.version:
            # The table was made anew since: nothing of this one has been reported.
            since = 0
        return collect.report(
            node,
            planned=planned,
            run_id=run_id,
            since=since,
            started=started,
            seconds=time.monotonic() - clock,
            checkpoint=checkpoint,
            ends=_publish(node, settings, topics),
        )


def run_graph(
    graph: Graph,
    session: SparkSession,
    settings: Settings,
    *,
    names: tuple[str, ...] = (),
    on_report: Callable[[RunReport], None] = lambda report: None,
) -> dict[str, RunReport]:
    """Run tables one after the other in graph order, without Dagster.

    Args:
        graph: The tables.
        session: A classic or Spark Connect session.
        settings: The lake and the broker.
        names: The tables to run; by default all.
        on_report: Called after each table.

    Returns:
        Table name -> report.

    Raises:
        KafkaAssetsError: As `run_table`; tables before the failing one have been run.
    """
    reports: dict[str, RunReport] = {}
    for node in graph.tables.values():
        if not names or node.name in names:
            reports[node.name] = run_table(node, session, settings)
            on_report(reports[node.name])
    return reports


def _describe_topics(node: Node, settings: Settings) -> dict[str, TopicState]:
    topics = [u.topic for u in node.upstreams.values() if isinstance(u, Topic)]
    return KafkaAdmin(settings.kafka).describe(topics) if topics else {}


def _require_upstreams(node: Node) -> None:
    for upstream in node.upstreams.values():
        if isinstance(upstream, Node) and LakeTable.open(upstream.path) is None:
            raise SourceError(
                f"table {node.name!r} reads {upstream.name!r}, which does not exist yet at "
                f"{upstream.path}",
                fix=f"run {upstream.name!r} first",
            )


def _properties(node: Node, settings: Settings) -> dict[str, str]:
    return {
        "kafka_assets.table": node.name,
        "kafka_assets.layer": node.table.layer,
        "kafka_assets.path": node.path.removeprefix(settings.lake).lstrip("/"),
    }


def batch_spec(run: Run, position: fence.Position | None = None) -> BatchSpec:
    """What a batch of this run is told."""
    node, table = run.node, run.node.table
    upstream = node.only_upstream if len(node.upstreams) == 1 else None
    decodes = node.payload is not None
    return BatchSpec(
        table=node.name,
        path=node.path,
        dead_letters_path=node.dead_letters_path if table.may_have_dead_letters else None,
        checkpoint=node.checkpoint,
        run_id=run.run_id,
        code_version=node.code_version,
        fingerprint=fingerprint(node.payload) if node.payload is not None else None,
        rules=tuple(Rule(e.name, e.action, e.rule) for e in table.expectations),
        columns=tuple(run.planned.schema.names),
        decodes=decodes,
        function=table.function if decodes else None,
        raw_path=None if decodes and isinstance(upstream, Topic) else _raw_path(node),
        has_source=run.planned.has_source,
        replayed=-1 if position is None else position.replayed,
        committed=-1 if position is None else position.committed,
        letters_version=-1 if position is None else position.letters_version,
        explain=partial(explain_json, schema=node.payload, options=table.json)
        if node.payload is not None
        else None,
        most_dead=run.settings.dead_letters.max_share
        if table.max_dead_share is None
        else table.max_dead_share,
        guarded=run.settings.dead_letters.guarded_rows,
    )


def _raw_path(node: Node) -> str | None:
    """The nearest table upstream that keeps the raw bytes."""
    if len(node.upstreams) != 1 or isinstance(node.only_upstream, Topic):
        return None
    upstream = node.only_upstream
    raw = upstream.payload is None and any(
        isinstance(u, Topic) for u in upstream.upstreams.values()
    )
    return upstream.path if raw else _raw_path(upstream)


def _start(run: Run, topics: Mapping[str, TopicState]) -> StreamingQuery:
    """Start the query behind the fence; both again when an orphan had to be waited for."""
    node = run.node
    position = fence.check(node, LakeTable.existing(node.path), topics)
    stream = _read(run)
    if node.table.kind == "windowed_table":
        return _start_windows(run, position, stream)
    if node.payload is not None:
        return _start_batches(run, position, decoded_frame(stream, node))
    result = node.table(stream)
    if node.table.expectations:
        return _start_batches(run, position, result)
    return _start_append(run, result)


def _read(run: Run) -> DataFrame:
    upstream = run.node.only_upstream
    if isinstance(upstream, Topic):
        return read_stream(run.session, upstream, run.settings.kafka)
    return run.session.readStream.format("delta").load(upstream.path)


def _start_append(run: Run, result: DataFrame) -> StreamingQuery:
    """A table without rules: Delta's own sink names query and batch in its commits."""
    return (
        result.writeStream.format("delta")
        .outputMode("append")
        .queryName(f"{run.node.name}-{run.run_id[:8]}")
        .option("checkpointLocation", run.node.checkpoint)
        .option("userMetadata", _run_info(run))
        .trigger(availableNow=True)
        .start(run.node.path)
    )


def _start_batches(run: Run, position: fence.Position, stream: DataFrame) -> StreamingQuery:
    spec = by_value.sent(batch_spec(run, position), run.node)
    return _for_each(run, stream, partial(run_batch, spec))


def _start_windows(run: Run, position: fence.Position, stream: DataFrame) -> StreamingQuery:
    table = run.node.table
    seconds = window_seconds(str(table.window))
    event_time = str(table.event_time)
    spec = WindowSpec(
        table=by_value.sent(batch_spec(run, position), run.node),
        upstream_path=run.node.upstream_table.path,
        event_time=event_time,
        seconds=seconds,
        column=str(run.planned.window_column),
        function=table.function,
    )
    starts = stream.select(window_start(event_time, seconds))
    return _for_each(run, starts, partial(run_windows, spec))


def _for_each(
    run: Run, stream: DataFrame, body: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    return (
        stream.writeStream.foreachBatch(body)
        .queryName(f"{run.node.name}-{run.run_id[:8]}")
        .option("checkpointLocation", run.node.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def _run_info(run: Run) -> str:
    return json.dumps({"run_id": run.run_id, "code_version": run.node.code_version})


def window_seconds(window: str) -> int:
    """Length of a declared window such as `"15 minutes"`, in seconds."""
    number, unit = window.split()
    sizes = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
    return int(number) * sizes[unit.rstrip("s")]


def _publish(
    node: Node, settings: Settings, topics: Mapping[str, TopicState]
) -> Callable[[Mapping[tuple[str, int], int]], dict[tuple[str, int], int]]:
    """Publishes where the run came to, and answers where the topics end now."""

    def publish(positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        if not topics:
            return {}
        admin = KafkaAdmin(settings.kafka)
        if settings.kafka.group_id is not None and positions:
            admin.publish_offsets(f"{settings.kafka.group_id}.{node.name}", positions)
        now = admin.describe(topics)
        return {(t, p): end for t, state in now.items() for p, end in state.end.items()}

    return publish
