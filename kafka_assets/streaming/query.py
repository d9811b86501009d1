"""Starting a streaming query, waiting for it, and saying in the product's words why it stopped.

Spark's errors arrive as long texts with stack traces; here each known one becomes an error that
names the table and what to do.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafka_assets.declarations import Topic
from kafka_assets.errors import (
    DeadShareExceeded,
    ExpectationFailed,
    FenceRefused,
    KafkaAssetsError,
    LakeError,
    LeaseHeld,
    RunFailed,
    SourceError,
)
from kafka_assets.graph import Files, Node
from kafka_assets.sources import files
from kafka_assets.streaming.isolation import is_about_rows
from kafka_assets.streaming.spec import MARK

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

POLL_SECONDS = 1
ORPHAN_SECONDS = 60
_ALREADY_ACTIVE = "another query with same id is already active"


@contextmanager
def named_errors(node: Node) -> Iterator[None]:
    """Say in the product's words what the engine raises anywhere in a run.

    Args:
        node: The table, for messages.

    Raises:
        KafkaAssetsError: Instead of the engine's own errors.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise translated(text_of(error), node) from error
    except Exception as error:
        own = type(error).__module__.partition(".")[0]
        if own not in ("py4j", "grpc") and not isinstance(error, ConnectionError | EOFError):
            raise
        raise _engine_gone(node, type(error).__name__, "") from error


def start_query(start: Callable[[], StreamingQuery], node: Node) -> StreamingQuery:
    """Start a query; one that a dead client left running on a Connect server is waited for.

    Args:
        start: Starts it.
        node: Its table, for messages.

    Raises:
        LeaseHeld: The same query still runs after `ORPHAN_SECONDS`.
    """
    until = time.monotonic() + ORPHAN_SECONDS
    while True:
        try:
            return start()
        except Exception as error:
            if _ALREADY_ACTIVE not in str(error):
                raise
            if time.monotonic() > until:
                raise LeaseHeld(
                    f"table {node.name!r}: a query with its checkpoint is still running in this "
                    "engine, left by a client that died or started by another; nothing was done "
                    "here",
                    fix="wait for it to end, or restart the Spark Connect server",
                ) from None
        time.sleep(1)


def await_query(query: StreamingQuery, node: Node) -> None:
    """Wait until a query has drained its source.

    Args:
        query: A started `availableNow` query.
        node: Its table, for messages.

    Raises:
        KafkaAssetsError: The query stopped with an error; see `run.run_table`.
        KeyboardInterrupt: The query was stopped first.
    """
    from pyspark.errors import PySparkException

    try:
        while not query.awaitTermination(POLL_SECONDS):
            pass
    except KeyboardInterrupt:
        query.stop()
        raise
    except PySparkException as error:
        raise translated(text_of(error), node) from error


def state_figures(query: StreamingQuery) -> dict[str, int]:
    """What a stateful query kept and left out; empty for a query without state.

    Returns:
        `state_rows`, the rows of state that it holds at its end, such as windows that are still
        open; and `late_rows`, those that came after the watermark and are in no result.
    """
    figures: dict[str, int] = {}
    for progress in query.recentProgress:
        operators = progress["stateOperators"]
        if not operators:
            continue
        late = sum(int(operator["numRowsDroppedByWatermark"]) for operator in operators)
        figures["late_rows"] = figures.get("late_rows", 0) + late
        figures["state_rows"] = sum(int(operator["numRowsTotal"]) for operator in operators)
    return figures


def translated(text: str, node: Node) -> KafkaAssetsError:
    """The product's error for the text of a Spark exception."""
    refused = re.search(f"{MARK}({{.*?}}){MARK}", text, re.DOTALL)
    if refused is not None:
        return _refused(json.loads(_unescaped(refused.group(1))), node)
    for pattern, make in _KNOWN:
        found = re.search(pattern, text)
        if found is not None:
            return make(node, found.group(0), text)
    fix = "correct the cause and run again: the run continues where it stopped"
    reads_rows = node.table.kind == "streaming_table" and not node.table.keys
    if is_about_rows(text) and reads_rows and not node.may_have_dead_letters:
        fix += "; in a table with schema= such a row becomes a dead letter"
    return RunFailed(
        f"table {node.name!r}: Spark stopped the run: {_gist(text)}; batches committed before it "
        "are kept",
        fix=fix,
    )


def text_of(error: BaseException) -> str:
    """What an engine's error says, and what each of its causes in the engine does."""
    ask = getattr(error, "getStackTrace", None)
    stack = (ask() if ask is not None else getattr(error, "_stackTrace", None)) or ""
    causes = [line for line in stack.splitlines() if line.startswith("Caused by: ")]
    return "\n".join([str(error), *causes])


def _unescaped(text: str) -> str:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return text.encode().decode("unicode_escape")
    return text


def _refused(details: dict[str, Any], node: Node) -> KafkaAssetsError:
    if details["reason"] == "outside_window":
        return RunFailed(
            f"table {node.name!r} ({node.table.place}): {details['rows']} rows that its function "
            "returned lie outside the windows that were recomputed; nothing of the batch was "
            "committed",
            fix="let the window column lie inside the window of the rows that it is made from",
        )
    if details["reason"] == "doubled_keys":
        key = ", ".join(f"{name}={value}" for name, value in details["key"].items())
        return RunFailed(
            f"table {node.name!r} ({node.table.place}): batch {details['batch_id']} has "
            f"{details['rows']} rows with {key}, and keys= says that there is one; nothing of the "
            "batch was committed",
            fix="let the function aggregate by these columns; of changes to a row, "
            "create_auto_cdc_flow keeps the latest",
        )
    if details["reason"] == "dead_share":
        return _dead_share(details, node)
    rules = details["rules"]
    broken = "; ".join(
        f"{name}: {found['broken']} of {details['rows']} rows, the first at {_at(found['first'])}"
        for name, found in rules.items()
    )
    return ExpectationFailed(
        f"table {node.name!r}: batch {details['batch_id']} breaks {broken}. Nothing of this batch "
        "was committed; earlier batches are kept",
        rules=rules,
        fix="correct the rule or the function, or make the rule expect_or_drop; then run again",
    )


def _dead_share(details: dict[str, Any], node: Node) -> KafkaAssetsError:
    counts = details["counts"]
    seen = counts.get("read", counts["returned"] + counts.get("raised", 0))
    causes = {k: counts.get(k) for k in ("undecodable", "raised")}
    causes |= {name: found["broken"] for name, found in counts["rules"].items()}
    why = ", ".join(f"{name} {count}" for name, count in causes.items() if count)
    return DeadShareExceeded(
        f"table {node.name!r}: {details['dead']} of {seen} rows of batch {details['batch_id']} "
        f"would become dead letters, more than {details['most']:.0%} ({why}). Nothing of this "
        "batch was committed; earlier batches are kept, and its rows stay in the source",
        fix="correct the schema, the rule or the function and run again; if so many rows are "
        "really bad, run with KAFKA_ASSETS_DEAD_LETTERS__MAX_SHARE=1 or set max_dead_share= on "
        "the table",
    )


def _at(first: Any) -> str:
    if not first:
        return "(rows have no _source)"
    return f"{first['topic']}/{first['partition']} offset {first['offset']}"


def _gist(text: str) -> str:
    """The innermost cause: Java's last `Caused by`, else Python's last raised error."""
    java = re.findall(r"Caused by: ([^\n]+)", text)
    python = re.findall(r"^([A-Za-z_][\w.]*(?:Error|Exception): [^\n]+)", text, re.MULTILINE)
    causes = python or java
    head = next((line for line in text.splitlines() if line.strip()), "no message")
    return causes[-1][:500] if causes else head[:500]


def _engine_gone(node: Node, found: str, text: str) -> KafkaAssetsError:
    return RunFailed(
        f"table {node.name!r}: Spark's process ended or does not answer any more ({found}); "
        "batches committed before are kept",
        fix="run again in a new process: the run continues where it stopped",
    )


def _full_disk(node: Node, found: str, text: str) -> KafkaAssetsError:
    return LakeError(
        f"table {node.name!r}: no space left on the disk of {node.path}; the batch that did "
        "not fit was not committed",
        fix="free some space and run again",
    )


def _no_permission(node: Node, found: str, text: str) -> KafkaAssetsError:
    return LakeError(
        f"table {node.name!r}: {node.path} or {node.checkpoint} cannot be written: {_gist(text)}",
        fix="make the lake writable and run again",
    )


def _broker_gone(node: Node, found: str, text: str) -> KafkaAssetsError:
    return SourceError(
        f"table {node.name!r}: the broker stopped answering ({found}); batches committed "
        "before are kept",
        fix="start the broker and run again",
        transient=True,
    )


def _not_allowed(node: Node, found: str, text: str) -> KafkaAssetsError:
    return SourceError(
        f"table {node.name!r}: the broker refused this user ({found}); batches committed before "
        "are kept",
        fix="allow Describe and Read on the topic to this user, or correct its login; then run "
        "again",
    )


def _constraint_broken(node: Node, found: str, text: str) -> KafkaAssetsError:
    name = found.split()[2]
    return RunFailed(
        f"table {node.name!r} ({node.table.place}): a row breaks the constraint {name!r}: "
        f"{_gist(text)}; nothing of its batch was written, batches committed before are kept",
        fix="let such rows become dead letters by expect_or_drop, or ALTER TABLE "
        f"delta.`{node.path}` DROP CONSTRAINT {name} when it is wrong",
    )


def _topic_changed(node: Node, found: str, text: str) -> KafkaAssetsError:
    return SourceError(
        f"table {node.name!r}: the topic changed while it was read ({found}); batches committed "
        "before are kept",
        fix="run again; if it stays, the topic has lost partitions or records",
        transient=True,
    )


def _data_loss(node: Node, found: str, text: str) -> KafkaAssetsError:
    return FenceRefused(
        "offsets_lost",
        f"table {node.name!r}: records that were not read yet are gone from the topic: "
        f"{_why_lost(text)}; batches committed before are kept",
        fix=f"kafka-assets accept-loss {node.name}; and lengthen the topic's retention",
    )


def _why_lost(text: str) -> str:
    """The part of Spark's message that has the offsets."""
    found = re.search(r"Reason: ([^\n]*?)(?:\. |\n|$)", text)
    return found.group(1) if found is not None else _gist(text)


def _other_upstream(node: Node, found: str, text: str) -> KafkaAssetsError:
    return FenceRefused(
        "source_recreated",
        f"table {node.name!r}: its upstream table is another one than before: {_gist(text)}",
        fix=f"kafka-assets reset {node.name}",
    )


def _upstream_rewritten(node: Node, found: str, text: str) -> KafkaAssetsError:
    return FenceRefused(
        "upstream_rewritten",
        f"table {node.name!r}: rows of its upstream were deleted or changed ({found}), and a "
        "stream reads only rows that are added; batches committed before are kept",
        fix=f"kafka-assets reset {node.name} (builds it anew from what the upstream has now)",
    )


def _upstream_files_gone(node: Node, found: str, text: str) -> KafkaAssetsError:
    looked_up = [one.source for one in node.inputs if one.read == "static"]
    folders = [files.fixed_part(one) for one in looked_up if isinstance(one, Files)]
    tables = [one.path for one in node.streams if not isinstance(one, Files | Topic)]
    # A folder may be one that tables lie in as well.
    if any(at in text for at in folders) and not any(at in text for at in tables):
        return SourceError(
            f"table {node.name!r}: a file went while it was read ({found}): {_gist(text)}; batches "
            "committed before are kept",
            fix="run again: files that are looked up, or that a view is made from, are read as "
            "they are then",
            transient=True,
        )
    return FenceRefused(
        "upstream_files_gone",
        f"table {node.name!r}: files or log entries of its upstream that were not read yet are "
        f"gone ({found}): {_gist(text)}",
        fix=f"kafka-assets reset {node.name}; and keep files longer than the longest pause "
        "(VACUUM, delta.logRetentionDuration)",
    )


_KNOWN = (
    (r"RETRIES_EXCEEDED|StatusCode\.UNAVAILABLE|INVALID_HANDLE\.SESSION_\w+", _engine_gone),
    (r"No space left on device", _full_disk),
    (r"AccessDeniedException|Permission denied|Read-only file system", _no_permission),
    # Spark 4.0 writes the texts of these errors, not their names.
    (
        r"KAFKA_DATA_LOSS\.\w+|Some data may have been lost because they are not available",
        _data_loss,
    ),
    (r"\w*(?:Authorization|SaslAuthentication|SslAuthentication)Exception[^\n]*", _not_allowed),
    (r"[^\n]*Trigger\.AvailableNow[^\n]*", _topic_changed),
    (r"DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", _other_upstream),
    (r"CHECK constraint (\w+)[^\n]*violated by row", _constraint_broken),
    (r"DELTA_SOURCE_(TABLE_IGNORE_CHANGES|IGNORE_DELETE)", _upstream_rewritten),
    (
        r"DELTA_MISSING_FILES_UNEXPECTED_VERSION|DELTA_LOG_FILE_NOT_FOUND\w*|"
        r"FAILED_READ_FILE\.FILE_NOT_EXIST|DELTA_FILE_NOT_FOUND\w*",
        _upstream_files_gone,
    ),
    (
        r"Timed out waiting for a node assignment|TimeoutException: [^\n]*|"
        r"Failed to construct kafka\w*|could not be established[^\n]*",
        _broker_gone,
    ),
)
