"""The account of a chain: what a topic holds and what became of each record, read from the tables.

Nothing here knows what was meant to be written: records are counted at the broker, rows in the
Delta files, and lost and doubled ones by their coordinates and by the unique ids in their payloads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_assets.declarations import Topic
from kafka_assets.graph import Graph, Node
from kafka_assets.settings import Settings
from kafka_assets.sources.kafka import KafkaAdmin

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ID_IN_PAYLOAD = r'"(?:event_id|order_id)" ?: ?"([^"\\]+)"'
"""How an event's unique id stands in the raw bytes, also of events that do not decode."""


@dataclass(frozen=True)
class Account:
    """What became of one topic's records.

    Attributes:
        topic: The topic's name at the broker.
        records: Records that the broker holds.
        bronze_table: The bronze table.
        bronze: Its rows.
        silver: Rows of the silver table.
        dead: Dead letters of the silver table.
        dead_by_rule: Rule -> dead letters; those that did not decode under `undecodable`. A row
            that broke two rules counts for both.
        gold: Gold table -> rows.
        lost: Records without a row in bronze, and records of bronze that are neither in silver nor
            among its dead letters.
        doubled: Rows or letters beyond one for each record.
        lost_ids: Unique ids in bronze payloads that neither silver nor the dead letters have.
        doubled_ids: Ids that silver or the dead letters have more than once.
    """

    topic: str
    records: int
    bronze_table: str
    bronze: int
    silver: int
    dead: int
    dead_by_rule: dict[str, int] = field(default_factory=dict)
    gold: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    doubled: int = 0
    lost_ids: int = 0
    doubled_ids: int = 0

    @property
    def conserved(self) -> dict[str, int | bool]:
        """The equality of a bronze table, over all its runs: each record is a row."""
        return {
            "left": self.records,
            "right": self.bronze,
            "holds": self.records == self.bronze,
        }

    @property
    def complete(self) -> bool:
        """True when every record is accounted for exactly once."""
        return not (self.lost or self.doubled or self.lost_ids or self.doubled_ids)


def accounts(graph: Graph, session: SparkSession, settings: Settings) -> dict[str, Account]:
    """Account for each topic's records.

    Args:
        graph: A graph of chains topic -> bronze -> silver -> gold, as the sample pipelines are.
        session: For counting.
        settings: The broker.

    Returns:
        Topic -> account.

    Raises:
        SourceError: The broker cannot be asked.
    """
    states = KafkaAdmin(settings.kafka).describe(t.topic for t in graph.topics.values())
    found = {}
    for topic in graph.topics.values():
        state = states[topic.topic]
        records = sum(end - state.earliest[p] for p, end in state.end.items())
        found[topic.topic] = account_of(topic, records, graph, session)
    return found


def account_of(topic: Topic, records: int, graph: Graph, session: SparkSession) -> Account:
    """Account for one topic's records, of which the broker holds this many."""
    from pyspark.sql import functions as F

    chain = graph.downstream_of(topic.name)
    bronze_node = next(n for n in chain if n.table.layer == "bronze")
    silver_node = next(n for n in chain if n.payload is not None)
    bronze, silver = _read(session, bronze_node.path), _read(session, silver_node.path)
    letters = _read(session, silver_node.dead_letters_path)
    where = ("topic", "partition", "offset")
    in_bronze = bronze.select(*where)
    in_silver = silver.select(*[f"_source.{name}" for name in where])
    onward = in_silver.unionAll(letters.select(*where))
    ids = bronze.select(_id_of("value")).filter("id <> ''")
    ids_onward = silver.select(F.col(_id_column(silver_node)).alias("id")).unionAll(
        letters.select(_id_of("value")).filter("id <> ''")
    )
    rows, distinct_rows = _both(in_bronze)
    moved, distinct_moved = _both(onward)
    moved_ids, distinct_moved_ids = _both(ids_onward)
    return Account(
        topic=topic.topic,
        records=records,
        bronze_table=bronze_node.name,
        bronze=rows,
        silver=silver.count(),
        dead=letters.count(),
        dead_by_rule=_by_rule(letters),
        gold={n.name: _read(session, n.path).count() for n in chain if n.table.layer == "gold"},
        lost=records - distinct_rows + distinct_rows - distinct_moved,
        doubled=rows - distinct_rows + moved - distinct_moved,
        lost_ids=ids.join(ids_onward, "id", "left_anti").count(),
        doubled_ids=moved_ids - distinct_moved_ids,
    )


def _read(session: SparkSession, path: str) -> DataFrame:
    return session.read.format("delta").load(path)


def _id_column(node: Node) -> str:
    names = () if node.payload is None else node.payload.names
    return next(name for name in ("event_id", "order_id") if name in names)


def _id_of(value: str) -> Column:
    from pyspark.sql import functions as F

    text = F.coalesce(F.try_validate_utf8(F.col(value).cast("string")), F.lit(""))
    return F.regexp_extract(text, ID_IN_PAYLOAD, 1).alias("id")


def _both(frame: DataFrame) -> tuple[int, int]:
    return frame.count(), frame.distinct().count()


def _by_rule(letters: DataFrame) -> dict[str, int]:
    from pyspark.sql import functions as F

    rules = F.when(F.size("failed_rules") == 0, F.array(F.lit("undecodable"))).otherwise(
        F.col("failed_rules")
    )
    counted = letters.select(F.explode(rules).alias("rule")).groupBy("rule").count()
    return {row["rule"]: row["count"] for row in counted.orderBy("rule").collect()}
