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
from functools import reduce
from typing import TYPE_CHECKING

from kafka_assets.declarations import Topic
from kafka_assets.errors import OperationRefused
from kafka_assets.graph import Node
from kafka_assets.operations.attempt import Attempt, app_id
from kafka_assets.operations.letters import OPEN, Filter, Letter, find, mark
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
        still_dead: Letters that died again; reason -> how many.
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
    if node.flows:
        parts = [
            replay(part, session, settings, wanted, by=by, run_id=run_id, dry_run=dry_run)
            for part in node.parts
        ]
        return reduce(_both, parts)
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
        finished = 0 if dry_run else _finish_interrupted(node, by)
        letters = [x for x in _of_flow(node, find(node, wanted)) if x.status in OPEN]
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


def _of_flow(node: Node, letters: Sequence[Letter]) -> list[Letter]:
    """The letters that a flow wrote; all of them for a table that has a function of its own."""
    if node.flow is None:
        return list(letters)
    query_id = Checkpoint.read(node.checkpoint).query_id
    return [letter for letter in letters if letter.values["query_id"] == query_id]


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


def _finish_interrupted(node: Node, by: str | None) -> int:
    """Settle letters of a replay that died: were they written, or were they not?"""
    table = LakeTable.existing(node.path)
    begun: dict[str, list[Letter]] = {}
    for letter in find(node, Filter(statuses=("replaying",))):
        begun.setdefault(str(letter.decided["replay_id"]), []).append(letter)
    finished = 0
    for replay_id, letters in begun.items():
        if table.transaction(app_id(replay_id)) >= 0:
            finished += len(letters)
            why = "the replay was interrupted after it had written"
            mark(node, letters, "replayed", reason=lambda _, w=why: w, by=by, replay_id=replay_id)
        else:
            why = "a replay was interrupted before it had written"
            mark(node, letters, "open", reason=lambda _, w=why: w, by=by, replay_id=replay_id)
    return finished


def _reads_records(node: Node, columns: list[str]) -> bool:
    direct = node.payload is None and isinstance(node.only_stream, Topic)
    return direct and {"topic", "partition", "offset"} <= set(columns)
