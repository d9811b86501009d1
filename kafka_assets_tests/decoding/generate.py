"""Random documents in every notation that JSON allows, and random damage to them; seeded."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from random import Random

from pyspark.sql import types as t

TEXTS = [
    "",
    "a",
    "5",
    "-1.5",
    "true",
    "null",
    "{}",
    "[1]",
    'q"uote',
    "back\\slash",
    "/",
    "\x00\n",
    "é",
    "\U0001f600",
    "\ufffd",
    "what?",
    "2025-01-05",
    "x" * 300,
    "\\ud800",
    '"id":1',
    "e-9",
]
TOKENS = [
    "null",
    "true",
    "0",
    "-0",
    "200",
    "1.0",
    "1e3",
    "1e-999",
    "1e999",
    "NaN",
    '"1"',
    '""',
    "{}",
    "[]",
    "[[]]",
    '{"id":1}',
    "1.23456",
    "9" * 40,
    "0." + "0" * 50 + "1",
    '"\\ud800"',
    '"12:30"',
    '"2025-02-30T00:00:00Z"',
    '"1,5"',
    '"x\\"y"',
    "12345678901234567890",
    "1700000000",
    "\xa0",
]
PIECES = [
    '"',
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "0",
    "9",
    ".",
    "-",
    "e",
    " ",
    "\n",
    "\x00",
    "'",
    "/",
    "u",
    "\\u0041",
    "\\ud83d",
    "\\udc00",
    "\ufeff",
    "null",
    ',"id":1',
    ',"u":{"id":2}',
    "\x85",
]
TAILS = [" ", "\n\t", "}", "]", "]}", " x", "{}", ',"a":1}', "],[1", "\x00", "//", '"', ",0]}"]


def document(random: Random, schema: t.StructType) -> str:
    """A decodable document: order, spaces, escapes, notations and unknown fields vary."""
    gap = random.choice(["", "", " ", "\r\n\t "])
    return gap + _value(random, schema, gap) + random.choice(["", gap])


def damaged(random: Random, text: str) -> bytes:
    """The document with one to three things wrong, or right by chance."""
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        text = _damage(random, text)
    raw = text.encode("utf-8", "surrogatepass")
    if random.random() < 0.05 and raw:
        at = random.randrange(len(raw))
        raw = raw[:at] + random.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b""]) + raw[at + 1 :]
    return raw


def _damage(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    to = min(len(text), at + random.choice([1, 1, 2, 5, 20]))
    kind = random.randrange(8)
    if kind == 0:
        return text[:at] + text[to:]
    if kind == 1:
        return text[:at] + random.choice(PIECES) + text[at:]
    if kind == 2:
        return text[:at] + random.choice(PIECES) + text[to:]
    if kind == 3:
        return text[:at] + text[at:to] + text[at:]
    if kind == 4:
        return text[:at]
    if kind == 5:
        return text + random.choice(TAILS)
    return _other_token(random, text)


def _other_token(random: Random, text: str) -> str:
    """One value becomes another, or one member comes again."""
    colons = [at for at, character in enumerate(text) if character == ":"]
    if not colons:
        return text
    start = random.choice(colons) + 1
    end = min((at for at in (text.find(c, start) for c in ",}]") if at >= 0), default=len(text))
    if random.random() < 0.3:
        name = text.rfind('"', 0, max(text.rfind('"', 0, start) - 1, 0))
        return text[:end] + "," + text[max(name, 0) : end] + text[end:]
    return text[:start] + random.choice(TOKENS) + text[end:]


def _value(random: Random, declared: t.DataType, gap: str) -> str:
    if isinstance(declared, t.StructType):
        return _object(random, _members(random, declared, gap), gap)
    if isinstance(declared, t.ArrayType):
        inner = [_slot(random, declared.elementType, gap) for _ in range(random.randrange(4))]
        return "[" + gap + f"{gap},{gap}".join(inner) + gap + "]"
    if isinstance(declared, t.MapType):
        keys = {random.choice(TEXTS[:12]) for _ in range(random.randrange(4))}
        return _object(random, [(k, _slot(random, declared.valueType, gap)) for k in keys], gap)
    return _leaf(random, declared)


def _members(random: Random, schema: t.StructType, gap: str) -> list[tuple[str, str]]:
    members = [(f.name, _slot(random, f.dataType, gap)) for f in schema.fields]
    members = [member for member in members if random.random() < 0.9]
    if random.random() < 0.3:
        members.append(
            ("u", random.choice(['{"id":[1,{"v":"x"}]}', "[[1],{}]", "null", '"a"', "1e-999"]))
        )
    if random.random() < 0.3:
        random.shuffle(members)
    return members


def _object(random: Random, members: list[tuple[str, str]], gap: str) -> str:
    parts = [f"{_string(random, name)}{gap}:{gap}{value}" for name, value in members]
    return "{" + gap + f"{gap},{gap}".join(parts) + gap + "}"


def _slot(random: Random, declared: t.DataType, gap: str) -> str:
    return "null" if random.random() < 0.05 else _value(random, declared, gap)


def _string(random: Random, text: str) -> str:
    written = json.dumps(text, ensure_ascii=random.random() < 0.5)
    if text and random.random() < 0.03:
        escaped = "".join(f"\\u{ord(c):04X}" if ord(c) < 0x10000 else c for c in text)
        return f'"{escaped}"'
    return written


def _leaf(random: Random, declared: t.DataType) -> str:
    if isinstance(declared, t.StringType):
        return _string(random, random.choice(TEXTS))
    if isinstance(declared, t.BooleanType):
        return random.choice(["true", "false"])
    if isinstance(declared, t.DecimalType):
        return _decimal(random, declared)
    if isinstance(declared, t.FloatType | t.DoubleType):
        number = random.choice(
            [0.0, 1.0, -2.5, random.uniform(-1e6, 1e6), random.uniform(-1, 1) * 1e-9]
        )
        return random.choice([repr(number), f"{number:.3e}", f"{number:.20f}", str(int(number))])
    if isinstance(declared, t.IntegralType):
        bound = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}[declared.simpleString()]
        return str(
            random.choice([0, 1, -(1 << bound), (1 << bound) - 1, random.randrange(1 << bound)])
        )
    if isinstance(declared, t.BinaryType):
        return f'"{base64.b64encode(random.randbytes(random.randrange(6))).decode()}"'
    return f'"{_time(random, declared)}"'


def _decimal(random: Random, declared: t.DecimalType) -> str:
    digits = random.randrange(10 ** random.randrange(1, declared.precision + 1))
    number = Decimal(f"{random.choice([1, -1]) * digits}e-{declared.scale}")
    text = random.choice(
        [
            f"{number:f}",
            f"{number:f}".rstrip("0").rstrip(".") if declared.scale else f"{number:f}",
            f"{number:e}",
            f"{number:f}",
        ]
    )
    if declared.scale and "." in text and "e" not in text:
        text += "0" * random.choice([0, 0, 3, 60])
    return f'"{text}"' if random.random() < 0.3 else text


def _time(random: Random, declared: t.DataType) -> str:
    moment = datetime(1900, 1, 1) + timedelta(
        days=random.randrange(90_000), microseconds=random.randrange(86_400_000_000)
    )
    if isinstance(declared, t.DateType):
        return moment.date().isoformat()
    precision = random.choice(["minutes", "seconds", "milliseconds", "microseconds"])
    if isinstance(declared, t.TimestampType):
        offset = timezone(timedelta(minutes=random.randrange(-18 * 60, 18 * 60 + 1)))
        moment = moment.replace(tzinfo=random.choice([None, UTC, offset]))
    written = moment.isoformat(sep=random.choice("T "), timespec=precision)
    return written.replace("+00:00", "Z") if random.random() < 0.5 else written
