"""Choices that belong to one table's declaration and that its run carries out.

Frozen values without behaviour, kept apart so that declarations need neither Spark nor Dagster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

UnknownFields = Literal["ignore", "dead_letter"]
MissingRequired = Literal["dead_letter", "null"]
ZonelessTimestamps = Literal["utc", "dead_letter"]
EpochTimestamps = Literal["dead_letter", "seconds", "millis"]
Tombstones = Literal["dead_letter", "keep"]


@dataclass(frozen=True)
class JsonOptions:
    """How strictly a table's JSON payload is decoded.

    Attributes:
        unknown_fields: A field that the schema does not have: `ignore` it (bronze keeps the
            bytes), or make the row a dead letter.
        missing_required: A field that the schema declares with `nullable: false` is missing or
            null: the row is a dead letter, or the field is `null`.
        zoneless_timestamps: A timestamp without a zone is read as UTC, or is a dead letter.
        epoch_timestamps: An integer in a timestamp field counts seconds or milliseconds since
            1970-01-01 UTC, or, because the unit cannot be known, is a dead letter.
        tombstones: A record without a value is a dead letter, or is kept: as a row of nulls whose
            column `_tombstone` is true, and that no rule looks at.

    Raises:
        ValueError: A choice does not exist.
    """

    unknown_fields: UnknownFields = "ignore"
    missing_required: MissingRequired = "dead_letter"
    zoneless_timestamps: ZonelessTimestamps = "utc"
    epoch_timestamps: EpochTimestamps = "dead_letter"
    tombstones: Tombstones = "dead_letter"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name}={value!r}: choose one of {', '.join(choices)}")


_CHOICES: dict[str, tuple[str, ...]] = {
    "unknown_fields": get_args(UnknownFields),
    "missing_required": get_args(MissingRequired),
    "zoneless_timestamps": get_args(ZonelessTimestamps),
    "epoch_timestamps": get_args(EpochTimestamps),
    "tombstones": get_args(Tombstones),
}
