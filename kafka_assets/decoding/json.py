"""JSON values -> typed columns, strictly: a row is kept exactly or is undecodable with a reason.

Here belongs what a caller uses. docs/decoding.md has the rules in plain words, and examples.

Every expression is the JVM's own and none throws because of data, so the plan runs in a stream, on
a classic session and on Spark Connect. The first look is one regular expression and one
`from_json`; only a row that they cannot prove exact gets the second.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from kafka_assets.decoding.columns import complete
from kafka_assets.decoding.first_look import is_exact, parse_shaped
from kafka_assets.decoding.second_look import second_look
from kafka_assets.options import JsonOptions

__all__ = ["JsonOptions", "check_schema", "decode_json"]

_TIME_POLICY = "spark.sql.legacy.timeParserPolicy"
_PARSED, _FIRST, _SECOND = "_json_parsed", "_json_first", "_json_second"
_LEAVES = (
    t.StringType,
    t.BooleanType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.FloatType,
    t.DoubleType,
    t.DecimalType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
    t.BinaryType,
)


def decode_json(
    frame: DataFrame, value_col: str, schema: t.StructType, options: JsonOptions
) -> DataFrame:
    """Add `_decoded` and `_undecodable` to a frame of raw JSON values; nothing else changes.

    Args:
        frame: rows with the payload, batch or stream.
        value_col: the name of the payload's column, bytes or a string.
        schema: what the table declares.
        options: the table's choices.

    Returns:
        The frame with `_decoded`, a struct of the schema's fields and types, all nullable, and
        all null where `_undecodable`, a boolean that is never null, is true.

    Raises:
        ValueError: The schema has a type or a name that JSON cannot be decoded into, or the session
            is set to guess at dates, or to throw on them.
    """
    check_schema(schema)
    policy = frame.sparkSession.conf.get(_TIME_POLICY)
    if policy != "CORRECTED":
        raise ValueError(f"{_TIME_POLICY}={policy}: dates are only read strictly with CORRECTED")
    text, parsed = F.col(value_col).cast("string"), F.col(_PARSED)
    first, second = F.col(_FIRST), F.col(_SECOND)
    # The stages are few, because Spark copies each row between them; each is named more than once
    # by the next, so that Spark does not merge them and compute one twice.
    proved = F.when(is_exact(parsed, schema), complete(parsed, schema, options))
    looked = frame.withColumn(_PARSED, parse_shaped(text, schema, options)).withColumns(
        {
            _FIRST: proved,
            # CASE WHEN is what keeps the second look from rows that do not need it.
            _SECOND: F.when(proved.isNull(), second_look(text, schema, options)),
        }
    )
    # An expression that Spark takes for random stops it from pushing a later filter below the
    # parser, which would then run twice.
    barrier = F.spark_partition_id() < 0
    fields = [
        F.when(first, parsed.getField(name)).otherwise(second.getField(name)).alias(name)
        for name in schema.names
    ]
    return looked.withColumns(
        {
            "_decoded": F.struct(*fields),
            "_undecodable": ~F.coalesce(first, second.isNotNull()) | barrier,
        },
    ).drop(_PARSED, _FIRST, _SECOND)


def check_schema(schema: t.StructType) -> None:
    """Refuse what JSON cannot be decoded into strictly.

    Args:
        schema: what the table declares.

    Raises:
        ValueError: A type that is not supported, a name that is ours, or two names that Spark
            takes for one.
    """
    for name in schema.names:
        if name.startswith("_"):
            raise ValueError(f"field {name}: names that begin with _ are reserved")
    _check_type("", schema)


def _check_type(path: str, declared: t.DataType) -> None:
    if isinstance(declared, t.StructType):
        _check_names(path, declared)
        for field in declared.fields:
            _check_type(f"{path}.{field.name}" if path else field.name, field.dataType)
    elif isinstance(declared, t.ArrayType):
        _check_type(f"{path}[]", declared.elementType)
    elif isinstance(declared, t.MapType):
        if declared.keyType != t.StringType():
            kind = declared.keyType.simpleString()
            raise ValueError(f"field {path}: map keys of type {kind}, where JSON has strings")
        _check_type(f"{path}[]", declared.valueType)
    elif type(declared) not in _LEAVES or (
        isinstance(declared, t.StringType) and declared != t.StringType()
    ):
        raise ValueError(f"field {path}: type {declared.simpleString()} is not supported in JSON")


def _check_names(path: str, struct: t.StructType) -> None:
    where = f"field {path}" if path else "the schema"
    if not struct.fields:
        raise ValueError(f"{where}: an object without fields")
    seen: dict[str, str] = {}
    for name in struct.names:
        other = seen.setdefault(name.lower(), name)
        if not name or other is not name:
            raise ValueError(f"{where}: name {name!r} is empty or differs from {other!r} in case")
