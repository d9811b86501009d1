"""Programs of Databricks' DLT and of Spark Declarative Pipelines, loaded without a change to them.

A program is executed with stand-ins for `dlt`, `pyspark.pipelines`, `spark` and `dbutils`, which
record what it declares (`words`, `session`, `databricks`). Each of its functions is then called
once with recording frames (`tracing`), which shows what it really reads. From both come the same
declarations that an author writes by hand (`mapping`). In a run, the function is called with real
frames (`running`). Nothing here starts Spark.
"""

from __future__ import annotations

from kafka_assets.frontends.programs.load import load_program
from kafka_assets.frontends.programs.loaded import LoadedProgram
from kafka_assets.frontends.programs.sql_file import load_sql_file

__all__ = ["LoadedProgram", "load_program", "load_sql_file"]
