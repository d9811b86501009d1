"""Commands on tables that exist: dead letters, repair, accepted losses, reset.

A part of the command line: options and output only. What they do is in `operations`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from kafka_assets.graph import Graph
    from kafka_assets.operations.letters import Filter, Letter
    from kafka_assets.settings import Settings

out = Console()
err = Console(stderr=True)

dlq = typer.Typer(help="Dead letters: list, show, replay, discard, purge.", no_args_is_help=True)

TableName = Annotated[str, typer.Argument(help="The table.")]
Rule = Annotated[
    str | None, typer.Option(help="A rule's name, or (undecodable), or (raised).", metavar="NAME")
]
Reason = Annotated[str | None, typer.Option(help="Regular expression found in the reason.")]
Since = Annotated[
    str | None, typer.Option(help="Died at this time or later: 2026-01-31T10:00, or 2h, 7d ago.")
]
Until = Annotated[str | None, typer.Option(help="Died before this time; as --since.")]
Topic = Annotated[str | None, typer.Option(help="Topic of the record.")]
Partition = Annotated[int | None, typer.Option(help="Partition of the record.")]
Offsets = Annotated[str | None, typer.Option(help="Offset of the record, or FIRST-LAST.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Because = Annotated[str, typer.Option("--because", help="Why; kept in the lake.")]


@dlq.command("list")
def list_letters(
    tables: Annotated[list[str] | None, typer.Argument(help="Tables.", show_default="all")] = None,
    rule: Rule = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    topic: Topic = None,
    partition: Partition = None,
    offsets: Offsets = None,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by table and rule, with what became of them. Starts no Spark."""
    from kafka_assets.operations import letters

    graph, _ = _graph()
    nodes = [letters.table_of(graph, name) for name in tables or graph.tables]
    wanted = _filter(letters.STATUSES, rule, reason, since, until, topic, partition, offsets)
    groups = letters.overview(nodes, wanted)
    if as_json:
        print(json.dumps([vars(group) for group in groups], default=str, indent=2))
        return
    if not groups:
        out.print("No dead letters.")
        return
    shown = RichTable("table", "rule", *letters.STATUSES, "oldest", "newest", "example")
    for group in groups:
        counts = [str(group.counts.get(status, 0) or "") for status in letters.STATUSES]
        times = [f"{at:%Y-%m-%d %H:%M}" for at in (group.oldest, group.newest)]
        shown.add_row(group.table, group.rule, *counts, *times, group.example[:80])
    out.print(shown)


@dlq.command("show")
def show_letters(
    table: TableName,
    rule: Rule = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    topic: Topic = None,
    partition: Partition = None,
    offsets: Offsets = None,
    closed: Annotated[bool, typer.Option(help="Also replayed and discarded ones.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Print dead letters with their raw bytes, why they died, and what became of them."""
    from kafka_assets.operations import letters

    graph, _ = _graph()
    statuses = letters.STATUSES if closed else letters.OPEN
    wanted = _filter(statuses, rule, reason, since, until, topic, partition, offsets)
    found = letters.find(letters.table_of(graph, table), wanted)
    newest = found[::-1][:limit]
    if as_json:
        print(json.dumps([letter.as_json() for letter in newest], indent=2))
        return
    for letter in newest:
        _print_letter(letter)
    out.print(f"{len(newest)} of {len(found)} dead letters of {table}.", highlight=False)


@dlq.command("replay")
def replay_letters(
    table: TableName,
    rule: Rule = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    topic: Topic = None,
    partition: Partition = None,
    offsets: Offsets = None,
    dry_run: Annotated[bool, typer.Option(help="Only say what would happen.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try open dead letters again with today's code; what passes is written exactly once."""
    from kafka_assets.operations import letters
    from kafka_assets.operations.replay import replay
    from kafka_assets.streaming.session import spark_session

    graph, settings = _graph()
    node = letters.table_of(graph, table)
    wanted = _filter(letters.OPEN, rule, reason, since, until, topic, partition, offsets)
    with err.status("starting Spark ..."):
        session = spark_session(settings)
    with err.status(f"replaying dead letters of {table} ..."):
        report = replay(node, session, settings, wanted, dry_run=dry_run)
    if as_json:
        print(json.dumps(vars(report), indent=2))
        return
    would = "would be " if report.dry else ""
    out.print(
        f"{report.tried} dead letters of {table}: {report.replayed} {would}replayed "
        f"({report.rows} rows), {sum(report.still_dead.values())} still dead.",
        highlight=False,
    )
    for why, count in report.still_dead.items():
        out.print(f"  {count} x {why}", markup=False, highlight=False, soft_wrap=True)


@dlq.command("discard")
def discard_letters(
    table: TableName,
    because: Because,
    rule: Rule = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    topic: Topic = None,
    partition: Partition = None,
    offsets: Offsets = None,
) -> None:
    """Mark open dead letters as given up, with a reason. Nothing is deleted."""
    from kafka_assets.operations import letters

    graph, settings = _graph()
    node = letters.table_of(graph, table)
    wanted = _filter(letters.OPEN, rule, reason, since, until, topic, partition, offsets)
    count = letters.discard(node, settings, wanted, reason=because)
    out.print(f"{count} dead letters of {table} discarded.", highlight=False)


@dlq.command("purge")
def purge_letters(
    tables: Annotated[list[str] | None, typer.Argument(help="Tables.", show_default="all")] = None,
) -> None:
    """Remove replayed and discarded dead letters that are older than the retention."""
    from kafka_assets.operations import letters

    graph, settings = _graph()
    letters.require_retention(settings)
    for name in tables or graph.tables:
        node = letters.table_of(graph, name)
        count = letters.purge(node, settings)
        if count or node.may_have_dead_letters:
            out.print(f"{name}: {count} dead letters removed", highlight=False)


def repair(
    table: TableName,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Also where unread records may be gone.")
    ] = False,
) -> None:
    """Repair a table's checkpoint where that loses and doubles nothing."""
    from kafka_assets.operations import repair as operation
    from kafka_assets.operations.letters import table_of

    graph, settings = _graph()
    done = operation.repair(table_of(graph, table), settings, accept=accept_loss)
    out.print(f"{table}: {done}", markup=False, highlight=False, soft_wrap=True)


def accept_loss(table: TableName, because: Because) -> None:
    """Write down records of a topic that are gone unread, and let the table go on behind them."""
    from kafka_assets.operations import repair as operation
    from kafka_assets.operations.letters import table_of

    graph, settings = _graph()
    lost = operation.accept_loss(table_of(graph, table), settings, reason=because)
    if not lost:
        out.print(f"{table}: nothing is lost; it goes on as it is.", highlight=False)
    for gone in lost:
        out.print(f"{table}: lost {gone}; written to _operations", highlight=False)


def move(table: TableName) -> None:
    """Take a table along to where its changed declaration says."""
    from kafka_assets.operations import move as operation
    from kafka_assets.operations.letters import table_of

    graph, settings = _graph()
    moved = operation.move(table_of(graph, table), settings)
    if moved is None:
        out.print(f"{table} lies where it is declared.", highlight=False)
    else:
        out.print(f"{table}: moved from {moved[0]} to {moved[1]}", highlight=False, soft_wrap=True)


def reset(
    table: TableName,
    downstream: Annotated[
        bool, typer.Option("--downstream", help="Also every table that depends on it.")
    ] = False,
    accept: Annotated[
        str | None, typer.Option(help="The words that accept a loss, as the refusal gives them.")
    ] = None,
    because: Annotated[str | None, typer.Option("--because", help="Why; kept in the lake.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be lost.")] = False,
    run: Annotated[bool, typer.Option(help="Fill the tables again at once.")] = True,
) -> None:
    """Build a table anew from its source; refused if rows would be gone for ever."""
    from kafka_assets.operations import reset as operation
    from kafka_assets.streaming.report import summary
    from kafka_assets.streaming.run import run_graph
    from kafka_assets.streaming.session import spark_session

    graph, settings = _graph()
    if dry_run:
        found = operation.examine(graph, table, settings, downstream=downstream)
        out.print(f"A reset would empty {', '.join(found.tables)} and build them anew.")
        for loss in found.losses:
            out.print(f"It would lose {loss} for ever: {loss.why}", highlight=False)
        return

    def say(line: str) -> None:
        out.print(line, highlight=False, soft_wrap=True)

    found = operation.reset(
        graph,
        table,
        settings,
        downstream=downstream,
        accept=accept,
        reason=because,
        progress=say,
    )
    if run:
        with err.status("starting Spark ..."):
            session = spark_session(settings)
        run_graph(
            graph,
            session,
            settings,
            names=found.tables,
            on_report=lambda report: say(summary(report)),
        )


def _graph() -> tuple[Graph, Settings]:
    import kafka_assets.pipelines
    from kafka_assets.graph import build_graph
    from kafka_assets.settings import Settings

    settings = Settings()
    return build_graph(kafka_assets.pipelines, settings), settings


def _filter(
    statuses: Any,
    rule: str | None,
    reason: str | None,
    since: str | None,
    until: str | None,
    topic: str | None,
    partition: int | None,
    offsets: str | None,
) -> Filter:
    from kafka_assets.operations.letters import Filter

    return Filter(
        rule=rule,
        reason=reason,
        since=moment("--since", since),
        until=moment("--until", until),
        topic=topic,
        partition=partition,
        offsets=offset_range(offsets),
        statuses=statuses,
    )


def moment(option: str, text: str | None, now: datetime | None = None) -> datetime | None:
    """A time as people write it: ISO-8601 (UTC unless it says otherwise), or how long ago.

    Raises:
        typer.BadParameter: It is neither.
    """
    if text is None:
        return None
    ago = re.fullmatch(r"(\d+)\s*([smhd])", text)
    if ago is not None:
        units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
        return (now or datetime.now(UTC)) - timedelta(**{units[ago[2]]: int(ago[1])})
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option} {text!r} is no time; write 2026-01-31T10:00 or 2h"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def offset_range(text: str | None) -> tuple[int, int] | None:
    """An offset, or a first and a last one: `17` or `17-40`.

    Raises:
        typer.BadParameter: It is neither.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if found is None:
        raise typer.BadParameter(f"--offsets {text!r} is neither 17 nor 17-40")
    return int(found[1]), int(found[2] or found[1])


def _print_letter(letter: Letter) -> None:
    values: Mapping[str, Any] = letter.values
    at = "(no record)" if letter.at[0] is None else "{}/{} offset {}".format(*letter.at)
    out.print(f"{at}", style="bold", highlight=False, end="  ")
    out.print(f"{letter.status}, died {values['died_at']:%Y-%m-%d %H:%M:%S} UTC", highlight=False)
    lines = {"rules": ", ".join(letter.rules), "reason": letter.reason}
    for name in ("key", "value"):
        if values[name] is not None:
            lines[name] = repr(bytes(values[name]))[:400]
    for header in values["headers"] or ():
        lines[f"header {header['key']}"] = repr(header["value"])[:200]
    if values["row"] is not None:
        lines["row"] = values["row"][:400]
    if letter.decided:
        said = letter.decided
        lines[letter.status] = f"by {said['by']} at {said['at']:%Y-%m-%d %H:%M}, {said['reason']}"
    for name, text in lines.items():
        out.print(f"  {name}: {text}", markup=False, highlight=False, soft_wrap=True)
