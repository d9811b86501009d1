"""One run of one table: the only way in which a table is written.

The order is always the same: the table exists, the lease is held, the fence agrees, the function
fits, the batches are written, the report is read from the commits, the offsets are published.
Dagster, the command line and tests all come through `run_table`.
"""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from upath import UPath

from kafka_assets.declarations import Topic
from kafka_assets.errors import KafkaAssetsError, RunFailed, SourceError
from kafka_assets.graph import Files, Graph, Node
from kafka_assets.settings import Settings
from kafka_assets.sources import files
from kafka_assets.sources.kafka import KafkaAdmin, TopicState
from kafka_assets.streaming import collect, files_seen, places, table_rules, views
from kafka_assets.streaming.belonging import refuse_made_anew
from kafka_assets.streaming.creating import ensure_letters, ensure_table
from kafka_assets.streaming.interpreted import engine_conf
from kafka_assets.streaming.isolation import is_about_rows
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.plan import plan_table
from kafka_assets.streaming.query import (
    await_query,
    named_errors,
    start_query,
    state_figures,
    text_of,
)
from kafka_assets.streaming.report import RunReport
from kafka_assets.streaming.session import conf_of_a_run
from kafka_assets.streaming.starting import Run, batch_spec, start
from kafka_assets.streaming.tables import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

ONCE_DONE = "kafka_assets.done"
"""Stands in the checkpoint of a flow that runs once, when it has run."""


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
        FenceRefused: Checkpoint, table and source do not fit together; batches committed before
            that showed stay.
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
            options=node.table.options,
        )
        if node.may_have_dead_letters:
            ensure_letters(node.dead_letters_path, node.name)
        places.keep_place(node, settings)
        run = Run(node, session, settings, run_id, planned, table)
        streams = node.table.kind != "materialized_view"
        state: dict[str, int] = {}
        waiting = [part for part in node.parts if not _is_done(part)]
        streamed = {one.topic for part in waiting for one in part.streams if isinstance(one, Topic)}
        if streams:
            for part in node.parts:
                # A flow's own columns: the table may have some that others bring.
                own = replace(run, node=part, planned=plan_table(part, session))
                for figure, rows in _run_part(own, topics).items():
                    state[figure] = state.get(figure, 0) + rows
        else:
            with conf_of_a_run(session, engine_conf(node, session)):
                views.run_view(node, session, batch_spec(run), table)
        since = table.version if reported_version is None else reported_version
        if since > table.version:
            # The table was made anew since: nothing of this one has been reported.
            since = 0
        report = collect.report(
            node,
            planned=planned,
            run_id=run_id,
            since=since,
            started=started,
            seconds=time.monotonic() - clock,
            streams=streams,
            ends=_publish(node, settings, topics, streamed),
        )
        if state:
            report = replace(report, extra={**report.extra, **state})
        if not node.table.table_expectations:
            return report
        table = LakeTable.existing(node.path)
        rules = table_rules.look_at(
            node, session, table, new_rows=report.kept, batches=report.batches
        )
        return replace(report, table_rules=rules)


def _run_part(run: Run, topics: Mapping[str, TopicState]) -> dict[str, int]:
    """Drain the sources of a table, or of one of its flows; gives figures of its state."""
    node = run.node
    if _is_done(node):
        return {}
    files_seen.begin(node)
    try:
        query = _drained(run, topics)
    except KafkaAssetsError:
        with suppress(ValueError, OSError):
            files_seen.end(node, failed=True)
        raise
    files_seen.end(node)
    if node.flow is not None and node.flow.once:
        (UPath(node.checkpoint) / ONCE_DONE).write_text(run.run_id, encoding="utf-8")
    return state_figures(query)


def _is_done(node: Node) -> bool:
    """Whether a flow that runs once has."""
    once = node.flow is not None and node.flow.once
    return once and (UPath(node.checkpoint) / ONCE_DONE).exists()


def _drained(run: Run, topics: Mapping[str, TopicState]) -> StreamingQuery:
    """Drain; once more, with the function alone, where a row may be what it raised on."""
    try:
        return _drain(run, topics)
    except RunFailed as error:
        if not _may_be_alone(run, error):
            raise
        try:
            return _drain(run, _describe_topics(run.node, run.settings), alone=True)
        except RunFailed as second:
            raise error from second


def _may_be_alone(run: Run, error: RunFailed) -> bool:
    """Whether a row on which the function raises can be looked for in each batch by itself."""
    remote = run.settings.spark.remote is not None
    if remote and hasattr(run.node.table.function, "of_program"):
        # A program's function needs this package, which a server does not have.
        return False
    text = text_of(error.__cause__ or error)
    return run.planned.alone and is_about_rows(text)


def _drain(run: Run, topics: Mapping[str, TopicState], *, alone: bool = False) -> StreamingQuery:
    query = start_query(lambda: start(run, topics, alone=alone), run.node)
    await_query(query, run.node)
    return query


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
    topics = [topic.topic for topic in node.topics]
    return KafkaAdmin(settings.kafka).describe(topics) if topics else {}


def _require_upstreams(node: Node) -> None:
    for upstream in (one.source for one in node.inputs):
        if isinstance(upstream, Files):
            files.require(upstream, node.name)
        elif not isinstance(upstream, Topic) and LakeTable.open(upstream.path) is None:
            raise SourceError(
                f"table {node.name!r} reads {upstream.name!r}, which does not exist yet at "
                f"{upstream.path}",
                fix=f"run {upstream.name!r} first",
            )


def _properties(node: Node, settings: Settings) -> dict[str, str]:
    feed = {"delta.enableChangeDataFeed": "true"} if node.is_merged else {}
    return {
        **feed,
        **node.table.options.properties,
        "kafka_assets.table": node.name,
        "kafka_assets.layer": node.table.layer,
        "kafka_assets.path": node.path.removeprefix(settings.lake).lstrip("/"),
    }


def _publish(
    node: Node, settings: Settings, topics: Mapping[str, TopicState], streamed: Collection[str]
) -> Callable[[Mapping[tuple[str, int], int]], dict[tuple[str, int], int]]:
    """Publishes where the run came to, and answers where the topics end now."""

    def publish(positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        if not topics:
            return {}
        admin = KafkaAdmin(settings.kafka)
        now = admin.describe(topics)
        refuse_made_anew(node, {name: topics[name] for name in streamed}, now)
        if settings.kafka.group_id is not None and positions:
            # For lag tools alone: what was committed is not less true without it.
            try:
                admin.publish_offsets(f"{settings.kafka.group_id}.{node.name}", positions)
            except SourceError as error:
                warnings.warn(f"offsets are not published for lag tools: {error}", stacklevel=1)
        return {(t, p): end for t, state in now.items() for p, end in state.end.items()}

    return publish
