"""Regular expressions for payloads that `from_json` is known to read exactly: strings, no Spark.

A text that matches, and that Spark could parse, holds nothing that the parsed value does not show.
Here belongs what makes this true: each token stands behind its own name and has the kind that the
schema declares, in a notation that Spark neither rounds nor replaces nor guesses. Valid JSON is
Spark's to check, so commas and escapes are read loosely. A text that does not match may still be
good; it is looked at again, so a shape may be too narrow and never too wide.

All loops are possessive: Java runs those without recursion, so no text is too long.
"""

from __future__ import annotations

import re

from pyspark.sql import types as t

from kafka_assets.decoding.explain import (
    BASE64,
    DATE,
    ZONED_SECONDS,
    ZONELESS_SECONDS,
    body,
)
from kafka_assets.options import JsonOptions

_SPACE = r"[ \t\r\n]*"
_COLON, _NEXT = ": ?", ",? ?"
_LOOSE_COLON, _LOOSE_NEXT = _SPACE + ":" + _SPACE, r"[ \t\r\n,]*"
# No replacement character: Java decodes invalid bytes to it. No escaped surrogates: it replaces
# half a pair by a question mark.
_PLAIN = r'[^"\\\uFFFD]*'
STRING = rf'"{_PLAIN}(?:\\(?:[^u]|u(?![dD][89a-fA-F])){_PLAIN})*+"'
_SCALAR = r'[^" \t\r\n,{}\[\]]+'
_UNKNOWN_DEPTH = 4

# Commas are read loosely, so a number must not end early and go on as the next one.
_ENDED = "(?![0-9.eE+-])"
_INTEGER = "-?[0-9]+" + _ENDED
# So few digits that no number becomes zero or infinite.
_FLOAT = r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?"
_LEAVES: dict[type[t.DataType], str] = {
    t.StringType: STRING,
    t.BooleanType: "(?:true|false)",
    t.ByteType: "-?(?:1[01][0-9]|12[0-7]|[0-9]{1,2})" + _ENDED,  # 200 would become -56
    t.ShortType: _INTEGER,
    t.IntegerType: _INTEGER,
    t.LongType: _INTEGER,
    t.FloatType: _FLOAT + _ENDED,
    t.DoubleType: _FLOAT + "(?:[eE][+-]?[0-9]{1,2})?" + _ENDED,
    t.DateType: f'"{body(DATE)}"',
    t.TimestampNTZType: f'"{body(ZONELESS_SECONDS)}"',
    t.BinaryType: f'"{body(BASE64)}"',
}


def in_order(schema: t.StructType, options: JsonOptions) -> str:
    """Payloads with declared fields only, in the schema's order: no field can come twice.

    Args:
        schema: what the table declares.
        options: the table's choices.
    """
    return _whole(_Shapes(options).value(schema))


def any_order(schema: t.StructType, options: JsonOptions) -> str:
    """Payloads with fields in any order and, where ignored, unknown ones.

    It does not keep a field of the outermost object from coming twice.

    Args:
        schema: what the table declares.
        options: the table's choices.
    """
    shapes = _Shapes(options)
    members = [shapes.member(field) for field in schema.fields]
    if options.unknown_fields == "ignore":
        names = "|".join(map(_literal, schema.names))
        members.append(rf'"(?!(?:{names})")[^"\\\uFFFD]*+"{_COLON}{_anything(_UNKNOWN_DEPTH)}')
    return _whole(rf"\{{{_NEXT}(?:(?:{'|'.join(members)}){_NEXT})*+\}}")


class _Shapes:
    def __init__(self, options: JsonOptions) -> None:
        self._options = options

    def value(self, declared: t.DataType) -> str:
        if isinstance(declared, t.StructType):
            members = "".join(f"(?:{self.member(f)}{_NEXT})?+" for f in declared.fields)
            return rf"\{{{_NEXT}{members}\}}"
        if isinstance(declared, t.ArrayType):
            return rf"\[{_NEXT}(?:{self._slot(declared.elementType)}{_NEXT})*+\]"
        if isinstance(declared, t.MapType):
            member = STRING + _COLON + self._slot(declared.valueType)
            return rf"\{{{_NEXT}(?:{member}{_NEXT})*+\}}"
        if isinstance(declared, t.DecimalType):
            return _decimal(declared.scale)
        if isinstance(declared, t.TimestampType):
            return self._timestamp()
        return _LEAVES[type(declared)]

    def member(self, field: t.StructField) -> str:
        return f'"{_literal(field.name)}"{_COLON}{self._slot(field.dataType)}'

    def _slot(self, declared: t.DataType) -> str:
        return f"(?:{self.value(declared)}|null)"

    def _timestamp(self) -> str:
        shapes = [body(ZONED_SECONDS)]
        if self._options.zoneless_timestamps == "utc":
            shapes.append(body(ZONELESS_SECONDS))
        return f'"(?:{"|".join(shapes)})"'


def _decimal(scale: int) -> str:
    fraction = rf"\.[0-9]{{1,{scale}}}0*" if scale else r"\.0+"
    number = f"-?(?:0|[1-9][0-9]*)(?:{fraction})?"
    return f'(?:{number}{_ENDED}|"{number}")'


def _anything(depth: int) -> str:
    inner = rf'[^"{{}}\[\]]++|{STRING}'
    nested = ""
    for _ in range(depth):
        nested = rf"[\[{{](?:{inner}{'|' + nested if nested else ''})*+[\]}}]"
    return f"(?:{STRING}|{_SCALAR}|{nested})"


def _literal(name: str) -> str:
    # A name that JSON must escape matches nothing, which sends its rows to the second look.
    return re.sub(r"([^\w])", r"\\\1", name, flags=re.ASCII)


def _whole(shape: str) -> str:
    return f"^{_SPACE}{shape}{_SPACE}" + r"(?![\s\S])"
