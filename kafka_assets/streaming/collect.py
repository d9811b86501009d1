"""The report of a run, read from the commits that it left.

Both sides of each conservation equality come from different places: what was read and returned from
the counts that the batch made, or from the upstream's own commits; what was kept and died from the
rows that the table's and the dead letters' commits say they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from kafka_assets.declarations import Topic
from kafka_assets.errors import SourceError
from kafka_assets.graph import Files, Node
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.commits import Commit
from kafka_assets.streaming.dead_letters import letters_of
from kafka_assets.streaming.plan import Planned
from kafka_assets.streaming.report import Conservation, RuleResult, RunReport
from kafka_assets.streaming.tables import LakeTable

SAMPLE = 5
"""Dead letters shown with a report."""

Offsets = Mapping[tuple[str, int], int]


def report(
    node: Node,
    *,
    planned: Planned,
    run_id: str,
    since: int,
    started: datetime,
    seconds: float,
    streams: bool,
    ends: Callable[[Offsets], Offsets],
) -> RunReport:
    """Read what the commits after `since` did.

    Args:
        node: The table.
        planned: The table's columns.
        run_id: Id of the run.
        since: Version of the table that the last report ended at.
        started: When the run began.
        seconds: How long it took.
        streams: It has checkpoints: it is no materialized view.
        ends: Takes the offsets that the table has come to, publishes them, and gives the topics'
            end offsets.
    """
    table = LakeTable.existing(node.path)
    ours = [c for c in table.commits(after=since) if c.batch_id is not None and c.query_id]
    counts = [c.info["counts"] for c in ours if "counts" in c.info]
    letters = _letters(node, ours)
    kept = sum(c.rows for c in ours)
    if node.goes_to_kafka:
        # What went to a topic is in no commit.
        kept = _sum(counts, "returned") - _sum(counts, "dead")
    dead = sum(c.rows for c in letters)
    undecodable = _sum(counts, "undecodable") if node.decodes else None
    decoded = _sum(counts, "decoded") if node.decodes else None
    raised = _sum(counts, "raised")
    returned = _sum(counts, "returned") if node.table.expectations or counts else kept
    offsets: dict[str, tuple[int, int]] = {}
    at: dict[tuple[str, int], int] = {}
    for part in node.parts if streams else ():
        _offsets(part, ours, offsets, at)
    lag = _lag(node, at, ends)
    rows_read = _sum(counts, "read") if node.decodes else None
    conservation = []
    if rows_read is not None and decoded is not None and undecodable is not None:
        source = _rows_of_upstreams(node, ours) if streams else None
        conservation.append(
            Conservation(
                "rows_read",
                rows_read if source is None else source,
                decoded + undecodable + raised,
                {"decoded": decoded, "undecodable": undecodable, "raised": raised},
            )
        )
    if (counts or node.table.expectations or node.decodes) and not node.goes_to_kafka:
        died = dead - (undecodable or 0) - raised
        parts = {"kept": kept, "dead": died}
        same = {"unchanged": _sum(counts, "unchanged")} if node.table.kind == "auto_cdc" else {}
        conservation.append(
            Conservation(
                "rows_returned", returned, kept + died + sum(same.values()), {**parts, **same}
            )
        )
    letters_table = LakeTable.open(node.dead_letters_path) if letters else None
    return RunReport(
        table=node.name,
        run_id=run_id,
        started=started,
        seconds=seconds,
        batches=len(ours),
        rows_read=kept if reads_topic(node) and rows_read is None else rows_read,
        decoded=decoded,
        undecodable=undecodable,
        raised=raised,
        returned=returned,
        kept=kept,
        dead=dead,
        rules=_rules(node, counts),
        conservation=tuple(conservation),
        offsets=offsets,
        lag=lag,
        version_from=since if since > 0 else None,
        version_to=table.version,
        data_version=table.data_version,
        rows_total=table.rows,
        bytes_written=sum(c.bytes for c in ours),
        schema={f.name: f.dataType.simpleString() for f in planned.schema.fields},
        dead_letters_version=letters_table.data_version if letters_table is not None else None,
        dead_letters_sample=_sample(letters_table, letters),
        extra=_extra(node, ours),
    )


def _extra(node: Node, ours: list[Commit]) -> dict[str, int | float | str]:
    extra: dict[str, int | float | str] = {}
    if node.table.kind == "windowed_table":
        extra["windows"] = sum(int(c.info.get("windows", 0)) for c in ours)
    if node.table.kind == "auto_cdc":
        extra["removed"] = sum(int(c.info.get("counts", {}).get("removed", 0)) for c in ours)
        extra["unsequenced"] = sum(int(c.info.get("unsequenced", 0)) for c in ours)
    lost = [gone for c in ours for gone in c.info.get("accepted_loss", ())]
    if lost:
        extra["accepted_loss"] = ", ".join(
            f"{gone['topic']}/{gone['partition']} [{gone['first']}, {gone['end']})" for gone in lost
        )
    return extra


def reads_topic(node: Node) -> bool:
    """Whether a table reads a topic itself."""
    return bool(node.topics)


def _sum(counts: list[Any], figure: str) -> int:
    return sum(int(c.get(figure, 0)) for c in counts)


def _rules(node: Node, counts: list[Any]) -> tuple[RuleResult, ...]:
    results = []
    for expectation in node.table.expectations:
        found = [c["rules"][expectation.name] for c in counts if expectation.name in c["rules"]]
        first = [f["first"] for f in found if f["first"]]
        results.append(
            RuleResult(
                name=expectation.name,
                action=expectation.action,
                rule=expectation.text,
                broken=sum(int(f["broken"]) for f in found),
                # Commits come newest first.
                first=first[-1] if first else None,
            )
        )
    return tuple(results)


def _letters(node: Node, ours: list[Commit]) -> list[Commit]:
    """The newest commit of dead letters for each reported batch that has any."""
    if not node.may_have_dead_letters or not ours:
        return []
    table = LakeTable.open(node.dead_letters_path)
    if table is None:
        return []
    # A commit of letters holds the same counts as its batch's commit in the table.
    wanted = {(c.query_id, c.batch_id) for c in ours if _had_letters(c)}
    found: dict[tuple[str | None, int | None], Commit] = {}
    for limit in (len(wanted) * 2 + 5, None):
        for commit in table.commits(limit=limit):
            if (commit.query_id, commit.batch_id) in wanted and commit.operation == "WRITE":
                found.setdefault((commit.query_id, commit.batch_id), commit)
        if len(found) == len(wanted):
            break
    return list(found.values())


def _had_letters(commit: Commit) -> bool:
    counts = commit.info.get("counts")
    return bool(counts and letters_of(counts))


def _offsets(
    node: Node,
    ours: list[Commit],
    ranges: dict[str, tuple[int, int]],
    at: dict[tuple[str, int], int],
) -> None:
    """Add the offsets read by the reported batches, and where the table has come to."""
    now = Checkpoint.read(node.checkpoint)
    ours = [c for c in ours if c.query_id == now.query_id]
    for upstream in node.topics:
        topic = upstream.topic
        reached = now.position(now.last_commit, topic=topic) or {}
        at |= {(topic, int(p)): int(o) for p, o in reached.items()}
        if not ours:
            ranges |= {f"{topic}/{p}": (int(o), int(o)) for p, o in reached.items()}
            continue
        first = min(c.batch_id for c in ours if c.batch_id is not None)
        last = max(c.batch_id for c in ours if c.batch_id is not None)
        begin = now.position(first - 1, topic=topic) if first > 0 else None
        begin = begin or now.first_offsets(topic) or {}
        end = now.position(last, topic=topic) or {}
        ranges |= {f"{topic}/{p}": (int(begin.get(p, 0)), int(o)) for p, o in end.items()}


def _lag(node: Node, at: Offsets, ends: Callable[[Offsets], Offsets]) -> int | None:
    if not reads_topic(node):
        return None
    try:
        now = ends(at)
    except SourceError:
        # The rows are committed; that the broker went away since must not fail the run.
        return None
    return sum(max(end - at.get(where, 0), 0) for where, end in now.items())


def _rows_of_upstreams(node: Node, ours: list[Commit]) -> int | None:
    """Rows that a table's flows, or its one source, got; None where that cannot be known."""
    found = [_rows_of_upstream(part, ours) for part in node.parts]
    return None if None in found else sum(rows or 0 for rows in found)


def _rows_of_upstream(node: Node, ours: list[Commit]) -> int | None:
    """Rows that the upstream table's own commits say it got between two positions of the stream.

    None where that cannot be known: for topics and files, behind a view, for a first read of a
    table that was there before, and for batches that ended in the middle of a commit.
    """
    upstream = node.only_stream
    if isinstance(upstream, Topic | Files | None) or upstream.name not in node.upstreams:
        return None
    now = Checkpoint.read(node.checkpoint)
    ours = [c for c in ours if c.query_id == now.query_id]
    if not ours:
        return 0
    table = LakeTable.existing(upstream.path)
    first = min(c.batch_id for c in ours if c.batch_id is not None)
    last = max(c.batch_id for c in ours if c.batch_id is not None)
    before = now.position(first - 1, table_id=table.table_id)
    start = _position(before) if first > 0 else 0
    end = _position(now.position(last, table_id=table.table_id))
    if start is None or end is None:
        return None
    commits = table.commits(after=max(start - 1, -1))
    between = [c for c in commits if start <= c.version < end and c.changed_data]
    # Others count their rows in their own way, or not at all.
    if any(c.query_id is None for c in between):
        return None
    return sum(c.rows for c in between)


def _position(offset: Mapping[str, Any] | None) -> int | None:
    if offset is None or offset.get("index") != -1 or offset.get("isStartingVersion"):
        return None
    return int(offset["reservoirVersion"])


def _sample(letters: LakeTable | None, commits: list[Commit]) -> tuple[Mapping[str, Any], ...]:
    if letters is None or not commits:
        return ()
    newest = max(commits, key=lambda c: c.version)
    return letters.sample(
        ("topic", "partition", "offset", "failed_rules", "reason", "value", "row"),
        {"query_id": newest.query_id, "batch_id": newest.batch_id},
        SAMPLE,
    )
