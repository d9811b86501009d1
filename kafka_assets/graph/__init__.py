"""Declarations -> one validated graph of topics and tables.

Everything that can be known without Spark about how declarations fit together is checked here,
and every table gets its place in the lake. Whether a function fits its inputs is `streaming.plan`'s
to find.
"""

from __future__ import annotations

from kafka_assets.graph.build import build_graph, pipeline_modules
from kafka_assets.graph.model import RESERVED, Files, Graph, Input, Node, Outside, Source

__all__ = [
    "RESERVED",
    "Files",
    "Graph",
    "Input",
    "Node",
    "Outside",
    "Source",
    "build_graph",
    "pipeline_modules",
]
