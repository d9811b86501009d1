"""Sending code to where the package is not importable: Spark's workers and Connect servers.

On a classic session only the function that explains undecodable payloads travels; on Spark Connect
the whole batch does.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

from kafka_assets import options
from kafka_assets.decoding import explain
from kafka_assets.graph import Node
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
    from kafka_assets.declarations import Author

S = TypeVar("S")


def _views_above(node: Node) -> list[Author]:
    """The functions of the temporary views that a table reads, directly or through others."""
    views = [u for u in node.upstreams.values() if isinstance(u, Node) and u.is_view]
    return [function for v in views for function in (v.table.function, *_views_above(v))]


def sent(spec: S, node: Node) -> S:
    """Mark all that a spec needs to be pickled by value, and give the spec back.

    Args:
        spec: What the batch gets.
        node: Its table; the package of the author's function is sent too.
    """
    from pyspark import cloudpickle

    functions = [node.table.function, *_views_above(node)]
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
    for function in functions:
        own = function.__module__.partition(".")[0]
        if own not in ("kafka_assets", "pyspark"):
            modules += [m for name, m in sys.modules.items() if name.partition(".")[0] == own]
        elif function.__module__ in sys.modules:
            modules.append(sys.modules[function.__module__])
    for module in dict.fromkeys(modules):
        cloudpickle.register_pickle_by_value(module)
    return spec
