"""The second look: the exact decoding of a suspect payload, from the text of every token.

Here belongs everything that is exact and slow. Spark's parser does not give the text of a number
(into a string it writes the nearest double), nor tell `5` from `"5"`. So the text is marked before
it is parsed: every string gets a `~` in front, every number becomes a string with a `#` in front.
One parse into strings then yields kind and exact text of each token, keys included.

The text comes here only when Spark has parsed its first value as an object, so it starts with valid
JSON. Regular expressions loop possessively: Java runs those without recursion, at any length.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from kafka_assets.decoding.columns import (
    all_of,
    complete,
    is_object,
    let,
    map_type,
    parse,
    rebuild,
    timestamp,
    timestamp_ntz,
)
from kafka_assets.decoding.explain import BASE64, DATE, DECIMAL, INTEGER, NOT_ZERO
from kafka_assets.options import JsonOptions

_STRING = r'"([^"\\]*(?:\\.[^"\\]*)*+)"'
_BEFORE_A_NUMBER = r'\G((?:"[^"\\]*(?:\\.[^"\\]*)*+"|[^"0-9-]+)*+)'
_NUMBER = r"(-?[0-9][0-9.eE+-]*)"
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_TEXT = t.StringType()


def second_look(text: Column, schema: t.StructType, options: JsonOptions) -> Column:
    """The exact value of a suspect payload; null where it is undecodable.

    Args:
        text: the payload.
        schema: what the table declares.
        options: the table's choices.
    """
    marked_schema = rebuild(schema, lambda _: _TEXT, lambda name: f"~{name}")

    def checked(marked: Column, parsed: Column, value: Column) -> Column:
        good = (
            complete(value, schema, options)
            & exact(parsed, value, schema)
            & keys_allowed(marked, schema, options)
        )
        return F.when(is_object(parsed) & good, value)

    def read(marked: Column) -> Column:
        return let(
            parse(marked, marked_schema),
            lambda parsed: let(
                exact_value(parsed, schema, options),
                lambda value: checked(marked, parsed, value),
            ),
        )

    return F.when(whole(text), let(mark(text), read))


def mark(text: Column) -> Column:
    """The JSON text with its strings and numbers marked."""
    strings = F.regexp_replace(text, _STRING, '"~$1"')
    return F.regexp_replace(strings, _BEFORE_A_NUMBER + _NUMBER, '$1"#$2"')


def whole(text: Column) -> Column:
    """The text is valid UTF-8, one JSON value with nothing after it, and no half surrogates."""
    # A tail that hides from the first count starts with `,`, from the second with `]`.
    alone = (F.json_array_length(F.concat(F.lit("["), text, F.lit(",0]"))) == 2) & (
        F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
    )
    # By a space, not by nothing: what stands on both sides of a backslash must not become a pair.
    escapes = F.replace(text, F.lit("\\\\"), F.lit(" "))
    halves = F.regexp_replace(escapes, _HIGH + _LOW, "").rlike(f"{_HIGH}|{_LOW}")
    paired = ~F.contains(text, F.lit("\\u")) | ~halves
    return F.coalesce(F.is_valid_utf8(text) & paired & alone, F.lit(False))


def keys_allowed(marked: Column, declared: t.DataType, options: JsonOptions) -> Column:
    """At every declared level each key comes once and, if the table says so, is declared."""
    if isinstance(declared, t.StructType):
        struct = declared
        return let(
            F.from_json(marked, map_type(_TEXT).simpleString()),
            lambda members: all_of(_struct_keys(members, struct, options)),
        )
    if isinstance(declared, t.MapType):
        inner = declared.valueType
        return let(
            F.from_json(marked, map_type(_TEXT).simpleString()),
            lambda members: (
                _distinct(members)
                & _each(F.map_values(members), lambda x: keys_allowed(x, inner, options), inner)
            ),
        )
    if isinstance(declared, t.ArrayType):
        inner = declared.elementType
        elements = F.from_json(marked, t.ArrayType(_TEXT))
        return _each(elements, lambda x: keys_allowed(x, inner, options), inner)
    return F.lit(True)


def _struct_keys(members: Column, struct: t.StructType, options: JsonOptions) -> list[Column]:
    conditions = [_distinct(members)]
    if options.unknown_fields == "dead_letter":
        declared = F.array(*[F.lit(f"~{name}") for name in struct.names])
        conditions.append(F.size(F.array_except(F.map_keys(members), declared)) == 0)
    for field in struct.fields:
        if _has_keys(field.dataType):
            child = F.try_element_at(members, F.lit(f"~{field.name}"))
            conditions.append(child.isNull() | keys_allowed(child, field.dataType, options))
    return conditions


def _distinct(members: Column) -> Column:
    keys = F.map_keys(members)
    return F.size(F.array_distinct(keys)) == F.size(keys)


def _each(values: Column, allowed: object, inner: t.DataType) -> Column:
    if not _has_keys(inner):
        return F.lit(True)
    return F.forall(values, lambda x: x.isNull() | allowed(x))  # type: ignore[operator]


def _has_keys(declared: t.DataType) -> bool:
    if isinstance(declared, t.ArrayType):
        return _has_keys(declared.elementType)
    return isinstance(declared, t.StructType | t.MapType)


def exact_value(marked: Column, declared: t.DataType, options: JsonOptions) -> Column:
    """The typed value of a marked one; null where a token does not fit its type."""
    if isinstance(declared, t.StructType):
        fields = [
            exact_value(marked.getField(f"~{f.name}"), f.dataType, options).alias(f.name)
            for f in declared.fields
        ]
        return F.when(marked.isNotNull(), F.struct(*fields))
    if isinstance(declared, t.ArrayType):
        inner = declared.elementType
        return F.transform(marked, lambda x: exact_value(x, inner, options))
    if isinstance(declared, t.MapType):
        inner = declared.valueType
        keys = F.transform(F.map_keys(marked), lambda key: F.substr(key, F.lit(2)))
        values = F.transform(F.map_values(marked), lambda x: exact_value(x, inner, options))
        # Keys that come twice make the row a dead letter, but must not throw on their way there.
        return F.when(_distinct(marked), F.map_from_arrays(keys, values))
    return _leaf(marked, declared, options)


def exact(marked: Column, value: Column, declared: t.DataType) -> Column:
    """Every token that is not null in the marked value has become a value."""
    if isinstance(declared, t.StructType):
        return marked.isNull() | all_of(
            exact(marked.getField(f"~{f.name}"), value.getField(f.name), f.dataType)
            for f in declared.fields
        )
    if isinstance(declared, t.ArrayType):
        inner = declared.elementType
        return marked.isNull() | _pairwise(marked, value, inner)
    if isinstance(declared, t.MapType):
        inner = declared.valueType
        pairs = _pairwise(F.map_values(marked), F.map_values(value), inner)
        return marked.isNull() | (value.isNotNull() & pairs)
    return marked.isNull() | value.isNotNull()


def _pairwise(marked: Column, value: Column, inner: t.DataType) -> Column:
    pairs = F.arrays_zip(marked.alias("m"), value.alias("v"))
    return F.forall(pairs, lambda pair: exact(pair.getField("m"), pair.getField("v"), inner))


def _leaf(marked: Column, declared: t.DataType, options: JsonOptions) -> Column:
    text = F.substr(marked, F.lit(2))
    quoted, bare = F.startswith(marked, F.lit("~")), F.startswith(marked, F.lit("#"))
    name = declared.simpleString()
    if isinstance(declared, t.StringType):
        return F.when(quoted, text)
    if isinstance(declared, t.BooleanType):
        return F.when(marked == "true", True).when(marked == "false", False)
    if isinstance(declared, t.DecimalType):
        return F.when((quoted | bare) & _fits_scale(text, declared.scale), _decimal(text, declared))
    if isinstance(declared, t.TimestampType):
        return F.when(quoted | bare, timestamp(text, options, bare=bare))
    if isinstance(declared, t.TimestampNTZType):
        return F.when(quoted, timestamp_ntz(text))
    if isinstance(declared, t.DateType):
        return F.when(quoted & text.rlike(DATE), text.try_cast("date"))
    if isinstance(declared, t.BinaryType):
        return F.when(quoted & text.rlike(BASE64), F.unbase64(text))
    if isinstance(declared, t.FloatType | t.DoubleType):
        number = text.try_cast(name)
        finite = F.abs(number) < F.lit(float("inf"))
        return F.when(bare & finite & ((number != 0) | ~text.rlike(NOT_ZERO)), number)
    return F.when(bare & text.rlike(INTEGER), text.try_cast(name))


def _fits_scale(text: Column, scale: int) -> Column:
    """A decimal's text has no digit but zeros beyond the scale (exponents included)."""
    mantissa = F.regexp_extract(text, "^[^eE]*", 0)
    exponent = F.coalesce(F.regexp_extract(text, "[eE](.*)$", 1).try_cast("int"), F.lit(0))
    digits = F.replace(mantissa, F.lit("."), F.lit(""))
    fraction = F.length(F.regexp_extract(mantissa, r"\.(.*)$", 1))
    zeros = F.length(digits) - F.length(F.rtrim(digits, F.lit("0")))
    needed = fraction - zeros - exponent
    return text.rlike(DECIMAL) & (~text.rlike(NOT_ZERO) | (needed <= scale))


def _decimal(text: Column, declared: t.DecimalType) -> Column:
    # A zero may come with an exponent that no decimal type has.
    zero = F.lit(0).cast(declared)
    return F.when(~text.rlike(NOT_ZERO), zero).otherwise(text.try_cast(declared))
