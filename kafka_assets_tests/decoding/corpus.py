"""Payloads that have gone wrong somewhere, and what a careful person wants of each: data only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import types as t
from pyspark.sql.types import StructType

from kafka_assets.options import JsonOptions

DEFAULT = JsonOptions()
STRICT = JsonOptions(unknown_fields="dead_letter", zoneless_timestamps="dead_letter")
LENIENT = JsonOptions(missing_required="null", epoch_timestamps="seconds")
MILLIS = JsonOptions(epoch_timestamps="millis")


@dataclass(frozen=True)
class Dead:
    """The row is undecodable, and the reason contains this."""

    reason: str


@dataclass(frozen=True)
class Group:
    """Payloads for one schema and one choice of options: (payload, expected row or Dead)."""

    name: str
    schema: StructType
    cases: list[tuple[bytes | str | None, Any]]
    options: JsonOptions = DEFAULT


def struct(**fields: t.DataType) -> StructType:
    """A schema whose fields may all be null."""
    return StructType([t.StructField(name, kind) for name, kind in fields.items()])


def one(kind: t.DataType) -> StructType:
    """A schema with one field, `x`."""
    return struct(x=kind)


def kept(*values: Any) -> tuple[Any, ...]:
    """The row is kept with these values."""
    return values


ID_NOTE = struct(id=t.LongType(), note=t.StringType())
NESTED = struct(
    id=t.IntegerType(),
    place=struct(name=t.StringType(), height=t.DecimalType(6, 2)),
    items=t.ArrayType(struct(sku=t.StringType(), at=t.TimestampType())),
    tags=t.MapType(t.StringType(), t.StringType()),
    sizes=t.ArrayType(t.DoubleType()),
)
REQUIRED = StructType(
    [
        t.StructField("id", t.LongType(), nullable=False),
        t.StructField("tags", t.ArrayType(t.StringType(), containsNull=False)),
        t.StructField("place", StructType([t.StructField("lat", t.DoubleType(), False)])),
    ]
)
FIFTH = datetime(2025, 1, 5, 10, 20, 30)


def _x(text: str) -> str:
    return f'{{"x":{text}}}'


GROUPS = [
    Group(
        "documents",
        ID_NOTE,
        [
            ('{"id":1,"note":"a"}', kept(1, "a")),
            (' \t\r\n{ "id" : 1 , "note" : "a" }\n', kept(1, "a")),
            ("{}", kept(None, None)),
            ('{"id":1}', kept(1, None)),
            ('{"id":null,"note":null}', kept(None, None)),
            ('{"note":"a","id":null}', kept(None, "a")),
            ('{"id":1,"other":2}', kept(1, None)),
            ('{"id":1,"other":{"id":2,"note":"b"},"more":[{}]}', kept(1, None)),
            ('{"ID":7}', kept(None, None)),
            ('{"\\u0069d":1}', kept(1, None)),
            ('{"id":-0,"note":""}', kept(0, "")),
            (None, Dead("null value (tombstone)")),
            ("", Dead("empty value")),
            ("  \n", Dead("empty value")),
            ('{"id":1} garbage', Dead("characters after the JSON object, at character 9")),
            ('{"id":1}{"id":2}', Dead("characters after the JSON object, at character 8")),
            ('{"id":1}]}', Dead("characters after")),
            ('{"id":1}}', Dead("characters after")),
            ('{"id":1},', Dead("characters after")),
            ('{"id":1}],"q":[1', Dead("characters after")),
            ('{"id":1}],"q":[{"a":1}', Dead("characters after")),
            ('{"id":1},0]}', Dead("characters after")),
            ('{"id":1,"other":2},0] }', Dead("characters after")),
            ('{"id":1}\x00', Dead("characters after")),
            ('{"id":1}\x0c', Dead("characters after")),
            ("null", Dead("not a JSON object but null")),
            ("5", Dead("not a JSON object but a number")),
            ('"{}"', Dead("not a JSON object but a string")),
            ('[{"id":1}]', Dead("not a JSON object but an array")),
            ('{"id":1', Dead("malformed JSON: Expecting ',' delimiter at character 7")),
            ('{"id":1,}', Dead("malformed JSON")),
            ('{"id":1 "note":"a"}', Dead("malformed JSON: Expecting ',' delimiter")),
            ('{"id":1,"note":"a}', Dead("malformed JSON")),
            ("{'id':1}", Dead("malformed JSON")),
            ("{id:1}", Dead("malformed JSON")),
            ('{"id":1/**/}', Dead("malformed JSON")),
            ('//c\n{"id":1}', Dead("malformed JSON")),
            ('{"id":01}', Dead("malformed JSON")),
            ('{"id":+1}', Dead("malformed JSON")),
            ('{"id":1,"other":.5}', Dead("malformed JSON")),
            ('{"id":1,"other":NaN}', Dead("NaN is not a JSON number")),
            ('{"id":1,"other":tru}', Dead("malformed JSON")),
            ('{"id":1,"note":"a\tb"}', Dead("malformed JSON: Invalid control character")),
            ('{"id":1,"note":"\\x41"}', Dead("malformed JSON: Invalid \\escape")),
            ("\x00" + '{"id":1}', Dead("malformed JSON")),
            ("\ufeff" + '{"id":1}', Dead("malformed JSON")),
            ('{"id":1}'.encode("utf-16"), Dead("not valid UTF-8 at byte 0")),
            ('{"id":1}'.encode("utf-16-le"), Dead("malformed JSON")),
            (b"\x00\x00\x00\x00\x07" + b'{"id":1}', Dead("malformed JSON")),
            (b'{"note":"\xff"}', Dead("not valid UTF-8 at byte 9")),
            (b'{"note":"\xed\xa0\x80"}', Dead("not valid UTF-8")),
            (b'{"other":"\xc3"}', Dead("not valid UTF-8")),
            (b'{"note":"\xc0\x80"}', Dead("not valid UTF-8")),
            ('{"id":1,"id":2}', Dead("duplicate field id")),
            ('{"id":1,"id":1}', Dead("duplicate field id")),
            ('{"id":1,"\\u0069d":2}', Dead("duplicate field id")),
            ('{"id":1,"a":1,"a":2}', Dead("duplicate field a")),
            ('{"id":1,"other":{"a":1,"a":2}}', kept(1, None)),
            ("[" * 2000, Dead("nested deeper than 500 levels")),
            ('{"other":' + "[" * 499 + "]" * 499 + "}", kept(None, None)),
            ('{"other":' + "[" * 500 + "]" * 500 + "}", Dead("nested deeper")),
            ('{"other":' + "1" * 1000 + "}", kept(None, None)),
            ('{"other":' + "1" * 1001 + "}", Dead("more than 1000 digits")),
        ],
    ),
    Group(
        "strings",
        ID_NOTE,
        [
            ('{"note":"5"}', kept(None, "5")),
            ('{"note": "5"}', kept(None, "5")),
            ('{"note":  "true"}', kept(None, "true")),
            ('{"note":"null"}', kept(None, "null")),
            ('{"note":"{\\"id\\":1}"}', kept(None, '{"id":1}')),
            ('{"note":"[1]","id":3}', kept(3, "[1]")),
            ('{"note":"}"}', kept(None, "}")),
            ('{"note":"a\\"b\\\\c\\/d\\n"}', kept(None, 'a"b\\c/d\n')),
            ('{"note":"\\\\"}', kept(None, "\\")),
            ('{"note":"\\u0000"}', kept(None, "\x00")),
            ('{"note":"what?"}', kept(None, "what?")),
            ('{"note":"what?\\u0041"}', kept(None, "what?A")),
            ('{"note":"\\ud83d\\uDE00?"}', kept(None, "\U0001f600?")),
            ('{"note":"\U0001f600 \ufffd é \x7f"}', kept(None, "\U0001f600 \ufffd é \x7f")),
            ('{"note":"\\\\ud800"}', kept(None, "\\ud800")),
            ('{"note":"\\ud800"}', Dead("half of a surrogate pair")),
            ('{"note":"\\udc00\\ud800"}', Dead("half of a surrogate pair")),
            ('{"note":"\\\\\\ud800"}', Dead("half of a surrogate pair")),
            ('{"note":"\\ud83d\\\\\\ude00"}', Dead("half of a surrogate pair")),
            ('{"other":"\\udfff"}', Dead("half of a surrogate pair")),
            ('{"note":5}', Dead("field note: the number 5 where a string is declared")),
            ('{"note":1e5}', Dead("field note: the number 1e5 where")),
            ('{"note":true}', Dead("field note: the boolean true where a string")),
            ('{"note":{"a":1}}', Dead("field note: an object where a string is declared")),
            ('{"note":[]}', Dead("field note: an array where a string is declared")),
            ('{"note":5,"other":{"note":"5"}}', Dead("the number 5 where a string")),
            ('{"note":5,"a":"note\\":\\"5"}', Dead("the number 5 where a string")),
            ('{"note":5,"x":1}', Dead("the number 5 where a string")),
            ('{"note":"' + "x" * 200_000 + '"}', kept(None, "x" * 200_000)),
            ('{"note":"' + "\\n" * 100_000 + '","id":null,"x":1}', kept(None, "\n" * 100_000)),
        ],
    ),
    Group(
        "bigint",
        one(t.LongType()),
        [
            (_x("9223372036854775807"), kept(2**63 - 1)),
            (_x("-9223372036854775808"), kept(-(2**63))),
            (_x("9223372036854775808"), Dead("field x: 9223372036854775808 is not a bigint")),
            (_x("1.5"), Dead("field x: 1.5 is not a bigint")),
            (_x("1.0"), Dead("1.0 is not a bigint")),
            (_x("1e3"), Dead("1e3 is not a bigint")),
            (_x('"1"'), Dead("'1' is not a bigint")),
            (_x('""'), Dead("'' is not a bigint")),
            (_x("true"), Dead("true is not a bigint")),
            (_x("[]"), Dead("an array is not a bigint")),
            (_x('1,"u":2'), kept(1)),
            (_x("1e400"), Dead("1e400 is not a bigint")),
        ],
    ),
    Group(
        "small numbers",
        struct(b=t.ByteType(), s=t.ShortType(), i=t.IntegerType(), f=t.FloatType()),
        [
            ('{"b":127,"s":32767,"i":2147483647,"f":0.5}', kept(127, 32767, 2**31 - 1, 0.5)),
            ('{"b":-128,"s":-32768,"i":-2147483648,"f":-1}', kept(-128, -32768, -(2**31), -1.0)),
            ('{"b":200}', Dead("field b: 200 is not a tinyint")),
            ('{"b":-129}', Dead("-129 is not a tinyint")),
            ('{"s":32768}', Dead("32768 is not a smallint")),
            ('{"i":2147483648}', Dead("2147483648 is not an int".replace("an int", "a int"))),
            ('{"f":16777217,"u":1}', kept(None, None, None, 16777216.0)),
            ('{"f":1e39}', Dead("1e39 is not a float")),
            ('{"f":1e-60}', Dead("1e-60 is not a float")),
            (
                '{"f":340282346638528859811704183484516925440}',
                kept(*[None] * 3, 2.0**128 - 2.0**104),
            ),
        ],
    ),
    Group(
        "doubles and booleans",
        struct(x=t.DoubleType(), b=t.BooleanType()),
        [
            (_x("0.1"), kept(0.1, None)),
            (_x("1"), kept(1.0, None)),
            (_x("-1.5E+3"), kept(-1500.0, None)),
            (_x("0"), kept(0.0, None)),
            (_x('0.0,"note":"e-mail"'), kept(0.0, None)),
            (_x("0e-5"), kept(0.0, None)),
            (_x("1e-5"), kept(1e-5, None)),
            (_x("4.9e-324"), kept(5e-324, None)),
            (_x("123456789012345678901234567890"), kept(1.2345678901234568e29, None)),
            (_x("1e999"), Dead("1e999 is not a double")),
            (_x("-1e999"), Dead("-1e999 is not a double")),
            (_x("1e-999"), Dead("1e-999 is not a double")),
            (_x("0." + "0" * 400 + "1"), Dead("is not a double")),
            (_x('0,"u":1e-999'), kept(0.0, None)),
            (_x("NaN"), Dead("NaN is not a JSON number")),
            (_x("-Infinity"), Dead("-Infinity is not a JSON number")),
            (_x('"NaN"'), Dead("'NaN' is not a double")),
            (_x('"Infinity"'), Dead("'Infinity' is not a double")),
            (_x('"2.5"'), Dead("'2.5' is not a double")),
            ('{"b":true}', kept(None, True)),
            ('{"b":false,"u":0}', kept(None, False)),
            ('{"b":"true"}', Dead("field b: 'true' is not a boolean")),
            ('{"b":1}', Dead("field b: 1 is not a boolean")),
        ],
    ),
    Group(
        "decimals",
        one(t.DecimalType(6, 2)),
        [
            (_x("1.23"), kept(Decimal("1.23"))),
            (_x("1.5"), kept(Decimal("1.50"))),
            (_x("-9999.99"), kept(Decimal("-9999.99"))),
            (_x('"12.50"'), kept(Decimal("12.50"))),
            (_x('"12.5"'), kept(Decimal("12.50"))),
            (_x("1.2300"), kept(Decimal("1.23"))),
            (_x('"1.2300"'), kept(Decimal("1.23"))),
            (_x("1e2"), kept(Decimal("100.00"))),
            (_x("123e-2"), kept(Decimal("1.23"))),
            (_x("12300e-4"), kept(Decimal("1.23"))),
            (_x("0e-9"), kept(Decimal("0.00"))),
            (_x("-0"), kept(Decimal("0.00"))),
            (_x("0e9999"), kept(Decimal("0.00"))),
            (_x("0e-9999"), kept(Decimal("0.00"))),
            (_x('1.5,"u":2'), kept(Decimal("1.50"))),
            (_x('"1.5","u":2'), kept(Decimal("1.50"))),
            (_x('1.5,"u":{"x":1.234}'), kept(Decimal("1.50"))),
            (_x('1.234,"u":{"x":1.23}'), Dead("without rounding")),
            (_x('1.234,"u\\"x":1.23'), Dead("without rounding")),
            (_x("1." + "0" * 60), kept(Decimal("1.00"))),
            (_x("1.23456"), Dead("1.23456 does not fit decimal(6,2) without rounding")),
            (_x("1.2" + "0" * 50 + "1"), Dead("without rounding")),
            (_x("1.1" + "9" * 60), Dead("without rounding")),
            (_x("1e-3"), Dead("1e-3 does not fit decimal(6,2) without rounding")),
            (_x("12345.6"), Dead("12345.6 is too large for decimal(6,2)")),
            (_x("9999.995"), Dead("without rounding")),
            (_x("1e999"), Dead("too large")),
            (_x("1e99999"), Dead("is not a decimal(6,2)")),
            (_x("1e999999999"), Dead("is not a decimal(6,2)")),
            (_x('"1e-999999999"'), Dead("is not a decimal(6,2)")),
            (_x('1.5,"u":1e999999999'), kept(Decimal("1.50"))),
            (_x('"1,234"'), Dead("'1,234' is not a decimal(6,2)")),
            (_x('" 1"'), Dead("' 1' is not a decimal")),
            (_x('"+1"'), Dead("'+1' is not a decimal")),
            (_x('"1."'), Dead("'1.' is not a decimal")),
            (_x('".5"'), Dead("'.5' is not a decimal")),
            (_x('"1\\n"'), Dead("is not a decimal")),
            (_x('""'), Dead("'' is not a decimal")),
            (_x("true"), Dead("true is not a decimal")),
            (_x('["1.5"]'), Dead("an array is not a decimal")),
            (_x('{"":"1.5"}'), Dead("an object is not a decimal")),
        ],
    ),
    Group(
        "wide decimals",
        one(t.DecimalType(38, 18)),
        [
            (_x("1.123456789012345678"), kept(Decimal("1.123456789012345678"))),
            (_x("1.1234567890123456789"), Dead("without rounding")),
            (_x("9" * 20 + "." + "9" * 18), kept(Decimal("9" * 20 + "." + "9" * 18))),
            (_x('"' + "9" * 20 + "." + "9" * 18 + '"'), kept(Decimal("9" * 20 + "." + "9" * 18))),
            (_x("9" * 21), Dead("too large")),
            (_x("1e-18"), kept(Decimal("1e-18"))),
        ],
    ),
    Group(
        "timestamps",
        one(t.TimestampType()),
        [
            (_x('"2025-01-05T10:20:30Z"'), kept(FIFTH)),
            (_x('"2025-01-05 10:20:30+00:00"'), kept(FIFTH)),
            (_x('"2025-01-05T12:20:30+02"'), kept(FIFTH)),
            (_x('"2025-01-05T15:50:30+0530"'), kept(FIFTH)),
            (_x('"2025-01-04T16:20:30-18:00"'), kept(FIFTH)),
            (_x('"2025-01-05T10:20:30"'), kept(FIFTH)),
            (_x('"2025-01-05T10:20Z"'), kept(FIFTH.replace(second=0))),
            (_x('"2025-01-05T10:20:30.123456Z"'), kept(FIFTH.replace(microsecond=123456))),
            (_x('"2025-01-05T10:20"'), kept(FIFTH.replace(second=0))),
            (_x('"2025-01-05T10:20+0000"'), kept(FIFTH.replace(second=0))),
            (_x('"2025-01-05T10:20:30.5Z"'), kept(FIFTH.replace(microsecond=500000))),
            (_x('"2025-01-05T10:20:30.123456000Z"'), kept(FIFTH.replace(microsecond=123456))),
            (_x('"2025-01-05T10:20:30.1234567Z"'), Dead("is not a timestamp")),
            (_x('"2024-02-29T00:00:00Z"'), kept(datetime(2024, 2, 29))),
            (_x('"2024-02-30T00:00:00Z"'), Dead("is not a timestamp")),
            (_x('"2025-02-29T00:00:00Z"'), Dead("is not a timestamp")),
            (_x('"2024-02-30"'), Dead("field x: '2024-02-30' is not a timestamp")),
            (_x('"2025-01-05"'), Dead("is not a timestamp")),
            (_x('"2024"'), Dead("is not a timestamp")),
            (_x('"12:30"'), Dead("is not a timestamp")),
            (_x('"T12:30"'), Dead("is not a timestamp")),
            (_x('"2025-01-05T10Z"'), Dead("is not a timestamp")),
            (_x('"2025-1-5T10:20:30Z"'), Dead("is not a timestamp")),
            (_x('"2025-01-05T24:00:00Z"'), Dead("is not a timestamp")),
            (_x('"2025-01-05T10:20:60Z"'), Dead("is not a timestamp")),
            (_x('" 2025-01-05T10:20:30Z"'), Dead("is not a timestamp")),
            (_x('"2025-01-05T10:20:30Z\\n"'), Dead("is not a timestamp")),
            (_x('"2025-01-05T10:20:30 Europe/Paris"'), Dead("is not a timestamp")),
            (_x('"2025-01-05T10:20:30.12345NZ"'), Dead("is not a timestamp")),
            (_x('"2025-01-05T10:20:30+18:01"'), Dead("is not a timestamp")),
            (_x('"0000-01-05T10:20:30Z"'), Dead("is not a timestamp")),
            (_x('"now"'), Dead("is not a timestamp")),
            (_x('""'), Dead("is not a timestamp")),
            (_x("1736072430"), Dead("field x: 1736072430 is not a timestamp")),
            (_x('"1736072430"'), Dead("is not a timestamp")),
            (_x("true"), Dead("true is not a timestamp")),
        ],
    ),
    Group(
        "timestamps, no offset refused, unknown fields refused",
        one(t.TimestampType()),
        [
            (_x('"2025-01-05T10:20:30Z"'), kept(FIFTH)),
            (_x('"2025-01-05T10:20:30"'), Dead("is not a timestamp")),
            (_x("null"), kept(None)),
            ('{"X":null}', Dead("unknown field X")),
            (_x('"2025-01-05T10:20:30Z","y":{}'), Dead("unknown field y")),
        ],
        STRICT,
    ),
    Group(
        "timestamps, seconds",
        one(t.TimestampType()),
        [
            (_x("1736072430"), kept(FIFTH)),
            (_x('"1736072430"'), kept(FIFTH)),
            (_x('"2025-01-05T10:20:30Z"'), kept(FIFTH)),
            (_x("-1"), kept(datetime(1969, 12, 31, 23, 59, 59))),
            (_x("1736072430.5"), Dead("is not a timestamp")),
            (_x("1.736072430e9"), Dead("is not a timestamp")),
            (_x("1736072430000"), Dead("is not a timestamp")),
            (_x("99999999999999999999"), Dead("is not a timestamp")),
        ],
        LENIENT,
    ),
    Group(
        "timestamps, milliseconds",
        one(t.TimestampType()),
        [
            (_x("1736072430500"), kept(FIFTH.replace(microsecond=500000))),
            (_x("0"), kept(datetime(1970, 1, 1))),
        ],
        MILLIS,
    ),
    Group(
        "wall clocks, dates, bytes",
        struct(w=t.TimestampNTZType(), d=t.DateType(), b=t.BinaryType()),
        [
            ('{"w":"2025-01-05T10:20:30"}', kept(FIFTH, None, None)),
            ('{"w":"2025-01-05 10:20"}', kept(FIFTH.replace(second=0), None, None)),
            ('{"w":"2025-01-05T10:20:30Z"}', Dead("is not a timestamp_ntz")),
            ('{"w":1736072430}', Dead("is not a timestamp_ntz")),
            ('{"d":"2024-02-29"}', kept(None, date(2024, 2, 29), None)),
            ('{"d":"2025-02-29"}', Dead("'2025-02-29' is not a date")),
            ('{"d":"2025-1-5"}', Dead("is not a date")),
            ('{"d":"2025-01-05T00:00"}', Dead("is not a date")),
            ('{"d":20250105}', Dead("20250105 is not a date")),
            ('{"d":"0000-01-05"}', Dead("is not a date")),
            ('{"b":"QUI="}', kept(None, None, b"AB")),
            ('{"b":"QUJD","u":1}', kept(None, None, b"ABC")),
            ('{"b":""}', kept(None, None, b"")),
            ('{"b":"1234"}', kept(None, None, b"\xd7\x6d\xf8")),
            ('{"b":1234}', Dead("1234 is not a binary")),
            ('{"b":"QUI"}', Dead("'QUI' is not a binary")),
            ('{"b":"QUJ="}', Dead("is not a binary")),
            ('{"b":"Q UI="}', Dead("is not a binary")),
            ('{"b":"_-8="}', Dead("is not a binary")),
        ],
    ),
    Group(
        "nested",
        NESTED,
        [
            (
                '{"id":1,"place":{"name":"A","height":1.5},"items":[{"sku":"5","at":null},'
                '{"at":"2025-01-05T10:20:30Z"},null,{}],"tags":{"a":"1","b":null},"sizes":[1,null,2.5]}',
                kept(
                    1,
                    ("A", Decimal("1.50")),
                    [("5", None), (None, FIFTH), None, (None, None)],
                    {"a": "1", "b": None},
                    [1.0, None, 2.5],
                ),
            ),
            ('{"place":{},"items":[],"tags":{},"sizes":[]}', kept(None, (None, None), [], {}, [])),
            ('{"place":null,"items":null,"tags":null}', kept(*[None] * 5)),
            ('{"place":{"name":"A"}}', kept(None, ("A", None), *[None] * 3)),
            ('{"place":{"name":"A","u":{"name":"B"}}}', kept(None, ("A", None), *[None] * 3)),
            ('{"place":{"name":"A"}}}', Dead("characters after")),
            ('{"place":{"name":"A","name":"B"}}', Dead("duplicate field place.name")),
            ('{"tags":{"a":"1","a":"2"}}', Dead("duplicate field tags.a")),
            ('{"tags":{"a":"\\ud800"}}', Dead("half of a surrogate")),
            ('{"tags":{"\\ud800":"a"}}', Dead("half of a surrogate")),
            ('{"tags":{"a":5}}', Dead("field tags.a: the number 5 where a string is declared")),
            ('{"tags":[]}', Dead("field tags: an array where an object is declared")),
            ('{"items":[{"sku":5}]}', Dead("field items[0].sku: the number 5 where a string")),
            ('{"items":[{"sku":"5","sku":"6"}]}', Dead("duplicate field items[0].sku")),
            ('{"items":[{"at":"12:30"}]}', Dead("field items[0].at: '12:30' is not a timestamp")),
            ('{"items":{"sku":"5"}}', Dead("field items: an object where an array is declared")),
            ('{"sizes":[1e999]}', Dead("field sizes[0]: 1e999 is not a double")),
            ('{"sizes":["1"]}', Dead("field sizes[0]: '1' is not a double")),
            ('{"place":{"height":1.234}}', Dead("field place.height: 1.234 does not fit")),
            ('{"place":"{}"}', Dead("field place: the string '{}' where an object")),
            ('{"place":[]}', Dead("field place: an array where an object is declared")),
        ],
    ),
    Group(
        "numbers in arrays",
        struct(
            b=t.ArrayType(t.ByteType()),
            d=t.ArrayType(t.DecimalType(6, 2)),
            f=t.ArrayType(t.FloatType()),
            m=t.MapType(t.StringType(), t.ArrayType(t.DoubleType())),
        ),
        [
            (
                '{"b":[1,-2,null,127],"d":[1.5,"2.25",null]}',
                kept([1, -2, None, 127], [Decimal("1.50"), Decimal("2.25"), None], None, None),
            ),
            ('{"b":[200]}', Dead("field b[0]: 200 is not a tinyint")),
            ('{"b":[1,12.5]}', Dead("field b[1]: 12.5 is not a tinyint")),
            ('{"d":[1.234]}', Dead("field d[0]: 1.234 does not fit")),
            ('{"d":["1,5"]}', Dead("field d[0]: '1,5' is not")),
            ('{"f":[1e39,2]}', Dead("field f[0]: 1e39 is not a float")),
            ('{"m":{"a":[1e999]}}', Dead("field m.a[0]: 1e999 is not a double")),
            ('{"m":{"a":[1.5],"b":[]}}', kept(None, None, None, {"a": [1.5], "b": []})),
            ('{"m":{"a":[],"a":[]}}', Dead("duplicate field m.a")),
        ],
    ),
    Group(
        "nested, unknown fields refused",
        NESTED,
        [
            (
                '{"place":{"name":"A"},"tags":{"anything":"1"}}',
                kept(None, ("A", None), None, {"anything": "1"}, None),
            ),
            ('{"place":{"name":null,"height":null}}', kept(None, (None, None), *[None] * 3)),
            ('{"place":{"name":"A","u":1}}', Dead("unknown field place.u")),
            ('{"place":{"name":"A","id":null}}', Dead("unknown field place.id")),
            ('{"items":[{"sku":"5"},{"u":null}]}', Dead("unknown field items[1].u")),
        ],
        STRICT,
    ),
    Group(
        "required",
        REQUIRED,
        [
            ('{"id":1,"tags":["a"],"place":{"lat":0}}', kept(1, ["a"], (0.0,))),
            ('{"id":1}', kept(1, None, None)),
            ("{}", Dead("required field id is missing")),
            ('{"id":null}', Dead("required field id is missing")),
            ('{"ID":1}', Dead("required field id is missing")),
            ('{"id":1,"tags":["a",null]}', Dead("required field tags[1] is missing")),
            ('{"id":1,"place":{}}', Dead("required field place.lat is missing")),
        ],
    ),
    Group(
        "required, null instead",
        REQUIRED,
        [
            ("{}", kept(None, None, None)),
            ('{"tags":["a",null],"place":{}}', kept(None, ["a", None], (None,))),
            ('{"id":"1"}', Dead("field id: '1' is not a bigint")),
        ],
        LENIENT,
    ),
]
