"""A table goes on after a loss or a lost checkpoint, with every row accounted for."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafka_assets.errors import FenceRefused, OperationRefused
from kafka_assets.operations import audit, repair
from kafka_assets.operations.repair import Lost
from kafka_assets.settings import Settings
from kafka_assets_tests.pipeline import Bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def bronze(spark: SparkSession, settings: Settings, topic_name: str) -> Bronze:
    return Bronze(spark, settings, topic_name)


def test_an_accepted_loss_is_written_down_and_the_table_goes_on_behind_it(bronze: Bronze) -> None:
    bronze.produce(b"d", b"e", b"f")
    bronze.delete_records(before=5)
    assert bronze.refused().state == "offsets_lost"

    lost = repair.accept_loss(bronze.node, bronze.settings, reason="retention", by="me")
    assert lost == (Lost(bronze.topic, 0, 3, 5),)
    (line,) = audit.read(bronze.settings)
    assert (line["operation"], line["table"], line["by"], line["reason"]) == (
        "accept_loss",
        "raw",
        "me",
        "retention",
    )
    assert (line["partition"], line["first_offset"], line["end_offset"]) == (0, 3, 5)

    report = bronze.run()
    assert bronze.offsets() == [0, 1, 2, 5]
    assert report.kept == 1
    bronze.produce(b"g")
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 5, 6]


def test_a_loss_is_accepted_also_when_a_batch_was_begun(bronze: Bronze) -> None:
    bronze.produce(b"d", b"e")
    bronze.run()
    # As if the process had died after the table's commit, then before it.
    for committed in (True, False):
        last = max(int(f.name) for f in (bronze.checkpoint / "offsets").glob("[0-9]*"))
        for file in (f"{last}", f".{last}.crc"):
            (bronze.checkpoint / "commits" / file).unlink(missing_ok=True)
        if not committed:
            break
        bronze.produce(b"f", b"g")
        bronze.delete_records(before=6)
        assert repair.accept_loss(bronze.node, bronze.settings, reason="test")[0].first == 5
        bronze.run()
    assert bronze.offsets() == [0, 1, 2, 3, 4, 6]
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 3, 4, 6]


def test_nothing_is_accepted_where_nothing_is_lost(bronze: Bronze) -> None:
    assert repair.accept_loss(bronze.node, bronze.settings, reason="test") == ()
    assert audit.read(bronze.settings) == []
    with pytest.raises(OperationRefused, match="for a reason"):
        repair.accept_loss(bronze.node, bronze.settings, reason="")
    with pytest.raises(OperationRefused, match="reads no topic"):
        repair.accept_loss(bronze.graph.tables["copy"], bronze.settings, reason="test")


def test_a_lost_checkpoint_is_made_anew_from_the_offsets_in_bronze(bronze: Bronze) -> None:
    bronze.produce(b"d")
    shutil.rmtree(bronze.checkpoint)
    assert bronze.refused().state == "checkpoint_lost"
    assert "/0 at 3" in repair.repair(bronze.node, bronze.settings)
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 3]
    assert "nothing was to be repaired" in repair.repair(bronze.node, bronze.settings)


def test_a_checkpoint_is_not_made_anew_over_records_that_were_never_read(bronze: Bronze) -> None:
    bronze.produce(b"d", b"e")
    bronze.delete_records(before=4)
    shutil.rmtree(bronze.checkpoint)
    with pytest.raises(OperationRefused, match=r"offsets \[3, 4\)"):
        repair.repair(bronze.node, bronze.settings)
    repair.repair(bronze.node, bronze.settings, accept=True)
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 4]


def test_torn_files_are_repaired_where_the_table_says_what_happened(bronze: Bronze) -> None:
    (bronze.checkpoint / "commits" / "0").write_bytes(b"")
    assert bronze.refused().state == "commit_torn"
    repair.repair(bronze.node, bronze.settings)
    bronze.produce(b"d")
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 3]

    (bronze.checkpoint / "offsets" / "2").write_bytes(b"")
    assert bronze.refused().state == "batch_torn"
    repair.repair(bronze.node, bronze.settings)
    bronze.produce(b"e")
    bronze.run()
    assert bronze.offsets() == [0, 1, 2, 3, 4]


def test_what_only_a_reset_repairs_is_refused_by_a_repair(bronze: Bronze) -> None:
    shutil.rmtree(bronze.node.path)
    bronze.refused()
    with pytest.raises(FenceRefused, match="table_replaced"):
        repair.repair(bronze.node, bronze.settings)
