"""Taking a table along when its declaration says another layer or path."""

from __future__ import annotations

from functools import partial

from upath import UPath

from kafka_assets.errors import OperationRefused
from kafka_assets.graph import Node
from kafka_assets.operations import audit
from kafka_assets.settings import Settings
from kafka_assets.streaming.lease import lease
from kafka_assets.streaming.places import declared_place, keep_place, known_place
from kafka_assets.streaming.session import spark_session
from kafka_assets.streaming.tables import LakeTable


def move(node: Node, settings: Settings) -> tuple[str, str] | None:
    """Move a table and its checkpoint to where its declaration says.

    Readers of the table go on: they know it by its id. A move that was interrupted is finished by
    doing it again.

    Args:
        node: The table as it is declared now.
        settings: The lake.

    Returns:
        Its old and its new path; None when it lies where it should.

    Raises:
        OperationRefused: Something else lies at the new path.
        LeaseHeld: A run is writing the table.
    """
    with lease(node, settings, "move"):
        known = known_place(node, settings)
        if known is None or known == declared_place(node):
            return None
        for old, new in ((known["path"], node.path), (known["checkpoint"], node.checkpoint)):
            _move(old, new)
        said = f"from {known['path']} to {node.path}"
        audit.write(settings, [audit.Entry("move", node.name, reason=said)])
        keep_place(node, settings)
        table = LakeTable.existing(node.path)
        table.set_properties(
            {
                "kafka_assets.layer": node.table.layer,
                "kafka_assets.path": node.path.removeprefix(f"{settings.lake}/"),
            },
            partial(spark_session, settings),
        )
        return known["path"], node.path


def _move(old: str, new: str) -> None:
    source, target = UPath(old), UPath(new)
    if old == new or not source.exists():
        return
    if target.exists():
        raise OperationRefused(
            f"{old} cannot be moved to {new}: something lies there; nothing was moved",
            fix=f"look at {new} and take it away",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    source.fs.mv(source.path, target.path, recursive=True)
