"""Payloads damaged in every way that Hypothesis finds, as Kafka records; strategies only.

The bytes of a good payload are flipped, cut, doubled and mixed with tokens that have broken
parsers; its members change type, name and number; documents are joined, or encoded otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from hypothesis import strategies as st

DDL = """id BIGINT NOT NULL, name STRING, x INT, ok BOOLEAN, real DOUBLE, price DECIMAL(6,2),
at TIMESTAMP, day DATE, place STRUCT<name: STRING, height: DECIMAL(6,2)>,
items ARRAY<STRUCT<sku: STRING, at: TIMESTAMP>>, tags MAP<STRING, STRING>"""
GOOD: list[dict[str, Any]] = [
    {"id": 1, "name": "a", "x": 5, "ok": True, "real": 0.5, "price": 1.25},
    {"id": 2, "x": -5, "at": "2026-11-20T10:30:00Z", "day": "2026-11-20", "u": [1, {"id": 2}]},
    {"id": 3, "x": 500, "place": {"name": "é", "height": "1.50"}, "name": "\U0001f600"},
    {"id": 4, "x": 7, "items": [{"sku": "5", "at": "2026-11-20 10:30:00+02:00"}], "real": -1e3},
    {"id": 5, "x": 0, "tags": {"a": "1", "b": None}, "items": [], "ok": False, "price": "9.9"},
]
NAMES = sorted({name for payload in GOOD for name in payload} | {"ID", "", "id ", "_source", "é"})
VALUES: list[Any] = [None, True, 0, -1, 2**31, 2**63, 1.5, "", "1", "NaN", "true", [], {}, [[]]]
VALUES += [{"id": 1}, "\ud800", "2026-02-30T00:00:00Z", "12:30", 1763600000, 10**1200, "x" * 3000]
VALUES += ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59.9999999Z", "2026-11-20", "1,5", "1e9999"]
TOKENS = [b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"NaN", b"-Infinity"]
TOKENS += [b"1e999", b"1e-999", b"\\ud800", b"\\udc00", b"\\u0069", b"\xef\xbb\xbf", b"\x00"]
TOKENS += [b"\x1f", b"\x7f", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]
TOKENS += [b"/**/", b"//", b" ", b"\n", b"\xc2\xa0", b"\xc2\x85", b'"id":1,', b"0", b"e", b"-"]
TOKENS += [b"9" * 400, b"[" * 600, b'{"a":' * 400, b"1e999999999", b"\x00\x00\x00\x00\x07"]


@dataclass(frozen=True)
class Record:
    """What is produced: the bytes of one Kafka record."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def documents() -> st.SearchStrategy[bytes]:
    """Good payloads, or payloads that are JSON and not what the schema says."""

    def changed(payload: dict[str, Any], number: int, change: int, name: str, value: Any) -> bytes:
        members = list({**payload, "id": number, "x": number % 300 - 100}.items())
        at = len(name) % len(members)
        if change == 1:  # another type, or another value
            members[at] = (members[at][0], value)
        elif change == 2:  # another name
            members[at] = (name, members[at][1])
        elif change == 3:  # a name twice
            members.append((members[at][0], value))
        elif change == 4:  # one more level, or one more member
            members.append((name, {"u": [payload, value]}))
        elif change == 5:
            del members[at]
        inner = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in members)
        return f"{{{inner}}}".encode()

    return st.builds(
        changed,
        st.sampled_from(GOOD),
        st.integers(1, 2**24 - 1),
        st.integers(0, 5),
        st.sampled_from(NAMES),
        st.sampled_from(VALUES),
    )


def damages() -> st.SearchStrategy[Callable[[bytes], bytes]]:
    """What can happen to bytes; places are taken modulo the length."""
    at, token = st.integers(0, 255), st.sampled_from(TOKENS)
    return st.one_of(
        st.builds(lambda a, b: lambda raw: _at(raw, a, lambda x: bytes([x[0] ^ b])), at, at),
        st.builds(lambda a: lambda raw: raw[: a % (len(raw) + 1)], at),
        st.builds(lambda a: lambda raw: raw[a % (len(raw) + 1) :], at),
        st.builds(lambda a, piece: lambda raw: _at(raw, a, lambda x: piece + x), at, token),
        st.builds(lambda a, piece: lambda raw: _at(raw, a, lambda _: piece), at, token),
        st.builds(lambda a: lambda raw: _at(raw, a, lambda x: x * 2), at),
        st.builds(lambda other: lambda raw: raw + other, documents()),
        st.builds(lambda piece: lambda raw: raw + piece, token),
        st.builds(lambda encoding: lambda raw: _recoded(raw, encoding), st.sampled_from("bl")),
    )


def _at(raw: bytes, at: int, change: Callable[[bytes], bytes]) -> bytes:
    at %= max(len(raw), 1)
    return raw[:at] + change(raw[at : at + 1] or b"\x00") + raw[at + 1 :]


def _recoded(raw: bytes, encoding: str) -> bytes:
    return raw.decode("utf-8", "replace").encode(f"utf-16-{encoding}e", "surrogatepass")


def mutations() -> st.SearchStrategy[list[Record]]:
    """Four records: a payload, and the same with one, two and three more things wrong."""
    small = st.binary(max_size=2)
    header = st.tuples(st.sampled_from("aé"), st.none() | small)
    headers = st.lists(header, max_size=2).map(tuple)
    wrong = st.tuples(damages(), damages(), damages())
    return st.builds(_stages, documents(), wrong, st.none() | small, headers)


def _stages(
    raw: bytes,
    wrong: tuple[Callable[[bytes], bytes], ...],
    key: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> list[Record]:
    stages = list(accumulate(wrong, lambda value, damage: damage(value), initial=raw))
    return [Record(value, key, headers) for value in stages]
