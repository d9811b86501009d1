"""Sending code to where the package is not importable: Spark's workers and Connect servers.

On a classic session only the function that explains undecodable payloads travels; on Spark Connect
the whole batch does.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

from kafka_assets import options
from kafka_assets.decoding import explain
from kafka_assets.streaming import (
    batch,
    changes,
    dead_letters,
    expectations,
    isolation,
    merge,
    windows,
)
from kafka_assets.streaming import spec as spec_module

if TYPE_CHECKING:
    from kafka_assets.graph import Node

S = TypeVar("S")


def sent(spec: S, node: Node) -> S:
    """Mark all that a spec needs to be pickled by value, and give the spec back.

    Args:
        spec: What the batch gets.
        node: Its table; the package of the author's function is sent too.
    """
    from pyspark import cloudpickle

    own = node.table.function.__module__.partition(".")[0]
    modules = [
        batch,
        windows,
        changes,
        merge,
        dead_letters,
        expectations,
        isolation,
        spec_module,
        explain,
        options,
    ]
    if own not in ("kafka_assets", "pyspark"):
        modules += [m for name, m in sys.modules.items() if name.partition(".")[0] == own]
    else:
        modules.append(sys.modules[node.table.function.__module__])
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    return spec
