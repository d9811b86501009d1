"""Column helpers that both looks at a JSON payload share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from kafka_assets.decoding.explain import (
    EPOCH,
    EPOCH_SECONDS,
    MAX_DEPTH,
    ZONED_MINUTES,
    ZONED_SECONDS,
    ZONELESS_MINUTES,
    ZONELESS_SECONDS,
)
from kafka_assets.options import JsonOptions

_CORRUPT = t.StructField("_corrupt", t.StringType())
_PARSER = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT.name,
    "maxNestingDepth": str(MAX_DEPTH),
    "timeZone": "UTC",
    "allowComments": "false",
    "allowUnquotedFieldNames": "false",
    "allowSingleQuotes": "false",
    "allowNumericLeadingZeros": "false",
    "allowNonNumericNumbers": "false",
    "allowBackslashEscapingAnyCharacter": "false",
    "allowUnquotedControlChars": "false",
}


def all_of(conditions: Iterable[Column]) -> Column:
    """All conditions hold; true when there is none. Spark stops at the first that fails."""
    found = list(conditions)
    return reduce(and_, found) if found else F.lit(True)


def any_of(conditions: Iterable[Column]) -> Column:
    """One condition holds; false when there is none."""
    found = list(conditions)
    return reduce(or_, found) if found else F.lit(False)


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body(value)` with the value computed once, however often the body names it."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def map_type(value: t.DataType) -> t.MapType:
    """A map with the only kind of key that JSON has."""
    return t.MapType(t.StringType(), value, True)


def parse(text: Column, schema: t.DataType) -> Column:
    """What Spark's parser makes of a text: the schema's fields, nullable, and `_corrupt`."""
    read = rebuild(schema, lambda leaf: leaf, lambda name: name)
    return F.from_json(text, t.StructType([*read, _CORRUPT]), _PARSER)  # type: ignore[misc]


def is_object(parsed: Column) -> Column:
    """Spark has parsed the beginning of the text as an object that fits the schema."""
    return parsed.isNotNull() & parsed.getField(_CORRUPT.name).isNull()


def complete(value: Column, schema: t.StructType, options: JsonOptions) -> Column:
    """Nothing that the schema requires is missing, or the table does not mind."""
    lacking = missing(value, schema) if options.missing_required == "dead_letter" else None
    return F.lit(True) if lacking is None else ~lacking


def rebuild(
    declared: t.DataType,
    leaf: Callable[[t.DataType], t.DataType],
    name: Callable[[str], str],
) -> t.DataType:
    """The type with its leaves and its field names replaced, and everything nullable."""
    if isinstance(declared, t.StructType):
        return t.StructType(
            [
                t.StructField(name(field.name), rebuild(field.dataType, leaf, name), True)
                for field in declared.fields
            ]
        )
    if isinstance(declared, t.ArrayType):
        return t.ArrayType(rebuild(declared.elementType, leaf, name), True)
    if isinstance(declared, t.MapType):
        return map_type(rebuild(declared.valueType, leaf, name))
    return leaf(declared)


def timestamp(text: Column, options: JsonOptions, *, bare: Column | None = None) -> Column:
    """The instant that this text names by the table's rules; null when it names none.

    Args:
        text: the text of the string or the number.
        options: what is accepted beside ISO-8601 with an offset.
        bare: true where the token is a number, which can only be an epoch.
    """
    quoted = F.lit(True) if bare is None else ~bare
    full = quoted & text.rlike(ZONED_SECONDS)
    found = F.when(full, text.try_cast("timestamp"))
    if options.zoneless_timestamps == "utc":
        utc = F.concat(text, F.lit("Z")).try_cast("timestamp")
        found = found.when(quoted & text.rlike(ZONELESS_SECONDS), utc)
        utc = F.concat(text, F.lit(":00Z")).try_cast("timestamp")
        found = found.when(quoted & text.rlike(ZONELESS_MINUTES), utc)
    # Spark reads no offset behind bare minutes.
    whole = F.concat(F.substring(text, 1, 16), F.lit(":00"), F.substr(text, F.lit(17)))
    found = found.when(quoted & text.rlike(ZONED_MINUTES), whole.try_cast("timestamp"))
    if options.epoch_timestamps != "dead_letter":
        seconds = options.epoch_timestamps == "seconds"
        per_second, convert = (1, F.timestamp_seconds) if seconds else (1000, F.timestamp_millis)
        count = text.try_cast("bigint")
        first, last = EPOCH_SECONDS
        # Only a count in this range reaches the conversion, which throws beyond the type's own.
        known = text.rlike(EPOCH) & count.between(first * per_second, (last + 1) * per_second - 1)
        found = found.when(known, convert(count))
    return found


def timestamp_ntz(text: Column) -> Column:
    """The wall-clock time that this text names; null when it names none or has an offset."""
    shape = text.rlike(ZONELESS_SECONDS) | text.rlike(ZONELESS_MINUTES)
    return F.when(shape, text.try_cast("timestamp_ntz"))


def missing(value: Column, declared: t.DataType) -> Column | None:
    """Whether something required is null inside this non-null value; None if nothing can be."""
    if isinstance(declared, t.StructType):
        found = [
            missing_slot(value.getField(f.name), f.dataType, f.nullable) for f in declared.fields
        ]
        present = [condition for condition in found if condition is not None]
        return any_of(present) if present else None
    if isinstance(declared, t.ArrayType):
        element, may_be_null = declared.elementType, declared.containsNull
    elif isinstance(declared, t.MapType):
        value = F.map_values(value)
        element, may_be_null = declared.valueType, declared.valueContainsNull
    else:
        return None
    if missing_slot(F.lit(None), element, may_be_null) is None:
        return None
    return F.exists(value, lambda x: missing_slot(x, element, may_be_null))  # type: ignore[arg-type,return-value]


def missing_slot(value: Column, declared: t.DataType, may_be_null: bool) -> Column | None:
    """Whether something required is null in this value, the value itself included."""
    inner = missing(value, declared)
    if inner is None:
        return None if may_be_null else value.isNull()
    return (value.isNotNull() & inner) if may_be_null else (value.isNull() | inner)
