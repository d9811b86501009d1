"""What a program asks of a reader of Spark by the time that it loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_assets.declarations import Place


@dataclass(frozen=True)
class Asked:
    """What a program asks of `spark.read` or `spark.readStream`.

    Attributes:
        format: The name of what is read, as Spark or Databricks calls it.
        path: Where it lies; None where the program does not say.
        schema: Its columns, as the program says them; None where it does not.
        options: All options but the path, as they are written.
        streaming: Whether it is read as a stream.
        place: Where.
    """

    format: str
    path: Any
    schema: Any
    options: Mapping[str, str]
    streaming: bool
    place: Place
