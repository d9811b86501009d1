"""The first look: what every row pays for, and which rows need no other.

One regular expression proves that `from_json` will read the text exactly (`shape` says how), and
then it does. Rows in another order than the schema's, or with fields that it does not name, take a
second expression and a count of keys. Whatever does not match is only *suspect*, and is never given
to this parser: one number like 1e999999999 in a decimal field keeps Spark busy for minutes.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from kafka_assets.decoding.columns import is_object, let, parse
from kafka_assets.decoding.shape import any_order, in_order
from kafka_assets.options import JsonOptions


def parse_shaped(text: Column, schema: t.StructType, options: JsonOptions) -> Column:
    """The parsed payload where its shape allows no loss; null where it is suspect.

    Args:
        text: the payload.
        schema: what the table declares.
        options: the table's choices.
    """
    keys_once = let(F.json_object_keys(text), _distinct)
    shaped = text.rlike(in_order(schema, options)) | (
        text.rlike(any_order(schema, options)) & keys_once
    )
    return F.when(shaped, parse(text, schema))


def is_exact(parsed: Column, schema: t.StructType) -> Column:
    """Spark could parse all of it, and no map has a key twice. Never null."""
    repeated = _repeated_key(parsed, schema)
    return is_object(parsed) if repeated is None else is_object(parsed) & ~repeated


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
