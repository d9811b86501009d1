"""One run of one table: from its upstream's new rows to its commit and its report.

`run.run_table` is the only way in. Nothing below this package knows of Dagster.
"""
