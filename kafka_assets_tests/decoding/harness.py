"""Decodes many payloads in one Spark job, and says what a strict reading in plain Python gives."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from kafka_assets.decoding.json import decode_json
from kafka_assets.options import JsonOptions

EXACT = Context(prec=2000, traps=[Inexact])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_bytes(payload: bytes | str | None) -> bytes | None:
    """The payload as it stands in Kafka."""
    return payload.encode() if isinstance(payload, str) else payload


def decode_all(
    spark: SparkSession,
    schema: t.StructType,
    payloads: Sequence[bytes | str | None],
    options: JsonOptions,
) -> list[Any]:
    """The decoded row of each payload as plain values, or None where it is undecodable."""
    rows = [(number, as_bytes(payload)) for number, payload in enumerate(payloads)]
    frame = spark.createDataFrame(rows, "number int, value binary").repartition(2)
    decoded = decode_json(frame, "value", schema, options)
    assert decoded.columns == ["number", "value", "_decoded", "_undecodable"]
    collected = decoded.orderBy("number").select(F.col("_undecodable"), F.col("_decoded")).collect()
    nothing = tuple(None for _ in schema.names)
    assert all(tuple(row._decoded) == nothing for row in collected if row._undecodable)
    return [None if row._undecodable else plain(row._decoded, schema) for row in collected]


def plain(value: Any, declared: t.DataType) -> Any:
    """A collected value in the form that `expect` makes."""
    if value is None:
        return None
    if isinstance(declared, t.StructType):
        return tuple(plain(v, f.dataType) for v, f in zip(value, declared.fields, strict=True))
    if isinstance(declared, t.ArrayType):
        return [plain(v, declared.elementType) for v in value]
    if isinstance(declared, t.MapType):
        return {k: plain(v, declared.valueType) for k, v in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


def read_strictly(payload: str, schema: t.StructType, options: JsonOptions) -> Any:
    """What Python's own json and Decimal make of a payload that is known to be decodable."""
    numbers = {"parse_float": Decimal, "parse_int": Decimal}
    return _typed(json.loads(payload, **numbers), schema, options)  # type: ignore[arg-type]


def _typed(value: Any, declared: t.DataType, options: JsonOptions) -> Any:
    if value is None:
        return None
    if isinstance(declared, t.StructType):
        return tuple(_typed(value.get(f.name), f.dataType, options) for f in declared.fields)
    if isinstance(declared, t.ArrayType):
        return [_typed(v, declared.elementType, options) for v in value]
    if isinstance(declared, t.MapType):
        return {k: _typed(v, declared.valueType, options) for k, v in value.items()}
    return _leaf(value, declared, options)


def _leaf(value: Any, declared: t.DataType, options: JsonOptions) -> Any:
    if isinstance(declared, t.DecimalType):
        return EXACT.quantize(Decimal(value), Decimal(1).scaleb(-declared.scale))
    if isinstance(declared, t.FloatType):
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    if isinstance(declared, t.DoubleType):
        return float(value)
    if isinstance(declared, t.BinaryType):
        return base64.b64decode(value, validate=True)
    if isinstance(declared, t.DateType):
        return date.fromisoformat(value)
    if isinstance(declared, t.TimestampType | t.TimestampNTZType):
        return _instant(value, options)
    return int(value) if isinstance(declared, t.IntegralType) else value


def _instant(value: Any, options: JsonOptions) -> datetime:
    if isinstance(value, Decimal) or value.lstrip("-").isdigit():
        unit = 1 if options.epoch_timestamps == "seconds" else 1000
        return (EPOCH + timedelta(microseconds=int(value) * 1_000_000 // unit)).replace(tzinfo=None)
    found = datetime.fromisoformat(value)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found
