"""Operations on tables as Dagster jobs, and the schedule that removes old dead letters.

Each job is one step around a function of `operations`, which the command line calls too. What was
done shows on the asset's page: as an observation, or as a materialization where the table changed.
"""

# Without `annotations` from `__future__`: Dagster looks at the type of `context`, not at its name.
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from kafka_assets.errors import KafkaAssetsError, LeaseHeld
from kafka_assets.graph import Graph, Node
from kafka_assets.operations import letters
from kafka_assets.operations.repair import accept_loss, repair
from kafka_assets.operations.replay import replay
from kafka_assets.operations.reset import reset
from kafka_assets.orchestration import heartbeat
from kafka_assets.orchestration.history import Position
from kafka_assets.orchestration.names import (
    EMPTIED,
    POSITION,
    REPAIRED,
    dead_letters_key,
    table_key,
)
from kafka_assets.settings import Settings
from kafka_assets.streaming.tables import LakeTable

PURGE = "dead_letters_purge"


class Which(dg.Config):
    """Which dead letters a job is about."""

    table: str = Field(description="The table.")
    rule: str | None = Field(default=None, description="A rule, (undecodable) or (raised).")
    reason: str | None = Field(default=None, description="Regular expression in the reason.")
    since: str | None = Field(default=None, description="Died at this time or later (ISO-8601).")
    until: str | None = Field(default=None, description="Died before this time (ISO-8601).")
    topic: str | None = Field(default=None, description="Topic of the record.")
    partition: int | None = Field(default=None, description="Partition of the record.")
    first_offset: int | None = Field(default=None, description="First offset, included.")
    last_offset: int | None = Field(default=None, description="Last offset, included.")

    def filter(self, statuses: tuple[letters.Status, ...] = letters.OPEN) -> letters.Filter:
        """The same for `operations`."""
        offsets = None
        if self.first_offset is not None or self.last_offset is not None:
            first = self.first_offset or 0
            offsets = (first, 2**63 - 1 if self.last_offset is None else self.last_offset)
        return letters.Filter(
            rule=self.rule,
            reason=self.reason,
            since=None if self.since is None else datetime.fromisoformat(self.since),
            until=None if self.until is None else datetime.fromisoformat(self.until),
            topic=self.topic,
            partition=self.partition,
            offsets=offsets,
            statuses=statuses,
        )


class Show(Which):
    """Which dead letters to show whole."""

    closed: bool = Field(default=False, description="Also replayed and discarded ones.")
    limit: int = Field(default=20, ge=1, le=200, description="At most so many, newest first.")


class Replay(Which):
    """Which dead letters to try again."""

    dry_run: bool = Field(default=False, description="Only say what would happen.")


class Discard(Which):
    """Which dead letters to give up, and why."""

    because: str = Field(description="Why.")


class Purge(dg.Config):
    """Whose old dead letters to remove."""

    tables: list[str] = Field(default=[], description="Tables; none stands for all.")


class OneTable(dg.Config):
    """A table, and why something is done to it."""

    table: str = Field(description="The table.")
    because: str = Field(default="", description="Why; kept in the lake.")


class Repair(OneTable):
    """A table whose checkpoint is to be repaired."""

    accept_loss: bool = Field(default=False, description="Also where unread records may be gone.")


class Reset(OneTable):
    """A table to build anew."""

    downstream: bool = Field(default=False, description="Also every table that depends on it.")
    accept: str | None = Field(
        default=None, description="The words that accept a loss, as the refusal gives them."
    )


def operation_jobs(graph: Graph, settings: Settings) -> list[dg.JobDefinition]:
    """The jobs of a graph's tables.

    Args:
        graph: The tables.
        settings: The lake and the broker.
    """
    ops = (
        _on_letters(graph, settings)
        | _on_old_letters(graph, settings)
        | _on_tables(graph, settings)
    )
    return [
        dg.GraphDefinition(name, node_defs=[op]).to_job(
            description=op.description, executor_def=dg.in_process_executor
        )
        for name, op in ops.items()
    ]


def purge_schedule(settings: Settings) -> dg.ScheduleDefinition:
    """Removes old dead letters each night, where a retention is set.

    Args:
        settings: `dead_letters.retention_days` decides whether it runs by default.
    """
    set_ = settings.dead_letters.retention_days is not None
    return dg.ScheduleDefinition(
        name=f"{PURGE}_nightly",
        job_name=PURGE,
        cron_schedule="17 3 * * *",
        description="Removes replayed and discarded dead letters older than the retention.",
        default_status=(
            dg.DefaultScheduleStatus.RUNNING if set_ else dg.DefaultScheduleStatus.STOPPED
        ),
    )


def _on_letters(graph: Graph, settings: Settings) -> dict[str, dg.OpDefinition]:
    @dg.op(description="Show dead letters on the page of their asset.")
    def list_dead_letters(context: dg.OpExecutionContext, config: Which) -> None:
        node = _node(graph, config.table)
        found = _tried(letters.find, node, config.filter())[::-1]
        lines = ["| record | rules | reason |", "| --- | --- | --- |"]
        for letter in found[:50]:
            topic, partition, offset = letter.at
            why = letter.reason.replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {topic}/{partition} {offset} | {', '.join(letter.rules)} | {why} |")
        _observe(
            context,
            dead_letters_key(node),
            open=len(found),
            letters=dg.MetadataValue.md("\n".join(lines)),
        )

    @dg.op(description="Show dead letters whole: raw bytes, reason, and what became of them.")
    def show_dead_letters(context: dg.OpExecutionContext, config: Show) -> None:
        node = _node(graph, config.table)
        statuses = letters.STATUSES if config.closed else letters.OPEN
        found = _tried(letters.find, node, config.filter(statuses))[::-1]
        shown = [letter.as_json() for letter in found[: config.limit]]
        _observe(
            context,
            dead_letters_key(node),
            found=len(found),
            letters=dg.MetadataValue.json(shown),
        )

    @dg.op(description="Try dead letters again with today's code; exactly once.")
    def replay_dead_letters(
        context: dg.OpExecutionContext, config: Replay, spark: LazyPySparkResource
    ) -> None:
        node = _node(graph, config.table)
        report = _tried(
            replay,
            node,
            spark.spark_session,
            settings,
            config.filter(),
            by=_by(context),
            run_id=context.run_id,
            dry_run=config.dry_run,
        )
        figures = {
            "tried": report.tried,
            "replayed": report.replayed,
            "rows": report.rows,
            "still_dead": sum(report.still_dead.values()),
            "reasons": dg.MetadataValue.json(dict(report.still_dead)),
            "replay_id": report.replay_id,
        }
        _observe(context, dead_letters_key(node), **figures)
        if report.rows and not report.dry:
            _materialized(context, node, **figures)

    @dg.op(description="Mark dead letters as given up. Nothing is deleted.")
    def discard_dead_letters(context: dg.OpExecutionContext, config: Discard) -> None:
        node = _node(graph, config.table)
        count = _tried(
            letters.discard,
            node,
            settings,
            config.filter(),
            reason=config.because,
            by=_by(context),
            run_id=context.run_id,
        )
        _observe(context, dead_letters_key(node), discarded=count, reason=config.because)

    return {
        "dead_letters_list": list_dead_letters,
        "dead_letters_show": show_dead_letters,
        "dead_letters_replay": replay_dead_letters,
        "dead_letters_discard": discard_dead_letters,
    }


def _on_old_letters(graph: Graph, settings: Settings) -> dict[str, dg.OpDefinition]:
    @dg.op(description="Remove replayed and discarded dead letters older than the retention.")
    def purge_dead_letters(context: dg.OpExecutionContext, config: Purge) -> None:
        _tried(letters.require_retention, settings)
        nodes = [_node(graph, name) for name in config.tables or graph.tables]
        failed = []
        for node in nodes:
            try:
                count = letters.purge(node, settings)
            except LeaseHeld as held:
                context.log.warning(f"{held}. Its old letters go with the next purge.")
            except KafkaAssetsError as error:
                failed.append(str(error))
            else:
                if count:
                    _observe(context, dead_letters_key(node), purged=count)
        if failed:
            raise dg.Failure(description="\n".join(failed), allow_retries=False)

    return {PURGE: purge_dead_letters}


def _on_tables(graph: Graph, settings: Settings) -> dict[str, dg.OpDefinition]:
    @dg.op(description="Repair a checkpoint where that loses and doubles nothing.")
    def repair_checkpoint(context: dg.OpExecutionContext, config: Repair) -> None:
        node = _node(graph, config.table)
        done = _tried(
            repair,
            node,
            settings,
            accept=config.accept_loss,
            by=_by(context),
            run_id=context.run_id,
        )
        _observe(context, table_key(node), tags={REPAIRED: "true"}, repair=done)

    @dg.op(description="Write down records that are gone unread, and go on behind them.")
    def accept_lost_records(context: dg.OpExecutionContext, config: OneTable) -> None:
        node = _node(graph, config.table)
        lost = _tried(
            accept_loss,
            node,
            settings,
            reason=config.because,
            by=_by(context),
            run_id=context.run_id,
        )
        said = ", ".join(map(str, lost)) or "nothing"
        _observe(
            context, table_key(node), tags={REPAIRED: "true"}, lost=said, reason=config.because
        )

    @dg.op(description="Build tables anew from their sources; refused if rows would be lost.")
    def reset_tables(context: dg.OpExecutionContext, config: Reset) -> None:
        report = _tried(
            reset,
            graph,
            config.table,
            settings,
            downstream=config.downstream,
            accept=config.accept,
            reason=config.because,
            by=_by(context),
            run_id=context.run_id,
            progress=context.log.info,
        )
        for name in report.tables:
            _materialized(context, graph.tables[name], anew=True, reset=report.phrase or "no loss")

    return {
        "repair": repair_checkpoint,
        "accept_loss": accept_lost_records,
        "reset": reset_tables,
    }


def _node(graph: Graph, name: str) -> Node:
    return _tried(letters.table_of, graph, name)  # type: ignore[no-any-return]


def _tried(work: Any, *args: Any, **options: Any) -> Any:
    try:
        return work(*args, **options)
    except KafkaAssetsError as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error


def _by(context: dg.OpExecutionContext) -> str:
    return context.run.tags.get("user") or f"dagster ({letters.user()})"


def _observe(
    context: dg.OpExecutionContext,
    key: dg.AssetKey,
    *,
    tags: Mapping[str, str] | None = None,
    **metadata: Any,
) -> None:
    context.log_event(dg.AssetObservation(asset_key=key, metadata=metadata, tags=tags))


def _materialized(
    context: dg.OpExecutionContext, node: Node, *, anew: bool = False, **metadata: Any
) -> None:
    table = LakeTable.open(node.path)
    if table is None:
        return
    tags = {"dagster/data_version": table.data_version}
    if anew:
        # Without offsets all of a topic is lag; a table below the first is known by the tag.
        tags[EMPTIED] = "true"
        metadata[POSITION] = Position(table.table_id, table.version, {}).as_metadata()
    context.log_event(
        dg.AssetMaterialization(
            asset_key=table_key(node),
            metadata=metadata,
            tags=tags,
        )
    )
    if not anew:
        for result in heartbeat.checks_again(context.instance, node):
            # Dagster takes check results here, though its signature does not say so.
            context.log_event(result)  # type: ignore[arg-type]
