"""Names that Dagster and people see: asset keys, groups, pools, tags, metadata keys.

Only names and how they derive from declarations. A name that two modules need stands here; a label
that one module prints stands there.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from kafka_assets.declarations import Place, Topic
from kafka_assets.graph import Files, Graph, Node, Outside, Source
from kafka_assets.settings import Settings

CHAIN = "kafka_assets/chain"
"""Run tag: the topic whose chain `kafka_lag` started."""

STARTED_BY = "kafka_assets/started_by"
"""Run tag: the sensor that started the run. A run without it was started by a person."""

REASON = "kafka_assets/reason"
"""Run tag: why the sensor started the run."""

FAILURE = "kafka_assets/failure"
"""Run tag of a failed run: the kind of failure."""

FAILED_TABLE = "kafka_assets/failed_table"
"""Run tag of a failed run: the table that failed."""

FAILED_CODE = "kafka_assets/failed_code"
"""Run tag of a failed run: `asked_version` of the table that failed."""

REPAIRED = "kafka_assets/repaired"
"""Observation tag: a person repaired the table, and its chain may try once more."""

HEARTBEAT = "kafka_assets/heartbeat"
"""Materialization tag: nothing was written; a healthy idle table was renewed."""

EMPTIED = "kafka_assets/emptied"
"""Materialization tag: the table was reset, and nothing has filled it yet."""

POSITION = "kafka_assets/position"
"""Materialization metadata: how far the table's reported commits reach (`history.Position`)."""

REPOSITORY = ".dagster/repository"
"""Run tag of Dagster's own: the repository and the code location that the run is of."""

LAG_SENSOR = "kafka_lag"
FOLDER_SENSOR = "new_files"
AUTOMATION_SENSOR = "kafka_automation"


def topic_key(topic: Topic) -> dg.AssetKey:
    """Asset key of a topic."""
    return dg.AssetKey(["kafka", topic.name])


def table_key(node: Node) -> dg.AssetKey:
    """Asset key of a table, a view or a sink."""
    return dg.AssetKey(["view" if node.is_view else node.table.layer, node.name])


def dead_letters_key(node: Node) -> dg.AssetKey:
    """Asset key of a table's dead letters."""
    return dg.AssetKey(["dlq", node.name])


def files_key(files: Files) -> dg.AssetKey:
    """Asset key of a folder of files."""
    return dg.AssetKey(["files", files.name])


def upstream_key(upstream: Source) -> dg.AssetKey:
    """Asset key of what a table reads."""
    if isinstance(upstream, Outside):
        return dg.AssetKey(list(upstream.declaration.key))
    if isinstance(upstream, Files):
        return files_key(upstream)
    return topic_key(upstream) if isinstance(upstream, Topic) else table_key(upstream)


def keys_of(node: Node) -> tuple[dg.AssetKey, ...]:
    """All asset keys that one run of a table may materialize."""
    if node.may_have_dead_letters:
        return (table_key(node), dead_letters_key(node))
    return (table_key(node),)


def group_of(place: Place) -> str:
    """The asset group of what is declared in a file: the pipeline module's name."""
    path = Path(place.file)
    stem = path.parent.name if path.stem == "__init__" else path.stem
    return re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_") or "tables"


def uri_of(path: str) -> str:
    """A path of the lake as a URI."""
    return path if "://" in path else f"file://{path}"


def lineage_version(node: Node) -> str:
    """Names the code of a table and of all tables above it."""
    sources = [one.source for one in node.inputs]
    above = [lineage_version(source) for source in sources if isinstance(source, Node)]
    return hashlib.sha256(" ".join([node.code_version, *above]).encode()).hexdigest()[:16]


def asked_version(node: Node, settings: Settings) -> str:
    """Names all that the message of a refusal may ask a person to change.

    Beside the code that is where the table lies and how many of its rows may die, which are no
    reason to compute anything anew.
    """
    share = settings.dead_letters.share_of
    allowed = [share(part.table.max_dead_share) for part in (node, *node.flows)]
    asked = (lineage_version(node), node.path, node.checkpoint, allowed)
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Chain:
    """A source and all tables that its rows reach: what one run brings up to date.

    Attributes:
        source: The topic or folder.
        tables: The tables downstream of it, upstreams first.
    """

    source: Topic | Files
    tables: tuple[Node, ...]

    @property
    def name(self) -> str:
        """The source's name in the graph."""
        return self.source.name

    @property
    def keys(self) -> frozenset[dg.AssetKey]:
        """Asset keys of the tables and their dead letters."""
        return frozenset(key for node in self.tables for key in keys_of(node))


@dataclass(frozen=True)
class TopicChain(Chain):
    """The chain of a topic."""

    source: Topic

    @property
    def topic(self) -> Topic:
        """The topic."""
        return self.source

    @property
    def readers(self) -> tuple[Node, ...]:
        """The tables that read the topic itself."""
        return tuple(node for node in self.tables if self.topic in node.topics)


@dataclass(frozen=True)
class FolderChain(Chain):
    """The chain of a folder of files."""

    source: Files

    @property
    def is_computed_from(self) -> bool:
        """Whether a table is computed from all files that are there, so that one less counts."""
        every = [(node, one) for node in self.tables for one in node.inputs]
        return any(one.source is self.source and not node.streams for node, one in every)


def chains_of(graph: Graph) -> tuple[TopicChain, ...]:
    """One chain for each topic that a table reads."""
    chains = (TopicChain(topic, graph.downstream_of(name)) for name, topic in graph.topics.items())
    return tuple(chain for chain in chains if chain.tables)


def folder_chains_of(graph: Graph) -> tuple[FolderChain, ...]:
    """One chain for each folder whose files bring a table new rows."""
    chains = (FolderChain(files, _moved_by(files, graph)) for files in graph.files.values())
    return tuple(chain for chain in chains if chain.tables)


def _moved_by(files: Files, graph: Graph) -> tuple[Node, ...]:
    """The tables that change with a folder: a stream that only looks it up has no new rows."""
    first = {
        node.name
        for node in graph.tables.values()
        for one in node.inputs
        if one.source is files and (one.read != "static" or not node.streams)
    }
    after = {node.name for name in first for node in graph.downstream_of(name)}
    return tuple(node for node in graph.tables.values() if node.name in first | after)
