"""Every kind of table holds the same after one run and after many, and after repeated batches."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

from kafka_assets.graph import Graph, build_graph
from kafka_assets.orchestration.build import graph_defs
from kafka_assets.orchestration.checks import CONSERVATION
from kafka_assets.settings import Settings
from kafka_assets.streaming import interpreted
from kafka_assets.streaming.run import run_graph
from kafka_assets_tests import every_kind
from kafka_assets_tests.helpers import create_topic
from kafka_assets_tests.streaming.test_sinks import records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAME_COLUMNS = {
    "orders": ("id", "customer", "amount", "at"),
    "movements": ("id", "customer", "amount"),
    "customers": ("id", "seq", "name"),
    "customer_states": ("id", "name", "__START_AT", "__END_AT"),
    "orders_abroad": ("id", "country", "amount"),
    "orders_once": ("id",),
    "orders_with_twins": ("id", "amount", "at"),
    "customers_now": ("_key", "id", "seq", "name"),
    "closed_hours": ("hour", "count"),
    "coupons_kept": ("code", "off", "_rescued_data"),
    "hourly": ("hour", "orders", "amount"),
    "spent": ("customer", "amount"),
    "balances": ("customer", "amount"),
}
"""Tables whose rows do not depend on how their input was cut into runs."""

TOPICS = ("orders", "returns", "customers", "alerts")
EQUALITIES = 15
"""As many as there are in the list of what Dagster shows (`orchestration/test_every_kind.py`)."""

Record = tuple[str | None, dict[str, Any] | None]
CLOSING: Record = (
    None,
    {"id": "closing", "customer": "c0", "amount": 7, "at": "2026-11-22T00:00:00Z"},
)
"""An order that comes so much later than the others that every hour before it is over."""


class Everything:
    """Two lakes of the same pipeline: one run often, the other once at the end."""

    def __init__(
        self, spark: SparkSession, settings: Settings, folder: Path, pipelines: list[ModuleType]
    ) -> None:
        self.spark, self.bootstrap = spark, settings.kafka.bootstrap_servers
        schemas = folder / "schemas"
        (schemas / "every_order.ddl").write_text(
            "id STRING, customer STRING, amount INT, at TIMESTAMP", encoding="utf-8"
        )
        (schemas / "every_customer.ddl").write_text(
            "id STRING, seq INT, op STRING, name STRING", encoding="utf-8"
        )
        self.instance = dg.DagsterInstance.ephemeral()
        self.often = settings
        self.once = settings.model_copy(update={"lake": str(folder / "once")})
        self._pipelines = dict(zip((self.often.lake, self.once.lake), pipelines, strict=True))
        for lake in (self.often.lake, self.once.lake):
            countries = {"customer": ["c0", "c1", "c2"], "country": ["NL", "KE", "PE"]}
            write_deltalake(f"{lake}/silver/countries", pa.table(countries))
        for topic in TOPICS:
            create_topic(self.bootstrap, self.topic(topic))

    def topic(self, name: str) -> str:
        return f"{self._pipelines[self.often.lake].PREFIX}-{name}"

    def archived(self, settings: Settings) -> Counter[Any]:
        """What went to another team."""
        return _rows(self._pipelines[settings.lake].ARCHIVE, ("id", "amount"))

    def upload(self, part: int) -> None:
        """A file that appears in the folders of both lakes."""
        for lake in (self.often.lake, self.once.lake):
            folder = Path(lake, "landing")
            folder.mkdir(exist_ok=True)
            (folder / f"{part}.csv").write_text(f"c{part},{part}\nc{part},many\n")

    def send(self, topic: str, *sent: Record) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 1})
        for key, value in sent:
            payload = None if value is None else json.dumps(value)
            producer.produce(self.topic(topic), payload, key, partition=0)
        assert producer.flush(30) == 0

    def run(self, settings: Settings, *tables: str) -> None:
        """Run tables without Dagster; all without names."""
        run_graph(self.graph(settings), self.spark, settings, names=tables)

    def materialize(self, settings: Settings) -> list[dg.AssetCheckEvaluation]:
        """Run all tables in Dagster, and give what the checks said."""
        job = graph_defs(self.graph(settings), settings).resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=self.instance)
        assert result.success
        return list(result.get_asset_check_evaluations())

    def graph(self, settings: Settings) -> Graph:
        return build_graph([self._pipelines[settings.lake]], settings)

    def content(self, settings: Settings) -> dict[str, Counter[Any]]:
        graph = self.graph(settings)
        return {
            table: _rows(graph.tables[table].path, columns)
            for table, columns in SAME_COLUMNS.items()
        }

    def letters(self, settings: Settings, table: str) -> Counter[Any]:
        node = self.graph(settings).tables[table]
        return _rows(node.dead_letters_path, ("partition", "offset"))

    def repeat_last_batches(self, settings: Settings) -> int:
        """Let every stream believe that it had died before it wrote down its last batch."""
        repeated = 0
        for commits in sorted(Path(settings.lake).glob("_checkpoints/**/commits")):
            last, begun = _last(commits), _last(commits.parent / "offsets")
            # One that did not run since it was told so believes it still.
            if last == begun >= 0:
                (commits / str(last)).unlink()
                (commits / f".{last}.crc").unlink()
                repeated += 1
        return repeated


def _last(log: Path) -> int:
    return max((int(file.name) for file in log.iterdir() if file.name.isdigit()), default=-1)


def _rows(path: str, columns: Sequence[str]) -> Counter[Any]:
    rows = DeltaTable(path).to_pyarrow_table(columns=list(columns)).to_pylist()
    return Counter(tuple(row[c] for c in columns) for row in rows)


@pytest.fixture
def everything(
    spark: SparkSession,
    settings: Settings,
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Everything:
    monkeypatch.setenv("EVERY_KIND_PREFIX", topic_name)
    pipelines = []
    for lake in ("often", "once"):
        monkeypatch.setenv("EVERY_KIND_ARCHIVE", str(tmp_path / f"archive-{lake}"))
        # A module of its own: its topics are those of this test.
        name = f"every_kind_{lake}_{topic_name.replace('-', '_')}"
        spec = importlib.util.spec_from_file_location(name, every_kind.__file__)
        assert spec is not None
        assert spec.loader is not None
        pipelines.append(importlib.util.module_from_spec(spec))
        monkeypatch.setitem(sys.modules, name, pipelines[-1])
        spec.loader.exec_module(pipelines[-1])
    return Everything(spark, settings, tmp_path, pipelines)


@pytest.mark.timeout(900)
@pytest.mark.verify
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_every_kind_of_table_is_the_same_however_its_input_is_cut_into_runs_and_batches_repeated(
    everything: Everything, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    die = random.Random(seed)
    parts = die.randint(2, 4)
    sent = {"orders": orders(die), "returns": orders(die)[:10], "customers": customers(die)}
    cuts = {topic: _cuts(die, len(values), parts) for topic, values in sent.items()}
    tables = tuple(everything.graph(everything.often).tables)
    repeated = 0
    for part in range(parts):
        last = part == parts - 1
        if part and (last or die.random() < 0.5):
            repeated += everything.repeat_last_batches(everything.often)
        for topic, values in sent.items():
            everything.send(topic, *values[cuts[topic][part] : cuts[topic][part + 1]])
        if last:
            everything.send("orders", CLOSING)
        everything.upload(part)
        if not part or last or die.random() < 0.5:
            checks = everything.materialize(everything.often)
            equalities = [check for check in checks if check.check_name in CONSERVATION]
            assert len(equalities) == EQUALITIES
            assert [check for check in equalities if not check.passed] == []
        else:
            # Some tables fall behind the others.
            everything.run(everything.often, *[t for t in tables if die.random() < 0.6])
    assert repeated >= 10
    view = dg.AssetKey(["view", "orders_with_value"])
    assert everything.instance.get_latest_materialization_event(view) is not None
    often = everything.content(everything.often)
    # The many were interpreted, for their few rows.
    monkeypatch.setattr(interpreted, "FEW", -1)
    everything.run(everything.once)
    once = everything.content(everything.once)
    for table in SAME_COLUMNS:
        assert often[table], f"{table} is empty"
        assert often[table] == once[table], table
    for table in ("orders", "customers_now_changes"):
        letters = everything.letters(everything.often, table)
        assert letters == everything.letters(everything.once, table), table
    # The topic is of both lakes: each of them sent every large order.
    large = [id_ for id_, _, amount, _ in often["orders"].elements() if amount > 900]
    alerts = Counter(key for key, _ in records(everything.often, everything.topic("alerts")))
    assert alerts.keys() == {id_.encode() for id_ in large}
    assert all(alerts[id_.encode()] >= 2 * n for id_, n in Counter(large).items())
    kept = Counter((id_, amount) for id_, _, amount, _ in often["orders"].elements())
    for lake in (everything.often, everything.once):
        assert everything.archived(lake) == kept


def _cuts(die: random.Random, size: int, parts: int) -> list[int]:
    """Where the parts of an input begin, and its end; a part may be empty."""
    return [0, *sorted(die.randint(0, size) for _ in range(parts - 1)), size]


def orders(die: random.Random) -> list[Record]:
    """Orders with late, doubled and bad ones, and tombstones."""
    made: list[Record] = [
        (
            None,
            {
                "id": f"o{die.randint(0, 60)}",
                "customer": die.choice(("c0", "c1", "c2", None)),
                "amount": die.randint(-50, 1000),
                "at": f"2026-11-20T{die.randint(8, 12):02}:{die.randint(0, 59):02}:00Z",
            },
        )
        for _ in range(60)
    ]
    made[7:7] = [(None, None), (None, {"id": 1})]
    return [*made, (None, None), (None, {"id": 2})]


def customers(die: random.Random) -> list[Record]:
    """Changes of a few customers in any order; some records delete their key, some are none."""
    return [
        (
            f"c{number}",
            None
            if die.random() < 0.1
            else {
                "id": f"c{number}",
                "seq": die.choice(("first", *range(1, 31))),
                "op": die.choice(("put", "put", "delete")),
                "name": die.choice(("Ada", "Grace", "Edsger")),
            },
        )
        for number in [die.randint(0, 5) for _ in range(24)]
    ]
