"""What a table of each kind can read, and which options fit it."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_assets.declarations import Flow, Read, Table, Topic
from kafka_assets.errors import DeclarationError
from kafka_assets.graph.model import Files, Node


def refuse(node: Node) -> None:
    """Refuse what a table of this kind cannot be.

    Raises:
        DeclarationError: Names the table, file, line and the fix.
    """
    if node.table.reads and node.table.kind == "materialized_view":
        raise _error(
            node,
            "reads= on a materialized view, which reads everything as it is",
            "remove reads=",
        )
    for part in node.parts:
        if not part.is_view:
            _refuse_inputs(part)
            _refuse_decoding_of_decoded(part)
    if node.table.kind == "auto_cdc":
        _refuse_for_changes(node)
    if node.table.keys:
        _refuse_for_keys(node)
    if node.table.options.max_rows_per_batch is not None and not node.topics:
        raise _error(
            node,
            "max_rows_per_batch= on a table that reads no topic",
            "say it of the table that reads the topic",
        )


def refuse_flow(flow: Flow, table: Table, others: Sequence[Flow]) -> None:
    """Refuse a flow that does not fit its target.

    Args:
        flow: The flow.
        table: Its target.
        others: The target's flows that were declared before it.

    Raises:
        DeclarationError: Names the flow, file, line and the fix.
    """
    subject, place = f"flow {flow.name!r}", str(flow.place)
    if not table.waits_for_flows:
        raise DeclarationError(
            subject,
            place,
            f"its target {table.name!r} ({table.place}) has a function of its own",
            fix="let it feed a table of ka.create_streaming_table(...)",
        )
    if flow.changes is not None and table.sink is not None:
        raise DeclarationError(
            subject,
            place,
            f"changes cannot be applied to the sink {table.name!r}",
            fix="use a table of ka.create_streaming_table(...)",
        )
    if flow.changes is not None and table.options.generated:
        raise DeclarationError(
            subject,
            place,
            f"changes are applied to {table.name!r}, which has generated=",
            fix="compute the columns in the table that has the changes",
        )
    for other in others:
        if other.name == flow.name:
            raise DeclarationError(
                subject,
                place,
                f"another flow of {table.name!r} has this name, at {other.place}",
                fix="give one of them another name=",
            )
        if flow.changes is not None or other.changes is not None:
            raise DeclarationError(
                subject,
                place,
                f"{table.name!r} has the flow {other.name!r} ({other.place}) besides: a table "
                "gets changes from one flow alone",
                fix="bring the changes together in one table, and let the flow read that",
            )


def _refuse_inputs(node: Node) -> None:
    table = node.table
    kind = table.kind.replace("_", " ")
    streams = node.streams
    if table.kind != "materialized_view" and not streams:
        raise _error(
            node,
            f"a {kind} reads no stream",
            "read one upstream as a stream, or declare a materialized_view",
        )
    if table.kind in ("windowed_table", "auto_cdc") and len(node.inputs) > 1:
        names = ", ".join(i.source.name for i in node.inputs)
        raise _error(
            node,
            f"a {kind} reads one upstream, not {names}",
            "read one of them, or declare a materialized_view",
        )
    if table.kind in ("windowed_table", "auto_cdc"):
        _refuse_views_of_several(node)
    for one in node.inputs:
        source = one.source
        if isinstance(source, Topic | Files):
            _refuse_source(node, source, one.read)
        elif one.read == "stream" and table.kind != "materialized_view":
            _refuse_rewritten_upstream(node, source)
        elif one.read == "changes" and table.kind in ("windowed_table", "auto_cdc"):
            raise _error(
                node,
                f"a {kind} cannot read the change feed of {source.name!r}",
                "read it in a streaming_table first",
            )
        elif one.read == "changes" and not _has_changes(source):
            raise _error(
                node,
                f"reads the change feed of {source.name!r}, whose rows are only appended or "
                "computed whole",
                "read it as a stream, or use a materialized_view",
            )


def _refuse_source(node: Node, source: Topic | Files, read: Read) -> None:
    """Records, and files as a stream, are read once, by a table that keeps their rows."""
    if node.table.kind in ("streaming_table", "sink") and read == "stream":
        return
    if isinstance(source, Files) and read == "static":
        return
    what = "topic" if isinstance(source, Topic) else "files"
    raise _error(
        node,
        f"a {node.table.kind.replace('_', ' ')} cannot read the {what} {source.name!r}"
        + ("" if read == "stream" else f" as {read!r}"),
        f"declare a streaming_table (bronze) that keeps the {what}, and read that",
    )


def _refuse_views_of_several(node: Node) -> None:
    for upstream in node.upstreams.values():
        if isinstance(upstream, Node) and upstream.is_view:
            if len(upstream.upstreams) != 1:
                raise _error(
                    node,
                    f"reads the view {upstream.name!r}, which joins "
                    f"{', '.join(upstream.upstreams)}",
                    "declare the join as a streaming_table, and read that",
                )
            _refuse_views_of_several(upstream)


def _has_changes(upstream: object) -> bool:
    """Whether a table is MERGEd, and so has a change feed; of others nobody knows."""
    return not isinstance(upstream, Node) or upstream.is_merged


def _refuse_rewritten_upstream(node: Node, upstream: object) -> None:
    if not isinstance(upstream, Node) or (
        upstream.table.kind == "streaming_table" and not upstream.table.keys
    ):
        return
    kind = upstream.table.kind.replace("_", " ")
    feed = f', or reads={{"{upstream.name}": "changes"}}' if upstream.is_merged else ""
    raise _error(
        node,
        f"streams from {upstream.name!r}, whose rows are replaced, not only appended "
        f"(a {kind}, {upstream.table.place})",
        "declare a materialized_view, or read the streaming table that it is made from" + feed,
    )


def _refuse_decoding_of_decoded(node: Node) -> None:
    if node.payload is None:
        return
    if len(node.inputs) != 1:
        raise _error(
            node,
            f"schema={node.table.schema!r} decodes one upstream, and it reads "
            f"{', '.join(i.source.name for i in node.inputs)}",
            "decode in a table of its own, and read that",
        )
    upstream = node.only_stream
    if isinstance(upstream, Node) and upstream.payload is not None:
        raise _error(
            node,
            f"schema={node.table.schema!r} would decode {upstream.name!r}, which is decoded "
            "already",
            "remove schema=, or read the bronze table",
        )


def _refuse_for_changes(node: Node) -> None:
    drops = node.table.expectations_that("drop")
    if drops:
        raise DeclarationError(
            f"table {node.name!r}",
            str(drops[0].place),
            f"the expectation {drops[0].name!r} would drop rows that later changes need",
            fix="put expect_or_drop on the table that the changes come from",
        )


def _refuse_for_keys(node: Node) -> None:
    drops = node.table.expectations_that("drop")
    if drops:
        raise DeclarationError(
            f"table {node.name!r}",
            str(drops[0].place),
            f"the expectation {drops[0].name!r} would drop rows that the table updates by key",
            fix="put expect_or_drop on its upstream; or use expect or expect_or_fail",
        )
    if node.payload is not None:
        raise _error(node, "keys= together with schema=", "decode in a table of its own")


def _error(node: Node, what: str, fix: str) -> DeclarationError:
    return DeclarationError(f"table {node.name!r}", str(_place(node)), what, fix=fix)


def _place(node: Node) -> object:
    return node.flow.place if node.flow is not None else node.table.place
