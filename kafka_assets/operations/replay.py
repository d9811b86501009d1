"""Trying dead letters again with today's code, rules and schema.

What passes is written to the table exactly once, also when a replay is killed and started again:
its letters are marked as being replayed first, the table's commit carries the replay's id, and the
next replay finds out by that id whether an interrupted one had written. A record of which rows are
in the table already is never written a second time.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from kafka_assets.declarations import Topic
from kafka_assets.errors import OperationRefused
from kafka_assets.graph import Node, Outside
from kafka_assets.operations.attempt import Attempt, app_id
from kafka_assets.operations.letters import OPEN, Filter, Letter, Status, find, mark
from kafka_assets.settings import Settings
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.creating import ensure_table
from kafka_assets.streaming.interpreted import engine_conf_of_letters
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.plan import plan_table
from kafka_assets.streaming.session import conf_of_a_run
from kafka_assets.streaming.starting import Run, batch_spec
from kafka_assets.streaming.tables import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT_OUT = "the function leaves it out"


@dataclass(frozen=True)
class ReplayReport:
    """What a replay did.

    Attributes:
        table: The table's name.
        replay_id: Names the replay; stands in the table's commit and with each letter.
        tried: Letters that were tried.
        replayed: Letters whose records are in the table now, or that the function leaves out.
        still_dead: Letters that died again, and those that were not tried because it is not known
            by which flow; reason -> how many.
        rows: Rows that were written to the table.
        finished: Letters of an interrupted replay that had been written, marked now.
        dry: Nothing was written.
    """

    table: str
    replay_id: str
    tried: int
    replayed: int
    still_dead: Mapping[str, int]
    rows: int
    finished: int = 0
    dry: bool = False


def replay(
    node: Node,
    session: SparkSession,
    settings: Settings,
    wanted: Filter | None = None,
    *,
    by: str | None = None,
    run_id: str | None = None,
    dry_run: bool = False,
) -> ReplayReport:
    """Decode and check dead letters again, and write what passes.

    Args:
        node: The table.
        session: A classic or Spark Connect session.
        settings: The lake.
        wanted: Which letters; by default all that are open.
        by: Who; by default the user of this process.
        run_id: Id of the run, kept with each letter.
        dry_run: Only say what would happen.

    Returns:
        What was done.

    Raises:
        OperationRefused: The table's letters cannot be replayed, because they are rows of an
            aggregate.
        LeaseHeld: A run is writing the table.
        PlanError: The function does not fit its inputs.
        LakeError: The table cannot be written; its letters stay open.
    """
    each = partial(_replay, session=session, settings=settings, wanted=wanted, by=by)
    parts = [each(part, node, run_id=run_id, dry_run=dry_run) for part in node.parts]
    done = reduce(_both, parts)
    if not node.flows:
        return done
    found = [x for x in find(node, wanted) if x.status in OPEN]
    untried = Counter(_not_tried(node, letter) for letter in _by_flow(node, found).get(None, ()))
    return replace(done, still_dead=Counter(done.still_dead) + untried)


def _replay(
    node: Node,
    whole: Node,
    *,
    session: SparkSession,
    settings: Settings,
    wanted: Filter | None,
    by: str | None,
    run_id: str | None,
    dry_run: bool,
) -> ReplayReport:
    """Replay the letters of a table, or of one flow of the whole table."""
    planned = plan_table(node, session)
    records = _reads_records(node, planned.schema.names)
    if node.table.kind == "streaming_table" and not (planned.has_source or records):
        raise OperationRefused(
            f"the rows of table {node.name!r} do not say which record of a topic each was made "
            "from, as those of files never do: its dead letters cannot be replayed, and are kept",
            fix=f"correct the function or the rule of {node.name!r}, then kafka-assets reset "
            f"{node.name}, which reads and checks all its rows again",
        )
    if node.table.kind != "streaming_table":
        raise OperationRefused(
            f"the dead letters of table {node.name!r} are result rows, not records of a topic: "
            "they cannot be replayed",
            fix=f"correct the function or the rule of {node.name!r}; its windows are computed anew "
            "when new rows touch them, or all at once by kafka-assets reset",
        )
    if node.only_stream is None:
        raise OperationRefused(
            f"table {node.name!r} reads several streams, so a record of one of its dead letters "
            "cannot be tried alone: they are kept",
            fix=f"correct the function or the rule of {node.name!r}, then kafka-assets reset "
            f"{node.name}, which reads and checks all its rows again",
        )
    replay_id, run_id = uuid.uuid4().hex[:16], run_id or str(uuid.uuid4())
    with lease(node, settings, run_id):
        if LakeTable.open(node.path) is None:
            return ReplayReport(node.name, replay_id, 0, 0, {}, 0, dry=dry_run)
        finished = 0 if dry_run else _finish_interrupted(node, by, run_id)
        found = [x for x in find(node, wanted) if x.status in OPEN]
        letters = _by_flow(whole, found).get(node, [])
        table = ensure_table(
            session,
            node.path,
            planned.schema,
            name=node.name,
            properties={},
            comment=None,
            options=node.table.options,
        )
        run = Run(node, session, settings, run_id, planned, table)
        attempt = Attempt(run, batch_spec(run), letters, records)
        engine = engine_conf_of_letters(node, session, len(letters))
        with conf_of_a_run(session, engine):
            passing = attempt.passing()
        dead = [x for x in letters if x.at not in passing]
        report = ReplayReport(
            node.name,
            replay_id,
            tried=len(letters),
            replayed=len(letters) - len(dead),
            still_dead=Counter(attempt.reasons[x.at] for x in dead),
            rows=sum(passing.values()),
            finished=finished,
            dry=dry_run,
        )
        if dry_run:
            return report
        passed = [x for x in letters if x.at in passing]
        same = {"by": by, "run_id": run_id, "replay_id": replay_id}
        mark(node, passed, "replaying", **same)
        if report.rows:
            with conf_of_a_run(session, engine):
                attempt.write(passing, replay_id)
        mark(
            node,
            passed,
            "replayed",
            reason=lambda x: None if passing[x.at] else LEFT_OUT,
            **same,
        )
        mark(node, dead, "still_dead", reason=lambda x: attempt.reasons[x.at], **same)
        return report


def _by_flow(node: Node, letters: Sequence[Letter]) -> dict[Node | None, list[Letter]]:
    """Letters by the flow through which they go again; the table itself when it has no flows.

    A letter goes through the flow whose query wrote it. A checkpoint that was made anew has a query
    of its own: a letter of the one before goes through the only flow that can have read its topic,
    and through None when there are several or none.
    """
    if not node.flows:
        return {node: list(letters)}
    writers = {Checkpoint.read(part.checkpoint).query_id: part for part in node.parts}
    found: dict[Node | None, list[Letter]] = {}
    for letter in letters:
        part = writers.get(letter.values["query_id"])
        if part is None:
            reading = [one for one in node.parts if _may_read(one, letter.values["topic"])]
            part = reading[0] if len(reading) == 1 else None
        found.setdefault(part, []).append(letter)
    return found


def _may_read(node: Node, topic: str | None) -> bool:
    """Whether records of a topic can come into a table, also through others."""
    if topic is None:
        return False
    for one in node.inputs:
        source = one.source
        if isinstance(source, Topic) and source.topic == topic:
            return True
        if isinstance(source, Outside) or (isinstance(source, Node) and _may_read(source, topic)):
            return True
    return False


def _not_tried(node: Node, letter: Letter) -> str:
    """Why a letter went through no flow."""
    topic = letter.values["topic"]
    names = [part.flow.name for part in node.parts if part.flow and _may_read(part, topic)]
    reading = f"{' and '.join(names)} can have read" if names else "none of them reads"
    return (
        f"not tried: no flow of {node.name!r} has the query that wrote it, and {reading} topic "
        f"{topic!r}; it is kept, and kafka-assets reset {node.name} reads and checks all rows again"
    )


def _both(one: ReplayReport, other: ReplayReport) -> ReplayReport:
    """What was done for two flows of a table."""
    return replace(
        one,
        tried=one.tried + other.tried,
        replayed=one.replayed + other.replayed,
        still_dead=Counter(one.still_dead) + Counter(other.still_dead),
        rows=one.rows + other.rows,
        finished=one.finished + other.finished,
    )


def _finish_interrupted(node: Node, by: str | None, run_id: str) -> int:
    """Settle letters of a replay that died: were they written, or were they not?"""
    table = LakeTable.existing(node.path)
    begun: dict[str, list[Letter]] = {}
    for letter in find(node, Filter(statuses=("replaying",))):
        begun.setdefault(str(letter.decided["replay_id"]), []).append(letter)
    finished = 0
    for replay_id, letters in begun.items():
        if table.transaction(app_id(replay_id)) >= 0:
            finished += len(letters)
            status: Status = "replayed"
            why = "the replay was interrupted after it had written"
        else:
            status, why = "open", "a replay was interrupted before it had written"
        said = partial(_said, why)
        mark(node, letters, status, reason=said, by=by, run_id=run_id, replay_id=replay_id)
    return finished


def _said(why: str, _letter: Letter) -> str:
    return why


def _reads_records(node: Node, columns: list[str]) -> bool:
    direct = node.payload is None and isinstance(node.only_stream, Topic)
    return direct and {"topic", "partition", "offset"} <= set(columns)
