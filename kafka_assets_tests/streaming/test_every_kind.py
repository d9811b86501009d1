"""Every kind of table holds the same after one run and after many, and after a repeated batch."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_assets.graph import Graph, build_graph
from kafka_assets.orchestration.build import graph_defs
from kafka_assets.orchestration.checks import CONSERVATION
from kafka_assets.settings import Settings
from kafka_assets.streaming import interpreted
from kafka_assets.streaming.run import run_graph
from kafka_assets_tests import every_kind
from kafka_assets_tests.helpers import create_topic, produce
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
    "coupons_kept": ("code", "off", "_rescued_data"),
    "hourly": ("hour", "orders", "amount"),
    "spent": ("customer", "amount"),
    "balances": ("customer", "amount"),
}
"""Tables whose rows do not depend on how their input was cut into runs."""

TOPICS = ("orders", "returns", "customers", "alerts")


class Everything:
    """Two lakes of the same pipeline: one run often, the other once at the end."""

    def __init__(self, spark: SparkSession, settings: Settings, folder: Path) -> None:
        self.spark, self.bootstrap = spark, settings.kafka.bootstrap_servers
        schemas = folder / "schemas"
        (schemas / "every_order.ddl").write_text(
            "id STRING, customer STRING, amount INT, at TIMESTAMP", encoding="utf-8"
        )
        (schemas / "every_customer.ddl").write_text(
            "id STRING, seq INT, op STRING, name STRING", encoding="utf-8"
        )
        for topic in TOPICS:
            create_topic(self.bootstrap, f"{every_kind.PREFIX}-{topic}")
        self.instance = dg.DagsterInstance.ephemeral()
        self.often = settings
        self.once = settings.model_copy(update={"lake": str(folder / "once")})
        for lake in (self.often.lake, self.once.lake):
            countries = {"customer": ["c0", "c1", "c2"], "country": ["NL", "KE", "PE"]}
            write_deltalake(f"{lake}/silver/countries", pa.table(countries))

    def upload(self, part: int) -> None:
        """A file that appears in the folders of both lakes."""
        for lake in (self.often.lake, self.once.lake):
            folder = Path(lake, "landing")
            folder.mkdir(exist_ok=True)
            (folder / f"{part}.csv").write_text(f"c{part},{part}\nc{part},many\n")

    def send(self, topic: str, values: list[dict[str, Any] | None]) -> None:
        payloads = [None if v is None else json.dumps(v) for v in values]
        produce(self.bootstrap, f"{every_kind.PREFIX}-{topic}", payloads)

    def run(self, settings: Settings) -> None:
        """Run all tables, without Dagster."""
        run_graph(self.graph(settings), self.spark, settings)

    def materialize(self, settings: Settings) -> list[dg.AssetCheckEvaluation]:
        """Run all tables in Dagster, and give what the checks said."""
        job = graph_defs(self.graph(settings), settings).resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=self.instance)
        assert result.success
        return list(result.get_asset_check_evaluations())

    def graph(self, settings: Settings) -> Graph:
        return build_graph([every_kind], settings)

    def content(self, settings: Settings) -> dict[str, Counter[Any]]:
        graph = self.graph(settings)
        return {
            table: Counter(
                tuple(row[c] for c in columns)
                for row in DeltaTable(graph.tables[table].path).to_pyarrow_table().to_pylist()
            )
            for table, columns in SAME_COLUMNS.items()
        }

    def letters(self, settings: Settings) -> Counter[Any]:
        node = self.graph(settings).tables["orders"]
        rows = DeltaTable(node.dead_letters_path).to_pyarrow_table().to_pylist()
        return Counter((row["partition"], row["offset"]) for row in rows)

    def repeat_last_batches(self, settings: Settings) -> int:
        """Let every stream believe that it had died before it wrote down its last batch."""
        repeated = 0
        for commits in sorted(Path(settings.lake).glob("_checkpoints/**/commits")):
            last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
            (commits / str(last)).unlink()
            (commits / f".{last}.crc").unlink()
            repeated += 1
        return repeated


@pytest.fixture
def everything(spark: SparkSession, settings: Settings, tmp_path: Path) -> Everything:
    return Everything(spark, settings, tmp_path)


@pytest.mark.timeout(900)
@pytest.mark.verify
def test_every_kind_of_table_is_the_same_after_one_run_and_many_and_after_a_repeated_batch(
    everything: Everything, monkeypatch: pytest.MonkeyPatch
) -> None:
    die = random.Random(11)
    for part in range(2):
        if part:
            assert everything.repeat_last_batches(everything.often) >= 10
        everything.send("orders", orders(die, part))
        everything.send("returns", orders(die, part)[:5])
        everything.send("customers", customers(die))
        everything.upload(part)
        checks = everything.materialize(everything.often)
        equalities = [check for check in checks if check.check_name in CONSERVATION]
        assert len(equalities) == 12
        assert [check for check in equalities if not check.passed] == []
        view = dg.AssetKey(["view", "orders_with_value"])
        assert everything.instance.get_latest_materialization_event(view) is not None
    often = everything.content(everything.often)
    # The many were interpreted, for their few rows.
    monkeypatch.setattr(interpreted, "FEW", -1)
    everything.run(everything.once)
    once = everything.content(everything.once)
    for table in SAME_COLUMNS:
        assert often[table] == once[table], table
    assert everything.letters(everything.often) == everything.letters(everything.once)
    # The sink is of both lakes: each of them sent every large order.
    sent = Counter(key for key, _ in records(everything.often, f"{every_kind.PREFIX}-alerts"))
    large = [id_ for id_, _, amount, _ in often["orders"].elements() if amount > 900]
    assert sent == Counter({id_.encode(): 2 * n for id_, n in Counter(large).items()})


def orders(die: random.Random, part: int) -> list[dict[str, Any] | None]:
    """Orders with late, doubled and bad ones, and a tombstone."""
    made: list[dict[str, Any] | None] = [
        {
            "id": f"o{die.randint(0, 60)}",
            "customer": die.choice(("c0", "c1", "c2", None)),
            "amount": die.randint(-50, 1000),
            "at": f"2026-11-20T{die.randint(8, 12):02}:{die.randint(0, 59):02}:00Z",
        }
        for _ in range(30)
    ]
    return [*made, None, {"id": part}]


def customers(die: random.Random) -> list[dict[str, Any] | None]:
    """Changes of a few customers in any order."""
    return [
        {
            "id": f"c{die.randint(0, 5)}",
            "seq": die.randint(1, 30),
            "op": die.choice(("put", "put", "delete")),
            "name": die.choice(("Ada", "Grace", "Edsger")),
        }
        for _ in range(12)
    ]
