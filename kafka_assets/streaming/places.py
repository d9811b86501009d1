"""Where each table of a lake lies: one small file a table, in `_tables`.

A declaration whose layer or path changed would begin an empty table elsewhere and leave the old one
behind; this is how a run notices. Moving the files is `operations.move`'s.
"""

from __future__ import annotations

import json

from upath import UPath

from kafka_assets.errors import PlaceChanged
from kafka_assets.graph import Node
from kafka_assets.settings import Settings
from kafka_assets.streaming.tables import LakeTable


def known_place(node: Node, settings: Settings) -> dict[str, str] | None:
    """Where the table of this name lay when it last ran: `path` and `checkpoint`; None at first."""
    return _known(_file(node.name, settings), settings)


def _known(file: UPath, settings: Settings) -> dict[str, str] | None:
    if not file.exists():
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    return {name: f"{settings.lake}/{found[name]}" for name in ("path", "checkpoint")}


def declared_place(node: Node) -> dict[str, str]:
    """Where the declaration says that the table lies."""
    return {"path": node.path, "checkpoint": node.checkpoint}


def keep_place(node: Node, settings: Settings) -> None:
    """Write down where the table lies."""
    here = declared_place(node)
    if known_place(node, settings) == here:
        return
    file = _file(node.name, settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    relative = {name: path.removeprefix(f"{settings.lake}/") for name, path in here.items()}
    file.write_text(json.dumps(relative, indent=1), encoding="utf-8")


def refuse_other_place(node: Node, settings: Settings) -> None:
    """Refuse a declaration that would begin the table anew in another place.

    Raises:
        PlaceChanged: The table lies elsewhere; names both places and the command that moves it.
    """
    known = known_place(node, settings)
    if known is None and node.table.shares is not None:
        _refuse_shared_name(node, node.table.shares, settings)
    if known is None or known == declared_place(node) or LakeTable.open(known["path"]) is None:
        return
    raise PlaceChanged(
        f"table {node.name!r} ({node.table.place}) is declared at {node.path} (checkpoint "
        f"{node.checkpoint}), and lies at {known['path']} ({known['checkpoint']}): it would begin "
        "empty, and the old rows would be left behind; nothing was read or written",
        fix=f"kafka-assets move {node.name} (takes rows and checkpoint along); or change layer= or "
        "path= back",
    )


def _refuse_shared_name(node: Node, before: str, settings: Settings) -> None:
    file = _file(before, settings)
    known = _known(file, settings)
    if known is not None and LakeTable.open(known["path"]) is not None:
        raise PlaceChanged(
            f"table {node.name!r} ({node.table.place}) may be what was called {before!r} while no "
            f"other table was named so in another schema; that lies at {known['path']}, and "
            f"{node.name!r} would begin empty. Nothing was read or written",
            fix=f'keep its name with ka.program(..., names={{"schema.{before}": "{before}"}}), or '
            f"give the newer table another name; if {node.name!r} is to begin empty, remove {file}",
        )


def _file(name: str, settings: Settings) -> UPath:
    return UPath(settings.lake) / "_tables" / f"{name}.json"
