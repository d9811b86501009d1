"""Topics, folders, tables, views and sinks as Dagster assets, and the one step that runs a table.

The step is thin: it asks the instance how far reports reach, calls `streaming.run.run_table`, and
turns its report, or its error, into events. Whatever concerns rows belongs to `streaming`.
"""

# Without `annotations` from `__future__`: Dagster looks at the type of `context`, not at its name.
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from kafka_assets.declarations import Place, Topic
from kafka_assets.errors import (
    DeclarationError,
    ExpectationFailed,
    KafkaAssetsError,
    SourceError,
)
from kafka_assets.graph import Files, Graph, Node, Outside
from kafka_assets.orchestration import metadata
from kafka_assets.orchestration.automation import table_condition
from kafka_assets.orchestration.checks import check_results, check_specs, failed_results
from kafka_assets.orchestration.history import Materialization, Position, latest
from kafka_assets.orchestration.names import (
    FAILED_CODE,
    FAILED_TABLE,
    FAILURE,
    asked_version,
    dead_letters_key,
    group_of,
    keys_of,
    table_key,
    topic_key,
    upstream_key,
    uri_of,
)
from kafka_assets.settings import Settings
from kafka_assets.streaming.report import RunReport, summary
from kafka_assets.streaming.run import run_table

RETRIES = dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL)
"""For a broker that is away for a moment. Longer troubles are `kafka_lag`'s to repeat."""

Events = Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]
RunTable = Callable[..., RunReport]


def topic_asset(topic: Topic, settings: Settings) -> dg.AssetSpec:
    """A topic: an asset that Dagster does not make, and `kafka_lag` reports."""
    return _spec(
        f"topic {topic.name!r}",
        topic.place,
        key=topic_key(topic),
        description=topic.description or f"The Kafka topic `{topic.topic}`.",
        kinds={"kafka"},
        group_name=group_of(topic.place),
        owners=list(topic.owners),
        metadata=metadata.topic_definition(topic, settings),
    )


def outside_asset(outside: Outside) -> dg.AssetSpec:
    """A table that another code location makes; with its key, lineage joins the two."""
    declaration = outside.declaration
    return _spec(
        f"external table {outside.name!r}",
        declaration.place,
        key=upstream_key(outside),
        description=declaration.description,
        metadata={"dagster/uri": dg.MetadataValue.text(uri_of(outside.path))},
    )


def files_asset(files: Files) -> dg.AssetSpec:
    """A folder of files, as the source of what reads it."""
    declaration = files.declaration
    return _spec(
        f"file source {files.name!r}",
        declaration.place,
        key=upstream_key(files),
        description=declaration.description or f"Files at `{files.path}`.",
        kinds={"file"},
        group_name=group_of(declaration.place),
        owners=list(declaration.owners),
        metadata={"dagster/uri": dg.MetadataValue.text(uri_of(files.path))},
    )


def view_asset(view: Node) -> dg.AssetSpec:
    """A temporary view: an asset without files, materialized when what it reads was."""
    return _spec(
        f"view {view.name!r}",
        view.table.place,
        key=table_key(view),
        deps=_deps(view),
        description=view.table.comment,
        kinds={"spark", "view"},
        group_name=group_of(view.table.place),
        code_version=view.code_version,
    )


def table_asset(
    node: Node, graph: Graph, settings: Settings, *, run: RunTable = run_table
) -> dg.AssetsDefinition:
    """A table with its dead letters and its checks.

    Args:
        node: The table.
        graph: The graph that it is of.
        settings: The lake and the broker.
        run: What brings the table up to date.
    """
    specs = [_table_spec(node, graph)]
    if node.may_have_dead_letters:
        specs.append(_dead_letters_spec(node))

    @dg.multi_asset(
        name=f"{node.table.layer}__{node.name}",
        specs=specs,
        check_specs=check_specs(node),
        # One writer for a checkpoint, whoever starts the runs.
        pool=f"{node.table.layer}/{node.name}",
        retry_policy=RETRIES,
    )
    def step(context: dg.AssetExecutionContext, spark: LazyPySparkResource) -> Events:
        last = latest(context.instance, keys_of(node))
        before = last.get(table_key(node))
        # Nothing known is version 0: commits of a first run that died before its report count too.
        reported = Position() if before is None or before.position is None else before.position
        try:
            report = run(
                node,
                spark.spark_session,
                settings,
                run_id=context.run.run_id,
                reported_version=reported.version,
            )
        except KafkaAssetsError as error:
            _tag_failure(context, node, settings, _kind(error))
            if isinstance(error, ExpectationFailed):
                yield from failed_results(node, error)
            raise _failure(node, error) from error
        context.log.info(summary(report))
        for view in _views_of(node, graph) if report.batches else ():
            # So that what reads the view sees something new above it, and which run brought it.
            context.log_event(_view_event(view, node, report))
        if not all(equality.holds for equality in report.conservation):
            _tag_failure(context, node, settings, "rows_unaccounted")
        yield from _results(node, report, reported, last.get(dead_letters_key(node)))

    return step


def _views_of(node: Node, graph: Graph) -> list[Node]:
    """The temporary views that read a table, directly or through each other."""
    return [
        view
        for view in graph.views.values()
        if node.name in {one.source.name for one in view.inputs}
    ]


def _view_event(view: Node, node: Node, report: RunReport) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        table_key(view),
        description=f"It shows what {node.name} holds.",
        tags={"dagster/data_version": f"{node.name}:{report.data_version}"},
    )


def _results(
    node: Node, report: RunReport, reported: Position, letters: Materialization | None
) -> Events:
    yield dg.MaterializeResult(
        asset_key=table_key(node),
        metadata=metadata.table_run(node, report, position_after(reported, report)),
        data_version=dg.DataVersion(report.data_version),
        check_results=list(check_results(node, report)),
    )
    known = None if letters is None else letters.data_version
    if report.dead_letters_version is not None and report.dead_letters_version != known:
        yield dg.MaterializeResult(
            asset_key=dead_letters_key(node),
            metadata=metadata.dead_letters_run(report),
            data_version=dg.DataVersion(report.dead_letters_version),
        )


def position_after(before: Position, report: RunReport) -> Position:
    """How far a table's reports reach after a run; partitions that were not read stay."""
    # A data version is the table's id and a version.
    table = report.data_version.split(":")[0]
    read = {partition: end for partition, (_, end) in report.offsets.items()}
    known = before.offsets if before.table == table else {}
    return Position(table, report.version_to, {**known, **read})


def _table_spec(node: Node, graph: Graph) -> dg.AssetSpec:
    table = node.table
    return _spec(
        f"table {node.name!r}",
        table.place,
        key=table_key(node),
        deps=_deps(node),
        description=table.comment or metadata.described(node),
        kinds=_kinds(node),
        group_name=group_of(table.place),
        owners=list(table.owners),
        tags=dict(table.tags),
        code_version=node.code_version,
        metadata=metadata.table_definition(node),
        freshness_policy=_freshness(table.freshness),
        automation_condition=table_condition(node, graph),
    )


def _deps(node: Node) -> list[dg.AssetKey]:
    """What the declaration names as upstream, flows included, each once."""
    named = [upstream for part in node.parts for upstream in part.upstreams.values()]
    return list(dict.fromkeys(upstream_key(upstream) for upstream in named))


def _kinds(node: Node) -> set[str]:
    if node.table.sink is not None:
        return {"spark", "kafka" if node.table.sink.format == "kafka" else "deltalake", "sink"}
    return {"spark", "deltalake", node.table.layer}


def _dead_letters_spec(node: Node) -> dg.AssetSpec:
    table = node.table
    return _spec(
        f"table {node.name!r}",
        table.place,
        key=dead_letters_key(node),
        deps=_deps(node),
        description=f"Rows that did not make it into `{node.name}`: with their raw bytes, where "
        "they came from, and the reason.",
        kinds={"deltalake", "dead_letters"},
        group_name=group_of(table.place),
        owners=list(table.owners),
        skippable=True,
        code_version=node.code_version,
        metadata=metadata.dead_letters_definition(node),
    )


def _spec(subject: str, place: Place, **values: Any) -> dg.AssetSpec:
    try:
        return dg.AssetSpec(**values)
    except (dg.DagsterInvalidDefinitionError, ValueError) as error:
        raise DeclarationError(
            subject,
            str(place),
            f"Dagster does not take it: {error}",
            fix="correct the tag, owner or description that the message names",
        ) from None


def _freshness(freshness: timedelta | None) -> dg.FreshnessPolicy | None:
    if freshness is None:
        return None
    return dg.FreshnessPolicy.time_window(warn_window=freshness, fail_window=2 * freshness)


def _failure(node: Node, error: KafkaAssetsError) -> dg.Failure:
    return dg.Failure(
        description=f"{node.table.layer}/{node.name}: {error}",
        metadata={"table": node.name, "failure": _kind(error)},
        allow_retries=isinstance(error, SourceError) and error.transient,
    )


def _kind(error: KafkaAssetsError) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()


def _tag_failure(
    context: dg.AssetExecutionContext, node: Node, settings: Settings, kind: str
) -> None:
    code = asked_version(node, settings)
    tags = {FAILURE: kind, FAILED_TABLE: node.name, FAILED_CODE: code}
    context.instance.add_run_tags(context.run.run_id, tags)
