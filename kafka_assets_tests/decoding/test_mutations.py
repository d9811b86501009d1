"""Bad data as a property: whatever stands in a topic, no row is lost, doubled, changed or fatal.

Hypothesis damages good payloads in more than 10,000 ways; these and the fixed corpus go through a
real topic, bronze, and a silver table with a drop rule and a warn rule. Where each payload has to
end is worked out in plain Python, without Spark, and the tables are read without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from pyspark.sql import types as t

import kafka_assets as ka
from kafka_assets.decoding.explain import explain_json
from kafka_assets.options import JsonOptions
from kafka_assets.settings import KafkaSettings, Settings
from kafka_assets.streaming.run import run_graph
from kafka_assets_tests.conftest import engine
from kafka_assets_tests.decoding.corpus import GROUPS
from kafka_assets_tests.decoding.harness import as_bytes, read_strictly
from kafka_assets_tests.decoding.mutations import DDL, Record, mutations
from kafka_assets_tests.helpers import create_topic, graph_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.demo.broker import Broker
    from kafka_assets.streaming.report import RunReport

# All the time goes into the one fixture; on a machine with other work it takes minutes.
pytestmark = pytest.mark.timeout(900)

EXAMPLES = 4500
TOPIC = "mutations"
OPTIONS = JsonOptions()

At = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class Outcome:
    """What was produced, and where it ended."""

    produced: Mapping[At, Record]
    schema: t.StructType
    reports: Mapping[str, RunReport]
    bronze: Mapping[At, dict[str, Any]]
    silver: Mapping[At, dict[str, Any]]
    letters: Mapping[At, dict[str, Any]]

    def readable(self) -> dict[At, dict[str, Any]]:
        """What Python reads from each payload that the schema allows."""
        return {
            at: dict(zip(self.schema.names, _read(record, self.schema), strict=True))
            for at, record in self.produced.items()
            if explain_json(record.value, self.schema, OPTIONS) is None
        }


def _read(record: Record, schema: t.StructType) -> Any:
    assert record.value is not None
    return read_strictly(record.value.decode(), schema, OPTIONS)


def generated(examples: int = EXAMPLES) -> list[Record]:
    """The mutations, each once; the same ones in every run."""
    found: list[Record] = []

    # A payload that goes wrong is shown by its bytes, so nothing needs to be shrunk or kept.
    @hypothesis_settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(mutations())
    def gather(records: list[Record]) -> None:
        found.extend(records)

    gather()
    return list(dict.fromkeys(found))


def produce(bootstrap: str, records: list[Record]) -> dict[At, Record]:
    """Send records to both partitions of the topic, and say where each came to lie."""
    create_topic(bootstrap, TOPIC, partitions=2)
    sent: dict[At, Record] = {}
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})

    def landed(record: Record, error: Any, message: Any) -> None:
        assert error is None, error
        sent[message.partition(), message.offset()] = record

    for number, record in enumerate(records):
        producer.produce(
            TOPIC,
            record.value,
            record.key,
            partition=number % 2,
            headers=list(record.headers),
            on_delivery=partial(landed, record),
        )
        producer.poll(0)
    assert producer.flush(60) == 0, "the broker did not take all records"
    return sent


def rows(path: str) -> dict[At, dict[str, Any]]:
    """Rows of a table by coordinates; two rows with the same ones fail."""
    found: dict[At, dict[str, Any]] = {}
    for row in DeltaTable(path).to_pyarrow_table().to_pylist():
        source = row.get("_source") or row
        at = (source["partition"], source["offset"])
        assert at not in found, f"{at} is there twice: {found[at]} and {row}"
        found[at] = row
    return found


def plain(value: Any, declared: t.DataType) -> Any:
    """A value of a Delta table in the form that `read_strictly` makes."""
    if value is None:
        return None
    if isinstance(declared, t.StructType):
        return tuple(plain(value[f.name], f.dataType) for f in declared.fields)
    if isinstance(declared, t.ArrayType):
        return [plain(element, declared.elementType) for element in value]
    if isinstance(declared, t.MapType):
        return {key: plain(element, declared.valueType) for key, element in value}
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def raw(row: Mapping[str, Any], prefix: str = "") -> tuple[Any, ...]:
    """Key and headers of a row, for comparison; Spark has null where there are no headers."""
    headers = row[f"{prefix}headers"] or []
    return row[f"{prefix}key"], tuple((h["key"], h["value"]) for h in headers)


@pytest.fixture(scope="module")
def outcome(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Outcome:
    folder = tmp_path_factory.mktemp("mutations")
    (folder / "payload.ddl").write_text(DDL)
    kafka = KafkaSettings(bootstrap_servers=broker.bootstrap, max_offsets_per_trigger=5000)
    settings = Settings(lake=str(folder / "lake"), schemas=folder, kafka=kafka, spark=engine())
    events = ka.kafka_topic(TOPIC, name="events")

    @ka.streaming_table(layer="bronze")
    def bronze(events: Any) -> Any:
        return events

    # Most of this data is bad on purpose, which would stop a run that has not agreed to it.
    @ka.streaming_table(layer="silver", schema="payload.ddl", max_dead_share=1)
    @ka.expect_or_drop("positive", "x > 0")
    @ka.expect("named", "name IS NOT NULL")
    def silver(bronze: Any) -> Any:
        return bronze

    corpus = [Record(as_bytes(payload)) for group in GROUPS for payload, _ in group.cases]
    produced = produce(broker.bootstrap, generated() + corpus)
    graph = graph_of(settings, events, bronze, silver)
    node = graph.tables["silver"]
    assert node.payload is not None
    return Outcome(
        produced=produced,
        schema=node.payload,
        reports=run_graph(graph, spark, settings),
        bronze=rows(graph.tables["bronze"].path),
        silver=rows(node.path),
        letters=rows(node.dead_letters_path),
    )


def test_ten_thousand_different_records_were_tried_and_all_fates_occur(outcome: Outcome) -> None:
    assert len(set(outcome.produced.values())) > 10_000
    undecodable = [letter for letter in outcome.letters.values() if not letter["failed_rules"]]
    fates = len(outcome.silver), len(undecodable), len(outcome.letters) - len(undecodable)
    assert min(fates) > 500, fates


def test_bronze_holds_every_record_byte_for_byte(outcome: Outcome) -> None:
    found = {at: (row["value"], *raw(row)) for at, row in outcome.bronze.items()}
    assert found == {at: (r.value, r.key, r.headers) for at, r in outcome.produced.items()}


def test_every_record_is_kept_or_dead_and_none_is_both(outcome: Outcome) -> None:
    kept, dead = outcome.silver.keys(), outcome.letters.keys()
    assert kept | dead == outcome.produced.keys()
    assert not kept & dead


def test_the_report_counts_the_same_on_both_sides(outcome: Outcome) -> None:
    report = outcome.reports["silver"]
    assert [equality.name for equality in report.conservation] == ["rows_read", "rows_returned"]
    assert all(equality.holds for equality in report.conservation), report.conservation
    assert outcome.reports["bronze"].kept == report.rows_read == len(outcome.produced)
    assert (report.kept, report.dead) == (len(outcome.silver), len(outcome.letters))


def test_every_dead_letter_holds_the_bytes_that_were_produced(outcome: Outcome) -> None:
    for at, letter in outcome.letters.items():
        record = outcome.produced[at]
        assert (letter["value"], *raw(letter)) == (record.value, record.key, record.headers), at


def test_every_undecodable_letter_has_a_reason_of_its_own(outcome: Outcome) -> None:
    for at, letter in outcome.letters.items():
        if not letter["failed_rules"]:
            value = outcome.produced[at].value
            assert letter["reason"] == explain_json(value, outcome.schema, OPTIONS), value


def test_every_kept_row_is_what_python_reads_from_its_payload(outcome: Outcome) -> None:
    for at, row in outcome.silver.items():
        record = outcome.produced[at]
        found = plain({name: row[name] for name in outcome.schema.names}, outcome.schema)
        assert found == _read(record, outcome.schema), record.value
        assert raw(row, "_") == (record.key, record.headers)


def test_rules_judge_every_row_as_python_does(outcome: Outcome) -> None:
    readable = outcome.readable()
    positive = {at for at, row in readable.items() if row["x"] is not None and row["x"] > 0}
    assert outcome.silver.keys() == positive
    broken = {rule.name: rule.broken for rule in outcome.reports["silver"].rules}
    unnamed = sum(row["name"] is None for row in readable.values())
    assert broken == {"positive": len(readable) - len(positive), "named": unnamed}
