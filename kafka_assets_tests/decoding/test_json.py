"""Decoding keeps a row exactly or calls it undecodable; the two implementations agree."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from kafka_assets.decoding.explain import explain_json
from kafka_assets.decoding.json import JsonOptions, check_schema, decode_json
from kafka_assets_tests.decoding.corpus import GROUPS, Dead, Group, struct
from kafka_assets_tests.decoding.generate import damaged, document
from kafka_assets_tests.decoding.harness import as_bytes, decode_all, read_strictly


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


@pytest.mark.verify
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


EVERYTHING = struct(
    id=t.LongType(),
    tiny=t.ByteType(),
    small=t.ShortType(),
    count=t.IntegerType(),
    name=t.StringType(),
    ok=t.BooleanType(),
    real=t.DoubleType(),
    single=t.FloatType(),
    price=t.DecimalType(6, 2),
    exact=t.DecimalType(38, 18),
    whole=t.DecimalType(10, 0),
    at=t.TimestampType(),
    wall=t.TimestampNTZType(),
    day=t.DateType(),
    data=t.BinaryType(),
    place=struct(name=t.StringType(), price=t.DecimalType(6, 2), at=t.TimestampType()),
    items=t.ArrayType(struct(id=t.IntegerType(), name=t.StringType(), price=t.DecimalType(6, 2))),
    tags=t.MapType(t.StringType(), t.StringType()),
    prices=t.MapType(t.StringType(), t.ArrayType(t.DecimalType(6, 2))),
    bytes=t.ArrayType(t.ByteType()),
    names=t.ArrayType(t.StringType()),
)
FLAT = t.StructType(EVERYTHING.fields[:13])
STRICTEST = JsonOptions("dead_letter", "dead_letter", "dead_letter", "dead_letter")
LAXEST = JsonOptions("ignore", "null", "utc", "millis")


@pytest.mark.parametrize("schema", [EVERYTHING, FLAT], ids=["nested", "flat"])
def test_valid_documents_decode_to_exactly_what_a_strict_reading_in_python_gives(
    spark: SparkSession, schema: t.StructType
) -> None:
    random = Random(11)
    documents = [document(random, schema) for _ in range(2000)]
    decoded = decode_all(spark, schema, documents, JsonOptions())
    for text, row in zip(documents, decoded, strict=True):
        assert explain_json(text.encode(), schema, JsonOptions()) is None, text
        assert row == read_strictly(text, schema, JsonOptions()), text


@pytest.mark.parametrize("schema", [EVERYTHING, FLAT], ids=["nested", "flat"])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(JsonOptions(), id="default"),
        pytest.param(STRICTEST, id="strict", marks=pytest.mark.verify),
        pytest.param(LAXEST, id="lax", marks=pytest.mark.verify),
    ],
)
def test_damaged_documents_never_throw_and_both_implementations_agree_on_each(
    spark: SparkSession, schema: t.StructType, options: JsonOptions
) -> None:
    random = Random(f"{options}{len(schema)}")
    payloads = [damaged(random, document(random, schema)) for _ in range(3000)]
    decoded = decode_all(spark, schema, payloads, options)
    reasons = [explain_json(payload, schema, options) for payload in payloads]
    disagreements = [
        (payload, reason, row)
        for payload, reason, row in zip(payloads, reasons, decoded, strict=True)
        if (reason is None) != (row is not None)
    ]
    assert disagreements == []
    assert 30 < sum(row is not None for row in decoded) < len(decoded) - 30
    for payload, row in zip(payloads, decoded, strict=True):
        if row is not None:
            assert row == read_strictly(payload.decode(), schema, options), payload


def test_the_parser_runs_once_and_a_later_filter_does_not_repeat_it(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"{}",)], "value binary").repartition(1)
    decoded = decode_json(frame, "value", FLAT, JsonOptions())
    good = decoded.filter(~F.col("_undecodable")).select("_decoded.*", "value").filter("id > 0")
    plan = StringIO()
    with redirect_stdout(plan):
        good.explain()
    # Once for all rows; the second look, in its branch, has parsers of its own.
    assert plan.getvalue().count("AS _json_parsed") == 1
    assert plan.getvalue().count("from_json(StructField(id,LongType") == 1


@pytest.mark.parametrize("policy", ["LEGACY", "EXCEPTION"])
def test_a_session_that_guesses_at_dates_or_throws_on_them_is_refused(
    spark: SparkSession, policy: str
) -> None:
    setting = "spark.sql.legacy.timeParserPolicy"
    frame = spark.createDataFrame([(b"{}",)], "value binary")
    spark.conf.set(setting, policy)
    try:
        with pytest.raises(ValueError, match=f"{setting}={policy}"):
            decode_json(frame, "value", FLAT, JsonOptions())
    finally:
        spark.conf.unset(setting)


def test_a_stream_can_be_decoded(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    rows = [(b'{"id":1}',), (b'{"id":1,"id":2}',), (b"{",), (None,)]
    spark.createDataFrame(rows, "value binary").write.parquet(str(source))
    stream = spark.readStream.schema("value binary").parquet(str(source))
    decoded = decode_json(stream, "value", struct(id=t.LongType()), JsonOptions())
    query = (
        decoded.writeStream.format("memory")
        .queryName("decoded_stream")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.awaitTermination()
    found = spark.table("decoded_stream").collect()
    assert sorted((row._undecodable, row.value or b"") for row in found) == sorted(
        [(False, b'{"id":1}'), (True, b'{"id":1,"id":2}'), (True, b"{"), (True, b"")]
    )


def test_the_other_columns_stay_and_the_types_are_the_declared_ones(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, b"{}", "x")], "offset long, value binary, `a.b` string")
    decoded = decode_json(frame, "value", EVERYTHING, JsonOptions())
    assert decoded.columns == ["offset", "value", "a.b", "_decoded", "_undecodable"]
    assert decoded.schema["_decoded"].dataType == EVERYTHING
    assert decoded.schema["_undecodable"] == t.StructField("_undecodable", t.BooleanType(), False)


def test_a_schema_of_three_hundred_fields_is_decoded(spark: SparkSession) -> None:
    schema = t.StructType([t.StructField(f"f{n}", t.StringType()) for n in range(300)])
    ordered = json.dumps({f"f{n}": str(n) for n in range(300)})
    reversed_ = json.dumps({f"f{n}": str(n) for n in reversed(range(300))})
    twice = ordered[:-1] + ',"f7":"x"}'
    decoded = decode_all(spark, schema, [ordered, reversed_, twice, ordered + "x"], JsonOptions())
    wanted = tuple(str(n) for n in range(300))
    assert decoded == [wanted, wanted, None, None]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (struct(x=t.DayTimeIntervalType()), "field x: type interval day to second"),
        (struct(x=t.VarcharType(5)), "field x: type varchar"),
        (struct(x=t.VariantType()), "field x: type variant"),
        (struct(x=t.StringType("UTF8_LCASE")), "field x: type string collate"),
        (struct(x=t.ArrayType(t.NullType())), r"field x\[\]: type void"),
        (struct(x=t.MapType(t.IntegerType(), t.StringType())), "field x: map keys of type int"),
        (struct(_x=t.StringType()), "field _x: names that begin with _"),
        (struct(x=struct(a=t.StringType(), A=t.StringType())), "field x: name 'A'"),
        (struct(x=struct()), "field x: an object without fields"),
    ],
)
def test_a_schema_that_json_cannot_be_decoded_into_is_refused(
    schema: t.StructType, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_schema(schema)
