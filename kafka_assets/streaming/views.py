"""A materialized view: computed whole from pinned versions of its upstreams, when one changed.

Folders of files have no versions: they are read as they are, and their listing says what changed.

There is no stream and no checkpoint: the versions that a view was made from stand in its last
commit, and the commit replaces the whole table at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_assets.declarations import Topic
from kafka_assets.graph import Files, Node
from kafka_assets.sources import files
from kafka_assets.streaming import batch
from kafka_assets.streaming.dead_letters import letters_app_id
from kafka_assets.streaming.expectations import checked
from kafka_assets.streaming.query import text_of, translated
from kafka_assets.streaming.spec import BatchSpec, Replaced
from kafka_assets.streaming.tables import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_view(node: Node, session: SparkSession, spec: BatchSpec, table: LakeTable) -> None:
    """Compute a view anew when an upstream or its code changed; else do nothing.

    Args:
        node: The view.
        session: Where it is computed.
        spec: How it is written.
        table: The view as it lies in the lake.

    Raises:
        KafkaAssetsError: As `run.run_table`.
    """
    from pyspark.errors import PySparkException

    sources = [one.source for one in node.inputs]
    folders = {source.name: source for source in sources if isinstance(source, Files)}
    upstreams = {
        source.name: LakeTable.existing(source.path)
        for source in sources
        if not isinstance(source, Topic | Files)
    }
    made_from: dict[str, str] = {name: up.data_version for name, up in upstreams.items()}
    # Listed before they are read: a file that comes in between makes the next run compute again.
    made_from |= {name: files.state_of(folder).version for name, folder in folders.items()}
    last = next((c for c in table.commits() if "made_from" in c.info), None)
    newest = table.last_change
    # Rows that somebody took away since are to come back.
    untouched = newest is None or last is None or newest.version <= last.version
    letters = LakeTable.open(node.dead_letters_path)
    query = f"view-{table.table_id}"
    batch_id = 0 if last is None or last.batch_id is None else last.batch_id + 1
    # A run that died may have written letters of this batch, in place of those of the last one.
    before = [] if letters is None else letters.commits(limit=10)
    begun = any((c.query_id, c.batch_id) == (query, batch_id) for c in before)
    if (
        last is not None
        and untouched
        and not begun
        and last.info["made_from"] == made_from
        and last.info["code_version"] == spec.code_version
    ):
        return
    pinned = {
        name: session.read.format("delta").option("versionAsOf", up.version).load(up.path)
        for name, up in upstreams.items()
    }
    pinned |= {name: files.read_all(session, folder) for name, folder in folders.items()}
    frames = node.frames(lambda source, how: pinned[source.name]).values()
    who = {"query_id": query, "batch_id": batch_id, "offsets": []}
    if letters is not None:
        spec = replace(spec, letters_version=letters.transaction(letters_app_id(query)))
    if begun:
        spec = replace(spec, replayed=batch_id)
    try:
        rows = checked(spec, node.table(*frames))
        batch.write_batch(
            spec, rows, who, replaced=Replaced("true", "true"), extra={"made_from": made_from}
        )
    except batch.BatchRefused as error:
        raise translated(str(error), node) from None
    except PySparkException as error:
        raise translated(text_of(error), node) from error
