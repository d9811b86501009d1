"""Dead letters as people work with them: finding, counting, reading, discarding. Needs no Spark.

A letter is never changed. What became of it stands in a table of statuses beside it, to which rows
are only added; the newest row of a letter counts. How letters are written is
`streaming.dead_letters`'; how they are tried again is `replay`'s.
"""

from __future__ import annotations

import base64
import getpass
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from kafka_assets.errors import OperationRefused
from kafka_assets.graph import Graph, Node
from kafka_assets.settings import Settings
from kafka_assets.streaming.creating import ensure_bookkeeping
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.tables import LakeTable

Status = Literal["open", "still_dead", "replaying", "replayed", "discarded"]
OPEN: tuple[Status, ...] = ("open", "still_dead")
"""Letters that are waiting for somebody."""

STATUSES: tuple[Status, ...] = ("open", "still_dead", "replaying", "replayed", "discarded")

UNDECODABLE, RAISED = "(undecodable)", "(raised)"
"""What stands for the rule of a letter that broke none."""

STATUS_FIELDS = (
    ("letter_id", "string"),
    ("status", "string"),
    ("reason", "string"),
    ("by", "string"),
    ("at", "timestamp"),
    ("run_id", "string"),
    ("replay_id", "string"),
    ("code_version", "string"),
)

COLUMNS = (
    "letter_id",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "key",
    "value",
    "headers",
    "failed_rules",
    "reason",
    "row",
    "query_id",
    "batch_id",
    "run_id",
    "died_at",
)


@dataclass(frozen=True)
class Filter:
    """Which letters are meant; what is None means any.

    Attributes:
        rule: A rule's name, `(undecodable)` or `(raised)`.
        reason: A regular expression found somewhere in the reason.
        since: Letters written at this time or later (UTC).
        until: Letters written before this time (UTC).
        topic: The record's topic.
        partition: The record's partition.
        offsets: First and last offset of the record, both included.
        statuses: What became of the letter.
    """

    rule: str | None = None
    reason: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    statuses: tuple[Status, ...] = OPEN

    def condition(self) -> Any:
        """What of it the files' statistics can help with, for `pyarrow.dataset`."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        found = ds.scalar(True)
        if self.topic is not None:
            found &= ds.field("topic") == self.topic
        if self.partition is not None:
            found &= ds.field("partition") == self.partition
        if self.offsets is not None:
            first, last = self.offsets
            found &= (ds.field("offset") >= first) & (ds.field("offset") <= last)
        utc = pa.timestamp("us", tz="UTC")
        if self.since is not None:
            found &= ds.field("died_at") >= pa.scalar(self.since, utc)
        if self.until is not None:
            found &= ds.field("died_at") < pa.scalar(self.until, utc)
        return found

    def takes(self, letter: Letter) -> bool:
        """Whether a letter that meets `condition` is meant."""
        if self.rule is not None and self.rule not in letter.rules:
            return False
        if self.reason is not None and not re.search(self.reason, letter.reason):
            return False
        return letter.status in self.statuses


@dataclass(frozen=True)
class Letter:
    """One dead letter and what became of it.

    Attributes:
        values: The letter's columns, as `streaming.creating.LETTERS` describes them.
        status: What became of it.
        decided: The newest row of statuses; empty for a letter that nobody has looked at.
    """

    values: Mapping[str, Any]
    status: Status
    decided: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Names the letter."""
        return str(self.values["letter_id"])

    @property
    def reason(self) -> str:
        """Why the row is here, by today's knowledge."""
        newer = self.decided.get("reason") if self.status == "still_dead" else None
        return str(newer or self.values["reason"])

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that the row broke, or what stands for them."""
        failed = tuple(self.values["failed_rules"] or ())
        if failed:
            return failed
        raised = str(self.values["reason"]).startswith("the function raised: ")
        return (RAISED,) if raised else (UNDECODABLE,)

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON has it; bytes as base64, and as text."""
        whole = {**self.values, "status": self.status, "decided": dict(self.decided)}
        plain: dict[str, Any] = json.loads(json.dumps(whole, default=_plain))
        return plain

    @property
    def at(self) -> tuple[str | None, int | None, int | None]:
        """Topic, partition and offset of its record."""
        return (self.values["topic"], self.values["partition"], self.values["offset"])


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode(), "text": value.decode(errors="replace")}
    return str(value)


def find(node: Node, wanted: Filter | None = None) -> list[Letter]:
    """The letters of a table, oldest first.

    Letters of a batch that the table does not have are left out: the batch will be run again, and
    writes them anew.

    Args:
        node: The table.
        wanted: Which letters; by default those that are open.

    Raises:
        LakeError: The letters or their statuses cannot be read.
        OperationRefused: The reason is no regular expression.
    """
    wanted = wanted or Filter()
    try:
        re.compile(wanted.reason or "")
    except re.error as error:
        raise OperationRefused(
            f"--reason {wanted.reason!r} is no regular expression: {error}",
            fix="escape ( ) [ ] . * + ? with a backslash",
        ) from None
    letters, table = LakeTable.open(node.dead_letters_path), LakeTable.open(node.path)
    if letters is None or table is None:
        return []
    decided = _decided(node)
    committed: dict[str, int] = {}
    found = []
    for values in letters.read(COLUMNS, wanted.condition()).to_pylist():
        query = values["query_id"]
        if query not in committed:
            committed[query] = table.transaction(query)
        if values["batch_id"] > committed[query]:
            continue
        decision = decided.get(values["letter_id"], {})
        letter = Letter(values, decision.get("status", "open"), decision)
        if wanted.takes(letter):
            found.append(letter)
    return sorted(found, key=lambda letter: (letter.values["died_at"], *map(str, letter.at)))


@dataclass(frozen=True)
class Group:
    """Letters of one table that broke the same rule.

    Attributes:
        table: The table's name.
        rule: The rule, `(undecodable)` or `(raised)`.
        counts: Status -> letters.
        oldest: When the first of them was written (UTC).
        newest: When the last of them was written (UTC).
        example: A reason.
    """

    table: str
    rule: str
    counts: Mapping[str, int]
    oldest: datetime
    newest: datetime
    example: str


def overview(nodes: Iterable[Node], wanted: Filter | None = None) -> list[Group]:
    """Letters counted by table and rule; a letter that broke two rules counts for both."""
    wanted = wanted or Filter(statuses=STATUSES)
    groups = []
    for node in nodes:
        by_rule: dict[str, list[Letter]] = {}
        for letter in find(node, wanted):
            for rule in letter.rules:
                by_rule.setdefault(rule, []).append(letter)
        groups += [
            Group(
                node.name,
                rule,
                Counter(letter.status for letter in letters),
                letters[0].values["died_at"],
                letters[-1].values["died_at"],
                letters[-1].reason,
            )
            for rule, letters in sorted(by_rule.items())
        ]
    return groups


def discard(
    node: Node,
    settings: Settings,
    wanted: Filter,
    *,
    reason: str,
    by: str | None = None,
    run_id: str | None = None,
) -> int:
    """Mark letters as discarded: nobody will try them again. Nothing is deleted.

    Args:
        node: The table.
        settings: For the lease.
        wanted: Which of the open letters.
        reason: Why; kept with each of them.
        by: Who; by default the user of this process.
        run_id: Id of the run, when Dagster does it.

    Returns:
        How many.

    Raises:
        OperationRefused: There is no reason.
        LeaseHeld: A run is writing the table.
    """
    if not reason.strip():
        raise OperationRefused("letters are discarded for a reason", fix="say it with --because")
    with lease(node, settings, "discard"):
        letters = find(node, wanted)
        mark(node, letters, "discarded", reason=lambda _: reason, by=by, run_id=run_id)
    return len({letter.id for letter in letters})


def mark(
    node: Node,
    letters: Iterable[Letter],
    status: Status,
    *,
    reason: Any = lambda letter: None,
    by: str | None = None,
    run_id: str | None = None,
    replay_id: str | None = None,
) -> None:
    """Add a row of status for each letter; the lease of the table must be held."""
    import pyarrow as pa

    ids = {letter.id: letter for letter in letters}
    if not ids:
        return
    now, who = datetime.now(UTC), by or user()
    rows = [
        {
            "letter_id": id,
            "status": status,
            "reason": reason(letter),
            "by": who,
            "at": now,
            "run_id": run_id,
            "replay_id": replay_id,
            "code_version": node.code_version,
        }
        for id, letter in ids.items()
    ]
    table = ensure_bookkeeping(status_path(node), STATUS_FIELDS)
    info = {"operation": status, "run_id": run_id, "replay_id": replay_id}
    table.append(pa.Table.from_pylist(rows, schema=table.arrow_schema), info=info)


def require_retention(settings: Settings) -> None:
    """Refuse to remove old letters where nothing says what is old.

    Raises:
        OperationRefused: No retention is set; says how to.
    """
    if settings.dead_letters.retention_days is None:
        raise OperationRefused(
            "no retention is set, so all dead letters are kept",
            fix="set KAFKA_ASSETS_DEAD_LETTERS__RETENTION_DAYS",
        )


def purge(node: Node, settings: Settings, *, now: datetime | None = None) -> int:
    """Remove letters that were replayed or discarded longer ago than the retention.

    Args:
        node: The table.
        settings: `dead_letters.retention_days` says how long.
        now: By default the present.

    Returns:
        How many were removed; 0 when the setting is not set.
    """
    days = settings.dead_letters.retention_days
    letters = LakeTable.open(node.dead_letters_path)
    if days is None or letters is None:
        return 0
    before = (now or datetime.now(UTC)) - timedelta(days=days)
    closed = find(node, Filter(statuses=("replayed", "discarded")))
    # What is closed stays so: no run has to wait while it is looked for.
    old = [letter.id for letter in closed if letter.decided["at"] < before]
    if not old:
        return 0
    with lease(node, settings, "purge"):
        for start in range(0, len(old), 500):
            names = ", ".join(f"'{id}'" for id in old[start : start + 500])
            letters.delete(f"letter_id IN ({names})")
    return len(old)


def status_path(node: Node) -> str:
    """Where the statuses of a table's letters lie. No table's name holds two underscores."""
    return f"{node.dead_letters_path}__status"


def user() -> str:
    """Who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _decided(node: Node) -> dict[str, dict[str, Any]]:
    statuses = LakeTable.open(status_path(node))
    if statuses is None:
        return {}
    rows = statuses.read(tuple(name for name, _ in STATUS_FIELDS)).to_pylist()
    return {row["letter_id"]: row for row in sorted(rows, key=lambda row: row["at"])}


def table_of(graph: Graph, name: str) -> Node:
    """The table of this name.

    Raises:
        OperationRefused: There is none.
    """
    if name not in graph.tables:
        raise OperationRefused(f"there is no table {name!r}", fix=f"use {', '.join(graph.tables)}")
    return graph.tables[name]
