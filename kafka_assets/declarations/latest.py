"""The word for the common case of change data: a topic whose newest record of each key counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack, cast

from kafka_assets.declarations.common import Common, new_table, table_of
from kafka_assets.declarations.flows import as_it_is
from kafka_assets.declarations.model import Author, Changes, Flow, Table, fed_by_flows
from kafka_assets.declarations.places import declared
from kafka_assets.options import JsonOptions

BATCHES = ("max_rows_per_batch", "max_dead_share")


def latest_per_key(
    *, layer: str, schema: str, json: JsonOptions | None = None, **common: Unpack[Common]
) -> Callable[[Author], Table]:
    """Declare a table with the newest row of each Kafka key, as of a compacted topic.

    A tombstone removes its key's row, and of two records of a key the one with the higher offset
    counts. It is two tables: `<name>_changes`, which decodes and checks the records and has the
    dead letters, and this one, to which they are applied. A record that does not decode changes
    nothing: the row that was there stays.

    Args:
        layer: `bronze`, `silver` or `gold`.
        schema: A schema file, as in `streaming_table`.
        json: How strictly the payload is decoded; tombstones are kept whatever it says.
        common: As in `streaming_table`. Expectations, `max_rows_per_batch` and `max_dead_share` are
            those of `<name>_changes`.

    Returns:
        A decorator that turns a function of a topic, or of the bronze table that keeps it, into a
        `Table`. Let the function keep `_source`, `_key` and `_tombstone`, and let rows of nulls
        pass: they are the tombstones.

    Raises:
        DeclarationError: Something of it is wrong; names the table, file, line and the fix.
    """

    def declare(function: Author) -> Table:
        name = common.get("name", function.__name__)
        # What is about batches and their dead letters is of the table that decodes.
        own: dict[str, Any] = dict(common)
        batches = {key: own.pop(key) for key in BATCHES if key in own}
        of_changes = {"name": f"{name}_changes", "private": True, "comment": f"Changes of {name}."}
        changes = table_of(
            function,
            "streaming_table",
            layer,
            cast("Common", {**of_changes, **batches}),
            schema=schema,
            json=replace(json or JsonOptions(), tombstones="keep"),
        )
        place = changes.place
        about = cast("Common", {"comment": f"The newest row of each key of {changes.name}.", **own})
        table = new_table(name, fed_by_flows, "streaming_table", layer, place, about, upstreams=())
        declared(
            Flow(
                name=name,
                target=name,
                function=as_it_is,
                upstreams=(changes.name,),
                place=place,
                changes=Changes(
                    keys=("_key",), sequence_by="_source.offset", apply_as_deletes="_tombstone"
                ),
            )
        )
        return table

    return declare
