"""Dead letters taken through today's code: which records pass, why the others do not, their rows.

The function is given what a run gives it, with the letters' records in the place of its stream.
A record passes when none of its rows breaks a rule that drops rows or stops a run. A threshold
(`above=`) says how many rows of a batch may break a rule, and a replayed record is in no batch: a
row that breaks such a rule does not pass either, so that many replays of one letter each cannot add
up to what a run would have refused.
Which letters are tried, and what becomes of them, is `replay`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafka_assets.declarations import Read, Topic
from kafka_assets.decoding.explain import explain_json
from kafka_assets.errors import LakeError
from kafka_assets.graph import Files, Node, Outside, Source
from kafka_assets.operations.letters import Letter
from kafka_assets.sources import files
from kafka_assets.streaming.dead_letters import AT, RAW_COLUMNS
from kafka_assets.streaming.expectations import checked
from kafka_assets.streaming.isolation import is_about_rows, raising_rows, within
from kafka_assets.streaming.plan import decoded_frame
from kafka_assets.streaming.spec import BatchSpec
from kafka_assets.streaming.starting import Run
from kafka_assets.streaming.tables import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

At = tuple[str | None, int | None, int | None]

AGAIN = "its record has rows in the table already, and would be in it twice"
NO_RECORD = "the record is no longer known, so it cannot be tried again"
NO_BYTES = "neither key, value nor headers of the record are kept, so it cannot be tried again"


def app_id(replay_id: str) -> str:
    """The application id of a replay's commit in the table."""
    return f"replay-{replay_id}"


class Attempt:
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

        known = [x for x in self._letters if None not in x.at and self._has_record(x)]
        self.reasons = {x.at: self._unknown(x) for x in self._letters}
        if not known:
            return {}
        self._rows = self._returned(*self._given(known))
        broken = [
            F.when(F.col(f"_broken_{i}"), F.lit(f"{rule.name}: {rule.text}"))
            for i, rule in enumerate(self._spec.rules)
            if rule.action in ("drop", "fail")
        ]
        outcome = self._rows.groupBy(*self._named).agg(
            F.count("*").alias("rows"),
            F.max(F.concat_ws("; ", *broken)).alias("reason"),
        )
        passing: dict[At, int] = {x.at: 0 for x in known if x.at not in self._failed}
        for row in outcome.collect():
            at = (row.topic, row.partition, row.offset)
            if row.reason:
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
        kept = self._only(self._rows, set(passing), self._at)
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

    def _has_record(self, letter: Letter) -> bool:
        """Whether the bytes of a letter's record are known, here or in a table upstream.

        The letters of a topic's table without `schema=` are all that keeps them, and cannot do so
        where its function computes key, value or headers and looks at several rows at once.
        """
        if self._run.node.payload is not None or not isinstance(self._run.node.only_stream, Topic):
            return True
        kept = any(letter.values[name] is not None for name in RAW_COLUMNS)
        return kept or letter.values["row"] is None

    def _unknown(self, letter: Letter) -> str:
        """Why a letter cannot be tried, if it cannot."""
        if None in letter.at or self._has_record(letter):
            return NO_RECORD
        name = self._run.node.name
        return f"{NO_BYTES}: kafka-assets reset {name} reads and checks the topic's records again"

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
        if how != "static" or isinstance(source, Topic):
            return rows
        if isinstance(source, Files):
            return files.read_all(self._run.session, source)
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
