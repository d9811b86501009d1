"""The first look: what every row pays for, and which rows need no other.

One `from_json`, and one regular expression that proves its result exact (`shape` says how). Rows in
another order than the schema's, or with fields that it does not name, take a second expression and
a count of keys. Whatever does not match is only *suspect*.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from kafka_assets.decoding.columns import let
from kafka_assets.decoding.shape import any_order, in_order
from kafka_assets.options import JsonOptions


def first_look(text: Column, parsed: Column, schema: t.StructType, options: JsonOptions) -> Column:
    """Whether the parsed value is the whole payload, exactly. Never null.

    Args:
        text: the payload.
        parsed: what `from_json` made of it, without complaint.
        schema: what the table declares.
        options: the table's choices.
    """
    keys_once = let(F.json_object_keys(text), _distinct)
    shaped = text.rlike(in_order(schema, options)) | (
        text.rlike(any_order(schema, options)) & keys_once
    )
    repeated = _repeated_key(parsed, schema)
    return F.coalesce(shaped if repeated is None else shaped & ~repeated, F.lit(False))


def _distinct(keys: Column) -> Column:
    return F.size(F.array_distinct(keys)) == F.size(keys)


def _repeated_key(value: Column, declared: t.DataType) -> Column | None:
    """Whether a map inside this value has a key twice; None if there is no map. Never null."""
    if isinstance(declared, t.StructType):
        found = None
        for field in declared.fields:
            inside = _repeated_key(value.getField(field.name), field.dataType)
            if inside is not None:
                found = inside if found is None else found | inside
        return found
    if isinstance(declared, t.ArrayType):
        return _repeated_in(value, declared.elementType)
    if isinstance(declared, t.MapType):
        twice = ~_distinct(F.map_keys(value))
        inside = _repeated_in(F.map_values(value), declared.valueType)
        return F.coalesce(twice if inside is None else twice | inside, F.lit(False))
    return None


def _repeated_in(values: Column, inner: t.DataType) -> Column | None:
    if _repeated_key(F.lit(None), inner) is None:
        return None
    return F.coalesce(F.exists(values, lambda x: _repeated_key(x, inner)), F.lit(False))  # type: ignore[arg-type,return-value]
