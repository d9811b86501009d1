"""Change data: one run and many runs give the table that follows from all changes, in any order."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

import kafka_assets as ka
from kafka_assets.graph import Graph
from kafka_assets.settings import Settings
from kafka_assets.streaming.run import run_graph
from kafka_assets_tests.helpers import create_topic, graph_of, produce
from kafka_assets_tests.streaming.oracle import Change, present, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Customers:
    """A topic of changes, a table of them, and the table that they are applied to."""

    def __init__(self, spark: SparkSession, settings: Settings, topic: str, **how: Any) -> None:
        self.spark, self.settings, self.topic = spark, settings, topic
        assert settings.schemas is not None
        ddl = "id STRING, seq INT, op STRING, a INT, b INT"
        (settings.schemas / "change.ddl").write_text(ddl, encoding="utf-8")
        create_topic(settings.kafka.bootstrap_servers, topic)
        self.graph = self._graph(**how)
        self.node = self.graph.tables["customers"]

    def _graph(self, **how: Any) -> Graph:
        events = ka.kafka_topic(self.topic, name="events")

        @ka.streaming_table(layer="bronze", schema="change.ddl")
        def changes(events: Any) -> Any:
            return events

        customers = ka.create_streaming_table("customers", layer="silver")
        options: dict[str, Any] = {
            "keys": "id",
            "sequence_by": "seq",
            "apply_as_deletes": "op = 'delete'",
            "except_column_list": ["op", "seq"],
        }
        flow = ka.create_auto_cdc_flow(target=customers, source=changes, **{**options, **how})

        @ka.streaming_table(layer="gold", reads={"customers": "changes"})
        def history(customers: Any) -> Any:
            return customers.filter("_change_type != 'update_preimage'").select(
                "id", F.col("_change_type").alias("what")
            )

        return graph_of(self.settings, events, changes, customers, flow, history)

    def send(self, changes: Iterable[Change]) -> None:
        values = [
            json.dumps({"id": c.key, "seq": c.seq, "op": c.op, "a": c.a, "b": c.b}) for c in changes
        ]
        produce(self.settings.kafka.bootstrap_servers, self.topic, values)

    def run(self) -> Any:
        return run_graph(self.graph, self.spark, self.settings)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        found = DeltaTable(self.node.path).to_pyarrow_table(columns=list(columns)).to_pylist()
        return sorted((tuple(row[c] for c in columns) for row in found), key=lambda row: str(row))

    def present(self) -> dict[str, tuple[Any, Any]]:
        rows = self.rows("id", "a", "b")
        assert len({id_ for id_, _, _ in rows}) == len(rows), "a key has two rows"
        return {id_: (a, b) for id_, a, b in rows}

    def states(self) -> set[tuple[Any, ...]]:
        rows = self.rows("id", "a", "b", "__START_AT", "__END_AT")
        assert len(set(rows)) == len(rows), "a state stands twice"
        return set(rows)


def histories(seed: int, keys: int, *, clears: bool) -> list[Change]:
    """Changes of many keys in random order, some late, some doubled, some without a sequence."""
    die = random.Random(seed)
    changes = []
    for key in (f"k{n}" for n in range(keys)):
        for _ in range(die.randint(1, 6)):
            op = die.choices(("put", "delete"), (8, 3))[0]
            seq = die.choices((die.randint(1, 8), None), (20, 1))[0]
            value = die.choice((None, 1, 2, 3))
            changes.append(Change(key, seq, op, value, die.choice((None, 1, 2))))
    if clears:
        changes += [Change("nobody", seq, "clear") for seq in (3, 5)]
    die.shuffle(changes)
    return changes + die.sample(changes, len(changes) // 10)


def parts(changes: list[Change], seed: int, most: int) -> list[list[Change]]:
    """The changes in their order, cut at random places."""
    die = random.Random(seed)
    cuts = sorted(die.sample(range(1, len(changes)), die.randint(1, most - 1)))
    return [changes[a:b] for a, b in zip([0, *cuts], [*cuts, len(changes)], strict=True)]


@pytest.mark.parametrize("keep_on_null", [pytest.param(False, marks=pytest.mark.verify), True])
def test_type_1_has_the_present_row_of_each_key_however_the_changes_are_split_into_runs(
    spark: SparkSession, settings: Settings, topic_name: str, keep_on_null: bool
) -> None:
    customers = Customers(
        spark,
        settings,
        topic_name,
        apply_as_truncates="op = 'clear'",
        ignore_null_updates=keep_on_null,
    )
    sent: list[Change] = []
    for part in parts(histories(1, 60, clears=True), 2, 4):
        customers.send(part)
        sent += part
        reports = customers.run()
        assert customers.present() == present(sent, keep_on_null=keep_on_null)
        assert all(equality.holds for equality in reports["customers"].conservation)
    assert customers.run()["customers"].batches == 0


@pytest.mark.parametrize("keep_on_null", [False, pytest.param(True, marks=pytest.mark.verify)])
def test_type_2_has_every_state_of_each_key_however_the_changes_are_split_into_runs(
    spark: SparkSession, settings: Settings, topic_name: str, keep_on_null: bool
) -> None:
    tracked = ("a",) if keep_on_null else ("a", "b")
    customers = Customers(
        spark,
        settings,
        topic_name,
        stored_as_scd_type=2,
        ignore_null_updates=keep_on_null,
        track_history_column_list=["a"] if keep_on_null else None,
    )
    sent: list[Change] = []
    for part in parts(histories(3, 60, clears=False), 4, 4):
        customers.send(part)
        sent += part
        customers.run()
        assert customers.states() == states(sent, keep_on_null=keep_on_null, tracked=tracked)


def test_readers_of_the_change_feed_get_each_change_once(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    customers = Customers(spark, settings, topic_name)
    customers.send([Change("a", 1, "put", 1), Change("b", 1, "put", 1)])
    customers.run()
    customers.send([Change("a", 2, "put", 2), Change("b", 2, "delete"), Change("a", 0, "put", 9)])
    customers.send([Change("a", None, "put", 9), Change("c", None, "put", 9)])
    report = customers.run()["customers"]
    assert (report.kept, report.extra["removed"]) == (1, 1)
    assert report.extra["unsequenced"] == 2
    gold = DeltaTable(customers.graph.tables["history"].path).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["what"]) for row in gold) == [
        ("a", "insert"),
        ("a", "update_postimage"),
        ("b", "delete"),
        ("b", "insert"),
    ]


@pytest.mark.verify
def test_a_batch_that_is_written_again_changes_nothing(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    from pathlib import Path

    customers = Customers(spark, settings, topic_name)
    customers.send([Change("a", 1, "put", 1), Change("b", 1, "put", 1)])
    customers.run()
    commits = Path(customers.node.parts[0].checkpoint) / "commits"
    (commits / "0").unlink()
    (commits / ".0.crc").unlink()
    before = DeltaTable(customers.node.path).version()
    customers.run()
    assert customers.present() == {"a": (1, None), "b": (1, None)}
    assert DeltaTable(customers.node.path).version() == before


@pytest.mark.verify
def test_changes_that_change_nothing_finish_their_batch(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    customers = Customers(spark, settings, topic_name)
    customers.send([Change("a", 2, "put", 1)])
    before = customers.run()["customers"]
    customers.send([Change("a", 1, "put", 5), Change("z", 1, "delete")])
    report = customers.run()["customers"]
    assert (report.batches, report.kept) == (1, 0)
    # So nothing downstream is started.
    assert report.data_version == before.data_version
    assert customers.present() == {"a": (1, None)}
    customers.send([Change("a", 3, "put", 7)])
    customers.run()
    assert customers.present() == {"a": (7, None)}


def test_the_newest_record_of_each_key_counts_tombstones_delete_and_bad_records_change_nothing(
    spark: SparkSession, settings: Settings, topic_name: str
) -> None:
    from types import ModuleType

    from kafka_assets.graph import build_graph

    bootstrap = settings.kafka.bootstrap_servers
    assert settings.schemas is not None
    (settings.schemas / "change.ddl").write_text("name STRING, age INT", encoding="utf-8")
    create_topic(bootstrap, topic_name)
    module = ModuleType("people")
    source = """
import kafka_assets as ka
topic = ka.kafka_topic(TOPIC, name="records")

@ka.latest_per_key(layer="silver", schema="change.ddl")
@ka.expect_or_drop("of_age", "age >= 18")
def people(records):
    return records
"""
    module.__dict__["TOPIC"] = topic_name
    exec(compile(source, "people.py", "exec"), module.__dict__)
    graph = build_graph([module], settings)

    def send(*records: tuple[str, str | None]) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for key, value in records:
            producer.produce(topic_name, value, key)
        assert producer.flush(30) == 0

    def people() -> list[tuple[bytes, str, int]]:
        rows = DeltaTable(graph.tables["people"].path).to_pyarrow_table().to_pylist()
        return sorted((row["_key"], row["name"], row["age"]) for row in rows)

    ada, grace = '{"name": "Ada", "age": 36}', '{"name": "Grace", "age": 45}'
    send(("a", ada), ("g", grace), ("x", '{"name": "Max", "age": 7}'))
    run_graph(graph, spark, settings)
    assert people() == [(b"a", "Ada", 36), (b"g", "Grace", 45)]
    send(("g", None), ("a", '{"name": "Ada", "age": 37}'), ("a", "not JSON"), ("y", None))
    reports = run_graph(graph, spark, settings)
    assert people() == [(b"a", "Ada", 37)]
    assert reports["people"].extra["removed"] == 1
    letters = DeltaTable(graph.tables["people_changes"].dead_letters_path).to_pyarrow_table()
    assert sorted(letters.column("value").to_pylist()) == [
        b"not JSON",
        b'{"name": "Max", "age": 7}',
    ]


@pytest.mark.verify
def test_maps_are_equal_when_their_entries_are_in_whatever_order(
    spark: SparkSession, settings: Settings
) -> None:
    columns = pa.schema(
        [("id", pa.string()), ("seq", pa.int64()), ("tags", pa.map_(pa.string(), pa.int64()))]
    )

    def change(seq: int, *tags: tuple[str, int]) -> None:
        table = pa.Table.from_pylist([{"id": "a", "seq": seq, "tags": list(tags)}], columns)
        write_deltalake(f"{settings.lake}/bronze/log", table, mode="append")

    log = ka.external_table("log", path="bronze/log")
    declared: list[Any] = [log]
    for kind in (1, 2):
        declared.append(ka.create_streaming_table(f"type_{kind}", layer="silver"))
        flow = ka.create_auto_cdc_flow(
            target=f"type_{kind}",
            source="log",
            keys=["id"],
            sequence_by="seq",
            except_column_list=["seq"],
            stored_as_scd_type=kind,
        )
        declared.append(flow)
    change(1, ("x", 1), ("y", 2))
    graph = graph_of(settings, *declared)
    run_graph(graph, spark, settings)
    change(2, ("y", 2), ("x", 1))
    counts = run_graph(graph, spark, settings)
    assert [report.kept for report in counts.values()] == [0, 0]
    change(3, ("x", 5))
    run_graph(graph, spark, settings)
    (row,) = DeltaTable(graph.tables["type_1"].path).to_pyarrow_table().to_pylist()
    assert dict(row["tags"]) == {"x": 5}
    found = DeltaTable(graph.tables["type_2"].path).to_pyarrow_table().to_pylist()
    assert sorted((row["__START_AT"], len(row["tags"])) for row in found) == [(1, 2), (3, 1)]
