"""The first look: one `from_json`, and a cheap proof that it lost nothing.

Here belongs what every row pays for. A payload passes when each parsed value is exact and the text
holds nothing that the parsed values do not account for; whatever else it is, it is only *suspect*
and goes to the second look. So a rule here may be too strict, never too lenient.

The proof. A key takes two quotation marks, and so does a string. If the text has exactly as many
as the parsed keys and strings need, there is no unknown field, no key that comes twice, no null
that is written out and no escaped quotation mark. What follows the last mark must close the object
at its very end (with nested objects: the `}` of the whole text are counted instead), so nothing
stands behind it. Spark makes strings of other tokens (`5` into "5"): a string that looks like one
counts only if the text has its name followed by a quotation mark. For this name to stand elsewhere
the text needs another key, and more marks than can be saved; names that the schema has twice prove
nothing. What Java replaces shows in the string itself: U+FFFD for bytes that are not UTF-8, `?` for
half of a surrogate pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from kafka_assets.decoding.columns import (
    all_of,
    any_of,
    nullable,
    rebuild,
    timestamp,
    timestamp_ntz,
)
from kafka_assets.decoding.explain import BASE64, DATE, EPOCH
from kafka_assets.decoding.second_look import CORRUPT
from kafka_assets.options import JsonOptions

_QUOTE, _BRACE = '"', "}"


def read_schema(schema: t.StructType) -> t.StructType:
    """What `from_json` reads: types it treats loosely as something that keeps the text."""
    read = rebuild(schema, _read_leaf, lambda name: name)
    assert isinstance(read, t.StructType)
    return read.add(CORRUPT, t.StringType())


def _read_leaf(declared: t.DataType) -> t.DataType:
    if isinstance(declared, t.ByteType):
        return t.IntegerType()  # as a byte, 200 would silently become -56
    if isinstance(declared, t.TimestampType | t.TimestampNTZType | t.DateType | t.BinaryType):
        return t.StringType()
    return declared


@dataclass(frozen=True)
class FirstLook:
    """Typed values of a parsed payload, and the conditions under which they are exact.

    Args:
        text: the payload.
        schema: what the table declares.
        options: the table's choices.
    """

    text: Column
    schema: t.StructType
    options: JsonOptions

    def value(self, parsed: Column, declared: t.DataType | None = None) -> Column:
        """The parsed value in its declared type; null where it does not fit."""
        declared = declared or self.schema
        if isinstance(declared, t.StructType):
            fields = [
                self.value(parsed.getField(f.name), f.dataType).alias(f.name)
                for f in declared.fields
            ]
            if declared is self.schema:
                return F.struct(*fields)
            return F.when(parsed.isNotNull(), F.struct(*fields)) if _converts(declared) else parsed
        if not _converts(declared):
            return parsed
        if isinstance(declared, t.ArrayType):
            inner = declared.elementType
            return F.transform(parsed, lambda x: self.value(x, inner))
        if isinstance(declared, t.MapType):
            inner = declared.valueType
            return F.transform_values(parsed, lambda _, x: self.value(x, inner))
        return self._leaf(parsed, declared)

    def _leaf(self, parsed: Column, declared: t.DataType) -> Column:
        if isinstance(declared, t.TimestampType):
            return timestamp(parsed, self.options)
        if isinstance(declared, t.TimestampNTZType):
            return timestamp_ntz(parsed)
        if isinstance(declared, t.DateType):
            return F.when(parsed.rlike(DATE), parsed.try_cast("date"))
        if isinstance(declared, t.BinaryType):
            return F.when(parsed.rlike(BASE64), F.unbase64(parsed))
        return parsed.try_cast(declared)

    def clean(self, parsed: Column, value: Column) -> Column:
        """The value is the whole payload, exactly. Never null."""
        conditions = [
            *self._exact(parsed, value, self.schema, self._names()),
            self._accounted(parsed),
        ]
        if _has_map(self.schema):
            plain = F.is_valid_utf8(self.text) & ~F.contains(self.text, F.lit("\\u"))
            conditions.append(plain)
        return F.coalesce(all_of(conditions), F.lit(False))

    def _names(self) -> frozenset[str]:
        counted = Counter(_names(self.schema))
        return frozenset(n for n, c in counted.items() if c == 1 and not set(n) & {_QUOTE, "\\"})

    # --- each value is exact -------------------------------------------------------------

    def _exact(
        self, parsed: Column, value: Column, struct: t.StructType, proof: frozenset[str]
    ) -> list[Column]:
        conditions = []
        for f in struct.fields:
            before, after = parsed.getField(f.name), value.getField(f.name)
            name = f.name if f.name in proof else None
            conditions += [
                before.isNull() | condition
                for condition in self._exact_value(before, after, f.dataType, name, proof)
            ]
        return conditions

    def _exact_value(
        self,
        before: Column,
        after: Column,
        declared: t.DataType,
        name: str | None,
        proof: frozenset[str],
    ) -> list[Column]:
        if isinstance(declared, t.StructType):
            return self._exact(before, after, declared, proof)
        if isinstance(declared, t.ArrayType):
            return self._exact_elements(before, after, declared.elementType)
        if isinstance(declared, t.MapType):
            keys = F.map_keys(before)
            values = F.map_values(before), F.map_values(after)
            distinct = F.size(F.array_distinct(keys)) == F.size(keys)
            return [distinct, *self._exact_elements(*values, declared.valueType)]
        if isinstance(declared, t.StringType):
            return [*self._is_string(before, name), *self._not_replaced(before)]
        if isinstance(declared, t.DecimalType):
            return [self._is_whole_decimal(before, name)]
        if isinstance(declared, t.BinaryType):
            return [after.isNotNull(), *self._is_string(before, name)]
        if isinstance(declared, t.FloatType | t.DoubleType):
            return [self._in_range(before)]
        return [after.isNotNull()] if _converts(declared) else []

    def _exact_elements(self, before: Column, after: Column, inner: t.DataType) -> list[Column]:
        nothing = F.lit(None)
        if not self._exact_value(nothing, nothing, inner, None, frozenset()):
            return []
        if not _converts(inner):
            return [F.forall(before, lambda x: self._exact_element(x, x, inner))]
        pairs = F.arrays_zip(before.alias("b"), after.alias("a"))
        return [
            F.forall(
                pairs,
                lambda pair: self._exact_element(pair.getField("b"), pair.getField("a"), inner),
            )
        ]

    def _exact_element(self, before: Column, after: Column, inner: t.DataType) -> Column:
        conditions = self._exact_value(before, after, inner, None, frozenset())
        return before.isNull() | all_of(conditions)

    def _is_string(self, parsed: Column, name: str | None) -> list[Column]:
        number = (parsed >= F.lit("-")) & (parsed < F.lit(":"))
        other = any_of(
            [
                number,
                F.startswith(parsed, F.lit("{")),
                F.startswith(parsed, F.lit("[")),
                parsed == "true",
                parsed == "false",
            ]
        )
        if name is None:
            return [~other]
        named = [F.contains(self.text, F.lit(f'"{name}":{gap}"')) for gap in ("", " ")]
        return [~other | any_of(named)]

    def _not_replaced(self, parsed: Column) -> list[Column]:
        return [
            ~F.contains(parsed, F.lit("\ufffd")),
            ~F.contains(parsed, F.lit("?")) | ~F.contains(self.text, F.lit("\\u")),
        ]

    def _is_whole_decimal(self, parsed: Column, name: str | None) -> Column:
        """The value's text begins with that in the payload: nothing but zeros was added.

        Spark rounds, and drops commas inside quotes.
        """
        if name is None:
            return F.lit(False)
        token = self._token(name)
        digits = F.btrim(token, F.lit(_QUOTE))
        quotes = F.startswith(token, F.lit(_QUOTE)) == F.endswith(token, F.lit(_QUOTE))
        begins = F.startswith(parsed.cast("string"), digits) & ~F.endswith(digits, F.lit("."))
        return begins & quotes & (digits != "")

    def _token(self, name: str) -> Column:
        """What stands behind the last `"name":`, up to a comma or a closing bracket."""
        behind = F.substring_index(self.text, f'"{name}":', -1)
        return F.btrim(F.substring_index(behind, ",", 1), F.lit(" \t\n\r}]"))

    def _in_range(self, number: Column) -> Column:
        # A zero may be what is left of 1e-999, or of very many digits.
        small = [F.contains(self.text, F.lit(sign)) for sign in ("e-", "E-", "0" * 40)]
        return (F.abs(number) < F.lit(float("inf"))) & ((number != 0) | ~any_of(small))

    # --- nothing else is in the text -----------------------------------------------------

    def _accounted(self, parsed: Column) -> Column:
        """The text has the quotation marks and braces of the parsed values, and no more."""
        tail = F.substring_index(self.text, _QUOTE, -1)
        end = F.rtrim(tail, F.lit(" \t\n\r"))
        if _is_flat(self.schema):
            closed = (F.instr(end, _BRACE) == F.octet_length(end)) & (F.octet_length(end) > 0)
        else:
            braces = F.octet_length(self.text) - F.octet_length(F.replace(self.text, F.lit(_BRACE)))
            closed = F.endswith(end, F.lit(_BRACE)) & (braces == 1 + self._braces(parsed))
        quotes = self._quotes(parsed, self.schema)
        exactly = self._has_quotes(quotes, tail)
        if _is_flat(self.schema) or self.options.unknown_fields == "ignore":
            # A null that is written out in the wrong place is an unknown field without a value.
            exactly |= self._has_quotes(quotes + self._null_quotes(parsed, self.schema), tail)
        return closed & exactly

    def _has_quotes(self, count: Column, tail: Column) -> Column:
        """The text up to mark number `count`, that mark, and the tail are the whole text."""
        head = F.call_function("substring_index", self.text, F.lit(_QUOTE), count)
        return F.octet_length(head) + 1 + F.octet_length(tail) == F.octet_length(self.text)

    def _quotes(self, parsed: Column, declared: t.DataType, name: str = "") -> Column:
        """Quotation marks of a value that is not null."""
        if isinstance(declared, t.StructType):
            return _sum(
                _if_present(
                    parsed.getField(f.name), lambda v, f=f: 2 + self._quotes(v, f.dataType, f.name)
                )  # type: ignore[misc]
                for f in declared.fields
            )
        if isinstance(declared, t.ArrayType):
            inner = declared.elementType
            return _total(parsed, lambda x: self._quotes(x, inner)) if _quoted(inner) else F.lit(0)
        if isinstance(declared, t.MapType):
            inner = declared.valueType
            keys = 2 * F.size(parsed)
            return keys + _total(F.map_values(parsed), lambda x: self._quotes(x, inner))
        if isinstance(declared, t.DecimalType):
            return F.when(F.startswith(self._token(name), F.lit(_QUOTE)), 2).otherwise(0)
        if isinstance(declared, t.TimestampType) and self.options.epoch_timestamps != "dead_letter":
            return F.when(parsed.rlike(EPOCH), 0).otherwise(2)
        return F.lit(2 if _quoted(declared) else 0)

    def _null_quotes(self, parsed: Column, struct: t.StructType) -> Column:
        """Quotation marks of the keys of nulls that are written out."""
        marks = []
        names = self._names()
        for f in struct.fields:
            value = parsed.getField(f.name)
            if f.name in names:
                written = [
                    F.contains(self.text, F.lit(f'"{f.name}":{gap}null')) for gap in ("", " ")
                ]
                marks.append(F.when(value.isNull() & any_of(written), 2).otherwise(0))
            if isinstance(f.dataType, t.StructType):
                inner = f.dataType
                marks.append(_if_present(value, lambda v, i=inner: self._null_quotes(v, i)))  # type: ignore[misc]
        return _sum(marks)

    def _braces(self, parsed: Column, declared: t.DataType | None = None) -> Column:
        """Closing braces inside a value that is not null, its own left out."""
        declared = declared or self.schema
        if isinstance(declared, t.StructType):
            return _sum(
                _if_present(parsed.getField(f.name), lambda v, f=f: self._own_braces(v, f.dataType))  # type: ignore[misc]
                for f in declared.fields
                if not _is_flat_value(f.dataType)
            )
        inner = declared.elementType if isinstance(declared, t.ArrayType) else declared.valueType  # type: ignore[attr-defined]
        if _is_flat_value(inner):
            return F.lit(0)
        values = parsed if isinstance(declared, t.ArrayType) else F.map_values(parsed)
        return _total(values, lambda x: self._own_braces(x, inner))

    def _own_braces(self, parsed: Column, declared: t.DataType) -> Column:
        own = isinstance(declared, t.StructType | t.MapType)
        return int(own) + self._braces(parsed, declared)


def _sum(parts: Iterable[Column]) -> Column:
    return reduce(add, parts, F.lit(0))


def _if_present(value: Column, count: Callable[[Column], Column]) -> Column:
    return F.when(value.isNotNull(), count(value)).otherwise(0)


def _total(values: Column, count: Callable[[Column], Column]) -> Column:
    return F.aggregate(values, F.lit(0), lambda sum_, x: sum_ + _if_present(x, count))


def _converts(declared: t.DataType) -> bool:
    """Some leaf is read as another type than the declared one."""
    return rebuild(declared, _read_leaf, lambda n: n) != nullable(declared)


def _quoted(declared: t.DataType) -> bool:
    """Values of the type have quotation marks, or may have."""
    if isinstance(declared, t.ArrayType):
        return _quoted(declared.elementType)
    return not isinstance(declared, t.NumericType | t.BooleanType) or isinstance(
        declared, t.DecimalType
    )


def _is_flat_value(declared: t.DataType) -> bool:
    if isinstance(declared, t.ArrayType):
        return _is_flat_value(declared.elementType)
    return not isinstance(declared, t.StructType | t.MapType)


def _is_flat(schema: t.StructType) -> bool:
    return all(_is_flat_value(field.dataType) for field in schema.fields)


def _has_map(declared: t.DataType) -> bool:
    if isinstance(declared, t.StructType):
        return any(_has_map(field.dataType) for field in declared.fields)
    if isinstance(declared, t.ArrayType):
        return _has_map(declared.elementType)
    return isinstance(declared, t.MapType)


def _names(declared: t.DataType) -> Iterator[str]:
    if isinstance(declared, t.StructType):
        for field in declared.fields:
            yield field.name
            yield from _names(field.dataType)
    elif isinstance(declared, t.ArrayType):
        yield from _names(declared.elementType)
    elif isinstance(declared, t.MapType):
        yield from _names(declared.valueType)
