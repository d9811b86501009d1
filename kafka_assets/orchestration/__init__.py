"""Declarations -> Dagster: assets, checks, sensors, automation, and their assembly.

`build.build_defs` is the only way in. What a run does to a table is `streaming`'s; this package
starts runs, and tells Dagster what they did.
"""
