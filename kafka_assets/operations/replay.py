"""Trying dead letters again with today's code, rules and schema.

What passes is written to the table exactly once, also when a replay is killed and started again:
its letters are marked as being replayed first, the table's commit carries the replay's id, and the
next replay finds out by that id whether an interrupted one had written. A record of which rows are
in the table already is never written a second time.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from kafka_assets.declarations import Read, Topic
from kafka_assets.decoding.explain import explain_json
from kafka_assets.errors import LakeError, OperationRefused
from kafka_assets.graph import Node, Outside, Source
from kafka_assets.operations.letters import OPEN, Filter, Letter, find, mark
from kafka_assets.settings import Settings
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.creating import ensure_table
from kafka_assets.streaming.dead_letters import AT
from kafka_assets.streaming.expectations import checked
from kafka_assets.streaming.isolation import is_about_rows, raising_rows, within
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.plan import decoded_frame, plan_table
from kafka_assets.streaming.spec import BatchSpec
from kafka_assets.streaming.starting import Run, batch_spec
from kafka_assets.streaming.tables import LakeTable, first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

At = tuple[str | None, int | None, int | None]

AGAIN = "its record has rows in the table already, and would be in it twice"
NO_RECORD = "the record is no longer known, so it cannot be tried again"
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
        attempt = _Attempt(run, batch_spec(run), letters, records)
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


def app_id(replay_id: str) -> str:
    """The application id of a replay's commit in the table."""
    return f"replay-{replay_id}"


def _reads_records(node: Node, columns: list[str]) -> bool:
    direct = node.payload is None and isinstance(node.only_stream, Topic)
    return direct and {"topic", "partition", "offset"} <= set(columns)


class _Attempt:
    """Letters taken through today's code: which pass, and why the others do not."""

    def __init__(self, run: Run, spec: BatchSpec, letters: list[Letter], records: bool) -> None:
        from pyspark.sql import functions as F

        self._failed: set[At] = set()
        self._run, self._spec, self._letters = run, spec, letters
        self._at = {name: F.col(name if records else f"_source.{name}") for name in AT}
        self.reasons: dict[At, str] = {}
        self._rows: DataFrame | None = None

    def passing(self) -> dict[At, int]:
        """Record -> its rows, for each record that can be written now."""
        from pyspark.sql import functions as F

        known = [x for x in self._letters if None not in x.at]
        self.reasons = dict.fromkeys((x.at for x in self._letters), NO_RECORD)
        if not known:
            return {}
        self._rows = self._returned(*self._given(known))
        broken = [
            F.when(F.col(f"_broken_{i}"), F.lit(f"{rule.name}: {rule.text}"))
            for i, rule in enumerate(self._spec.rules)
            if rule.action == "drop"
        ]
        outcome = self._rows.groupBy(*self._named).agg(
            F.count("*").alias("rows"),
            F.max("_dead").alias("dead"),
            F.max(F.concat_ws("; ", *broken)).alias("reason"),
        )
        passing: dict[At, int] = {x.at: 0 for x in known if x.at not in self._failed}
        for row in outcome.collect():
            at = (row.topic, row.partition, row.offset)
            if row.dead:
                self.reasons[at] = row.reason
                passing.pop(at, None)
            elif at in passing:
                passing[at] = row["rows"]
        for at in self._written(set(passing)):
            self.reasons[at] = AGAIN
            del passing[at]
        return passing

    def write(self, passing: Mapping[At, int], replay_id: str) -> None:
        """Append the rows of these records in one commit that carries the replay's id."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        if self._rows is None:
            return
        node = self._run.node
        info = {
            "operation": "replay",
            "replay_id": replay_id,
            "run_id": self._run.run_id,
            "code_version": node.code_version,
            "rows": sum(passing.values()),
        }
        kept = self._only(self._rows, set(passing), self._at).filter(~F.col("_dead"))
        try:
            (
                kept.select(*[F.col(f"`{c}`") for c in self._spec.columns])
                .coalesce(1)
                .write.format("delta")
                .option("userMetadata", json.dumps(info))
                .option("txnAppId", app_id(replay_id))
                .option("txnVersion", 0)
                .mode("append")
                .save(node.path)
            )
        except PySparkException as error:
            raise LakeError(
                f"table {node.name!r}: the replayed rows could not be written to {node.path}: "
                f"{first_line(error)}; the letters are kept",
                fix="correct the cause and replay again",
            ) from error

    @property
    def _named(self) -> list[Column]:
        return [column.alias(name) for name, column in self._at.items()]

    def _given(self, letters: list[Letter]) -> tuple[DataFrame, str]:
        """What the function is given for these letters' records; `_failed` says what is not.

        Gives also what stands before the names of the columns that say each row's record.
        """
        from pyspark.sql import functions as F

        node, session = self._run.node, self._run.session
        upstream = node.only_stream
        if node.payload is None and isinstance(upstream, Node | Outside):
            rows = session.read.format("delta").load(upstream.path)
            before = "_source." if "_source" in rows.columns else ""
            columns = {name: F.col(f"{before}{name}") for name in AT}
            return self._only(rows, {x.at for x in letters}, columns), before
        ids = session.createDataFrame([(x.id,) for x in letters], "letter_id string")
        stored = session.read.format("delta").load(node.dead_letters_path)
        raw = stored.join(F.broadcast(ids), "letter_id", "left_semi").dropDuplicates(
            ["topic", "partition", "offset"]
        )
        raw = raw.select(
            "key",
            "value",
            "headers",
            "topic",
            "partition",
            "offset",
            "timestamp",
            F.lit(None).cast("int").alias("timestamp_type"),
            F.col("died_at").alias("ingested_at"),
        )
        if node.payload is None:
            return raw, ""
        for letter in letters:
            why = explain_json(letter.values["value"], node.payload, node.table.json)
            if why is not None:
                self.reasons[letter.at] = why
                self._failed.add(letter.at)
        decoded = decoded_frame(raw, node)
        for row in decoded.filter("_undecodable").select("_source.*").collect():
            at = (row.topic, row.partition, row.offset)
            if at not in self._failed:
                self.reasons[at] = "the payload does not decode"
                self._failed.add(at)
        return decoded.filter("NOT _undecodable").drop("_undecodable", "_raw"), "_source."

    def _returned(self, given: DataFrame, before: str) -> DataFrame:
        """What the function and the rules make of it, kept at hand, without rows that raise."""

        def returned(rows: DataFrame) -> DataFrame:
            node = self._run.node
            if node.payload is not None:
                return checked(self._spec, node.table(rows))
            # As a run does it, with these rows in the place of the stream.
            frames = node.frames(lambda source, how: self._input(source, how, rows))
            return checked(self._spec, node.table(*frames.values()))

        rows = returned(given).persist()
        try:
            rows.count()
            rows.write.format("noop").mode("overwrite").save()
        except Exception as error:
            rows.unpersist()
            raising = raising_rows(given, returned, before) if is_about_rows(error) else ()
            if not raising:
                raise
            for row in raising:
                at = (row.record.topic, row.record.partition, row.record.first)
                self.reasons[at] = f"the function raised: {row.reason}"
                self._failed.add(at)
            raises = within([r.record for r in raising], before)
            rows = returned(given.filter(~raises)).persist()
        return rows

    def _input(self, source: Source, how: Read, rows: DataFrame) -> DataFrame:
        """These rows, or a table that is read whole beside the stream."""
        if how != "static" or not isinstance(source, Node | Outside):
            return rows
        return self._run.session.read.format("delta").load(source.path)

    def _written(self, records: set[At]) -> set[At]:
        """Those of the records that have rows in the table already."""
        if not records:
            return set()
        table = self._run.session.read.format("delta").load(self._run.node.path)
        offsets = [offset for _, _, offset in records if offset is not None]
        near = self._at["offset"].between(min(offsets), max(offsets))
        found = self._only(table.filter(near), records, self._at).select(*self._named).distinct()
        return {(row.topic, row.partition, row.offset) for row in found.collect()}

    def _only(self, frame: DataFrame, records: set[At], at: Mapping[str, Column]) -> DataFrame:
        """The rows that came from these records, by the columns that say so."""
        from pyspark.sql import functions as F

        ddl = "t string, p int, o bigint"
        wanted = self._run.session.createDataFrame(list(records), ddl)
        same = (
            (at["topic"] == wanted["t"])
            & (at["partition"] == wanted["p"])
            & (at["offset"] == wanted["o"])
        )
        return frame.join(F.broadcast(wanted), same, "left_semi")
