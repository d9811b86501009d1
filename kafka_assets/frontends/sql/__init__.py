"""Pipelines written as `.sql` files: statements in, declarations out.

`text` is a file and the places in it, and `values` puts values there; `parse`, `parse_columns`,
`parse_table` and `parse_changes` make `statements` of it. `query`, `relations` and `reading` find
what a SELECT reads, `using` makes a `function` of it, which runs on DataFrames. `properties` are
what TBLPROPERTIES say; `declare` and `table` make the declarations. Nothing here imports Spark or
Dagster.
"""

from __future__ import annotations

from kafka_assets.frontends.sql.declare import Loaded, load_files, load_sql

__all__ = ["Loaded", "load_files", "load_sql"]
