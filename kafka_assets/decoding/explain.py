"""Why a JSON payload cannot be decoded: the rules once more in plain Python, run on dead rows only.

Here belong the shapes of values that both sides share, and the reason for a human. Column
expressions do not: they are in `json` and beside it. This module is sent by value to Spark Connect
servers, where our package is absent, so it imports nothing but the standard library and pyspark.
`explain_json` is an implementation of its own; tests hold the two to one verdict.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import types as t

if TYPE_CHECKING:
    from kafka_assets.options import JsonOptions

MAX_DEPTH = 500
"""Objects and arrays nested deeper than this are refused (Jackson's own limit is 1000)."""
MAX_NUMBER = 1000
"""Digits of one number that Jackson reads."""
MAX_KEY = 50_000
"""Characters of one key that Jackson reads."""

# Shapes of values, in the subset of regular expressions that Java and Python read alike.
_END = r"(?![\s\S])"  # `$` would let a line break follow
DECIMAL = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?" + _END
INTEGER = r"^-?(?:0|[1-9][0-9]*)" + _END
NOT_ZERO = r"^-?[0-9.]*[1-9]"
DATE = r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}" + _END
EPOCH = r"^-?(?:0|[1-9][0-9]{0,14})" + _END
_MINUTES = r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]"
_SECONDS = r":[0-5][0-9](?:\.[0-9]{1,6}0*)?"
_OFFSET = r"(?:Z|[+-](?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|[+-]18(?::?00)?)"
ZONED_SECONDS = _MINUTES + _SECONDS + _OFFSET + _END
ZONED_MINUTES = _MINUTES + _OFFSET + _END
ZONELESS_SECONDS = _MINUTES + _SECONDS + _END
ZONELESS_MINUTES = _MINUTES + _END
# The last character of a padded group must carry no bits that decoding would drop.
BASE64 = (
    r"^(?:[A-Za-z0-9+/]{4})*+"
    r"(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?" + _END
)
EPOCH_SECONDS = (-62_135_596_800, 253_402_300_799)
"""Years 0001 to 9999, the range that every reader of the table understands."""

_RANGES = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
# Half a step past the largest float, and half of the smallest one: there rounding leaves the type.
_FLOAT_LIMITS = (Decimal(2) ** -150, Decimal(2**128 - 2**103))
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_JSON_SPACE = " \t\n\r"


def body(shape: str) -> str:
    """One of the shapes above without its anchors, to be part of a larger one."""
    return shape.removeprefix("^").removesuffix(_END)


class _Undecodable(Exception):
    """Carries the reason out of the walk."""


class _Number(str):
    """The text of a JSON number, untouched."""


class _Object(list[tuple[str, Any]]):
    """The members of a JSON object in their order, duplicates included."""


def explain_json(raw: bytes | None, schema: t.StructType, options: JsonOptions) -> str | None:
    """Says why this payload is undecodable; None when it would decode.

    Args:
        raw: the Kafka value as it arrived.
        schema: what the table declares.
        options: the table's choices.
    """
    try:
        document = _parse(raw)
        _check_struct("", document, schema, options)
    except _Undecodable as found:
        return str(found)
    return None


def _parse(raw: bytes | None) -> _Object:
    if raw is None:
        raise _Undecodable("null value (tombstone)")
    try:
        text = bytes(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Undecodable(f"not valid UTF-8 at byte {error.start}") from None
    if not text.strip(_JSON_SPACE):
        raise _Undecodable("empty value")
    start = len(text) - len(text.lstrip(_JSON_SPACE))
    if _depth(text) > MAX_DEPTH:
        raise _Undecodable(f"nested deeper than {MAX_DEPTH} levels")
    decoder = json.JSONDecoder(
        object_pairs_hook=_Object,
        parse_float=_number,
        parse_int=_number,
        parse_constant=_no_constant,
    )
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 4 * MAX_DEPTH)
    try:
        document, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        problem = f"malformed JSON: {error.msg} at character {error.pos}"
        raise _Undecodable(problem) from None
    finally:
        sys.setrecursionlimit(limit)
    tail = text[end:]
    if tail.strip(_JSON_SPACE):
        at = end + len(tail) - len(tail.lstrip(_JSON_SPACE))
        raise _Undecodable(f"characters after the JSON {_kind(document)}, at character {at}")
    if not isinstance(document, _Object):
        raise _Undecodable(f"not a JSON object but {_article(document)}")
    for string in _strings(document):
        if any("\ud800" <= character <= "\udfff" for character in string):
            raise _Undecodable(f"half of a surrogate pair in {_show(string)}")
    return document


def _depth(text: str) -> int:
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", _STRINGS.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _number(text: str) -> _Number:
    if sum(character.isdigit() for character in text) > MAX_NUMBER:
        raise _Undecodable(f"a number of more than {MAX_NUMBER} digits: {_show(text)}")
    return _Number(text)


def _no_constant(text: str) -> NoReturn:
    raise _Undecodable(f"malformed JSON: {text} is not a JSON number")


def _strings(document: Any) -> Iterator[str]:
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, _Object):
            for key, member in value:
                if len(key) >= MAX_KEY:
                    raise _Undecodable(f"a key of {MAX_KEY} characters or more: {_show(key)}")
                yield key
                pending.append(member)
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, str):
            yield value


def _check_struct(path: str, value: Any, schema: t.StructType, options: JsonOptions) -> None:
    if not isinstance(value, _Object):
        raise _Undecodable(f"field {path}: {_token(value)} where an object is declared")
    members = _unique(path, value)
    if options.unknown_fields == "dead_letter":
        for key in members.keys() - set(schema.names):
            raise _Undecodable(f"unknown field {_cut(_join(path, key))}")
    for field in schema.fields:
        _check_slot(_join(path, field.name), members.get(field.name), field, options)


def _check_slot(path: str, value: Any, slot: t.StructField, options: JsonOptions) -> None:
    if value is not None:
        _check(path, value, slot.dataType, options)
    elif not slot.nullable and options.missing_required == "dead_letter":
        raise _Undecodable(f"required field {path} is missing")


def _check(path: str, value: Any, declared: t.DataType, options: JsonOptions) -> None:
    if isinstance(declared, t.StructType):
        _check_struct(path, value, declared, options)
    elif isinstance(declared, t.ArrayType):
        if isinstance(value, _Object) or not isinstance(value, list):
            raise _Undecodable(f"field {path}: {_token(value)} where an array is declared")
        slot = t.StructField("element", declared.elementType, declared.containsNull)
        for index, element in enumerate(value):
            _check_slot(f"{path}[{index}]", element, slot, options)
    elif isinstance(declared, t.MapType):
        if not isinstance(value, _Object):
            raise _Undecodable(f"field {path}: {_token(value)} where an object is declared")
        slot = t.StructField("value", declared.valueType, declared.valueContainsNull)
        for key, member in _unique(path, value).items():
            _check_slot(_join(path, key), member, slot, options)
    else:
        problem = _leaf_problem(value, declared, options)
        if problem:
            raise _Undecodable(f"field {_cut(path)}: {problem}")


def _unique(path: str, value: _Object) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, member in value:
        if key in members:
            raise _Undecodable(f"duplicate field {_cut(_join(path, key))}")
        members[key] = member
    return members


def _leaf_problem(value: Any, declared: t.DataType, options: JsonOptions) -> str | None:
    name = declared.simpleString()
    is_text = isinstance(value, str) and not isinstance(value, _Number)
    if isinstance(declared, t.StringType):
        return None if is_text else f"{_token(value)} where a string is declared"
    if isinstance(declared, t.DecimalType) and isinstance(value, str):
        return _decimal_problem(value, declared)
    if isinstance(declared, t.TimestampType | t.TimestampNTZType) and isinstance(value, str):
        fits = _is_timestamp(value, is_text, declared, options)
        return None if fits else f"{_show(value)} is not a {name}"
    if isinstance(declared, t.DateType):
        fits = is_text and re.search(DATE, value) is not None and _is_day(value)
    elif isinstance(declared, t.BinaryType):
        fits = is_text and re.search(BASE64, value) is not None
    elif isinstance(declared, t.BooleanType):
        fits = isinstance(value, bool)
    elif isinstance(declared, t.FloatType | t.DoubleType):
        fits = isinstance(value, _Number) and _in_float_range(value, declared)
    else:
        fits = isinstance(value, _Number) and _in_integer_range(value, name)
    return None if fits else f"{_show(value)} is not a {name}"


def _decimal_problem(text: str, declared: t.DecimalType) -> str | None:
    if not re.search(DECIMAL, text):
        return f"{_show(text)} is not a {declared.simpleString()}"
    number = Decimal(text).as_tuple()
    digits, exponent = number.digits, int(number.exponent)
    significant = "".join(map(str, digits)).rstrip("0").lstrip("0")
    if not significant:
        return None
    stripped = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    lowest = exponent + stripped
    if -lowest > declared.scale:
        return f"{_cut(text)} does not fit {declared.simpleString()} without rounding"
    if len(significant) + lowest > declared.precision - declared.scale:
        return f"{_cut(text)} is too large for {declared.simpleString()}"
    return None


def _in_integer_range(text: str, name: str) -> bool:
    if not re.search(INTEGER, text) or len(text) > 20:
        return False
    bound = 1 << _RANGES[name]
    return -bound <= int(text) < bound


def _in_float_range(text: str, declared: t.DataType) -> bool:
    is_zero = not re.search(NOT_ZERO, text)
    magnitude = abs(float(text))
    if magnitude in (0.0, float("inf")):
        return is_zero
    if isinstance(declared, t.DoubleType):
        return True
    smallest, largest = _FLOAT_LIMITS
    return smallest < abs(Decimal(text)) < largest


def _is_timestamp(text: str, is_text: bool, declared: t.DataType, options: JsonOptions) -> bool:
    zoneless = _has_shape(text, ZONELESS_SECONDS, ZONELESS_MINUTES)
    if is_text and zoneless:
        allowed = isinstance(declared, t.TimestampNTZType) or options.zoneless_timestamps == "utc"
        return allowed and _is_day(text[:10])
    if isinstance(declared, t.TimestampNTZType):
        return False
    if is_text and _has_shape(text, ZONED_SECONDS, ZONED_MINUTES):
        return _is_day(text[:10])
    if options.epoch_timestamps == "dead_letter" or not re.search(EPOCH, text):
        return False
    per_second = 1 if options.epoch_timestamps == "seconds" else 1000
    first, last = EPOCH_SECONDS
    return first * per_second <= int(text) < (last + 1) * per_second


def _has_shape(text: str, *shapes: str) -> bool:
    return any(re.search(shape, text) for shape in shapes)


def _is_day(text: str) -> bool:
    try:
        date(int(text[:4]), int(text[5:7]), int(text[8:10]))
    except ValueError:
        return False
    return True


def _kind(value: Any) -> str:
    if isinstance(value, _Object):
        return "object"
    if isinstance(value, list):
        return "array"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, _Number) else "string"


def _article(value: Any) -> str:
    kind = _kind(value)
    return "null" if value is None else f"{'an' if kind[0] in 'ao' else 'a'} {kind}"


def _token(value: Any) -> str:
    if isinstance(value, str | bool):
        return f"the {_kind(value)} {_show(value)}"
    return _article(value)


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return _article(value)
    return _cut(value if isinstance(value, _Number) else repr(value))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _cut(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
