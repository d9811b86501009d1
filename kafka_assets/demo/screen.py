"""The live demo's table in the terminal: each topic and table, what it holds, how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kafka_assets.errors import KafkaAssetsError
from kafka_assets.graph import Graph, Node
from kafka_assets.settings import Settings
from kafka_assets.sources.kafka import KafkaAdmin
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.tables import LakeTable


@dataclass(frozen=True)
class Line:
    """One topic or table as the terminal shows it; None where it does not apply or is not known.

    Attributes:
        name: `layer/name`.
        events: Records of a topic.
        rows: Rows of a table.
        dead: Its dead letters.
        lag: Records that wait for a bronze table.
        age: Seconds since it last got data.
        late: Older than its freshness allows, with data waiting.
    """

    name: str
    events: int | None = None
    rows: int | None = None
    dead: int | None = None
    lag: int | None = None
    age: float | None = None
    late: bool = False


def lines(graph: Graph, settings: Settings, now: datetime | None = None) -> list[Line]:
    """Read what topics and tables hold now: from the broker, the Delta logs and the checkpoints.

    Raises:
        SourceError: The broker does not answer.
    """
    now = now or datetime.now(UTC)
    states = KafkaAdmin(settings.kafka).describe(t.topic for t in graph.topics.values())
    ends = {name: dict(state.end) for name, state in states.items()}
    begin = {name: dict(state.earliest) for name, state in states.items()}
    topics = [
        Line(
            f"kafka/{t.topic}",
            events=sum(e - begin[t.topic][p] for p, e in ends[t.topic].items()),
        )
        for t in graph.topics.values()
    ]
    return [*topics, *[_table(node, ends, now) for node in graph.tables.values()]]


def _table(node: Node, ends: dict[str, dict[int, int]], now: datetime) -> Line:
    name = f"{node.table.layer}/{node.name}"
    table = LakeTable.open(node.path)
    if table is None:
        return Line(name)
    letters = LakeTable.open(node.dead_letters_path) if node.may_have_dead_letters else None
    lag = _lag(node, ends)
    changed = table.changed_at
    age = None if changed is None else (now - changed).total_seconds()
    freshness = node.table.freshness
    return Line(
        name,
        rows=table.rows,
        dead=None if letters is None else letters.rows,
        lag=lag,
        age=age,
        late=freshness is not None
        and age is not None
        and age > freshness.total_seconds()
        and (bool(lag) or _behind(node, changed)),
    )


def _behind(node: Node, changed: datetime | None) -> bool:
    """Whether a table that it reads has changed since."""
    for one in node.inputs:
        if isinstance(one.source, Node):
            upstream = LakeTable.open(one.source.path)
            newest = None if upstream is None else upstream.changed_at
            if newest is not None and (changed is None or newest > changed):
                return True
    return False


def _lag(node: Node, ends: dict[str, dict[int, int]]) -> int | None:
    lag: int | None = None
    for part in node.parts:
        for topic in (one.topic for one in part.topics):
            checkpoint = Checkpoint.read(part.checkpoint)
            read = checkpoint.position(checkpoint.last_commit, topic=topic) or {}
            behind = (max(e - int(read.get(str(p), 0)), 0) for p, e in ends[topic].items())
            lag = (lag or 0) + sum(behind)
    return lag


def render(address: str, graph: Graph, settings: Settings) -> Group:
    """The screen: where the UI is, and the table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("topic or table")
    for name in ("events", "rows", "dead letters", "lag", "fresh"):
        table.add_column(name, justify="right")
    note = Text("Ctrl-C stops everything; data and history stay.", style="dim")
    try:
        for line in lines(graph, settings):
            table.add_row(
                line.name,
                _number(line.events),
                _number(line.rows) if line.events is None else "",
                _number(line.dead),
                _number(line.lag),
                _age(line),
            )
    except (KafkaAssetsError, ValueError) as error:
        note = Text(str(error), style="yellow")
    return Group(Text(f"Dagster UI: {address}", style="bold"), table, note)


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _age(line: Line) -> Text:
    if line.age is None:
        return Text("" if line.events is not None else "not yet", style="dim")
    text = f"{line.age:.0f} s ago" if line.age < 120 else f"{line.age / 60:.0f} min ago"
    return Text(text, style="red" if line.late else "green")
