"""Decoding keeps a row exactly or calls it undecodable; the two implementations agree."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from kafka_assets.decoding.explain import explain_json
from kafka_assets_tests.decoding.corpus import GROUPS, Dead, Group
from kafka_assets_tests.decoding.harness import as_bytes, decode_all


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_every_payload_of_the_corpus_ends_where_a_careful_person_wants_it(
    spark: SparkSession, group: Group
) -> None:
    payloads = [payload for payload, _ in group.cases]
    decoded = decode_all(spark, group.schema, payloads, group.options)
    wanted = [None if isinstance(expected, Dead) else expected for _, expected in group.cases]
    wrong = [
        (str(payload)[:100], want, got)
        for payload, want, got in zip(payloads, wanted, decoded, strict=True)
        if want != got
    ]
    assert wrong == []


def test_payloads_of_ten_megabytes_are_decoded_or_refused_like_small_ones(
    spark: SparkSession,
) -> None:
    group = GROUPS[0]
    plain, escaped = (
        b'{"id":1,"note":"%s"}' % (b"x" * 10**7),
        b'{"note":"%s"}' % (b'\\"' * 5 * 10**6),
    )
    numbers = b'{"id":1,"other":[%s1]}' % (b"12345," * 10**6)
    payloads = [plain, escaped, numbers, plain + b"]}", escaped + b"x"]
    decoded = decode_all(spark, group.schema, payloads, group.options)
    assert decoded == [(1, "x" * 10**7), (None, '"' * 5 * 10**6), (1, None), None, None]
    for payload, row in zip(payloads, decoded, strict=True):
        assert (explain_json(as_bytes(payload), group.schema, group.options) is None) == bool(row)
