"""Other ways to write the declarations that pipelines are made of.

What is written here ends as the same frozen values as in Python; how they fit together is decided
in `graph`. `sql` is for SQL files, `programs` for programs of Databricks' DLT and of Spark
Declarative Pipelines. The word `program` takes either in where it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka_assets.declarations import Topic

__all__ = ["program"]


def program(
    path: str | Path,
    *,
    layers: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    tables: Mapping[str, str] | None = None,
    topics: Sequence[Topic] = (),
    schemas: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> Any:
    """Take in a program of Databricks' DLT or of Spark Declarative Pipelines as it is.

    Written at the top level of a pipeline module, it declares all that the program declares.

    Args:
        path: The program: a `.py` file, a notebook exported as source, an `.ipynb` notebook, a
            folder of these and of `.sql` files, or a `.sql` file. A relative path is relative to
            the calling file.
        layers: Table name -> `bronze`, `silver` or `gold`, where the layer that is derived (reads
            a topic or files: bronze; aggregates or is computed whole: gold; else silver) is not
            meant.
        conf: What `spark.conf.get` and `dbutils.widgets.get` answer, and what stands for `${name}`
            in SQL, name -> value.
        tables: Tables, or paths of tables, that the program reads and does not declare -> the
            name in this graph, such as that of a `ka.external_table`.
        topics: Topics declared elsewhere in this code location that the program reads too.
        schemas: Paths of files that the program reads without a schema, as it writes them -> their
            columns as DDL, such as `"id BIGINT, at TIMESTAMP"`, or the name of a schema file.
        names: What tables that share the last part of their names are called, such as
            `{"silver.orders": "orders"}`; by default, by as many parts as keep them apart.

    Returns:
        What was loaded, with `declarations` and with `notes` on all that has no counterpart.

    Raises:
        ProgramRefused: Something in the program cannot be mapped; every such thing with its line.
        DeclarationError: A table of the program cannot be declared.
    """
    file = Path(path)
    if not file.is_absolute():
        file = Path(sys._getframe(1).f_code.co_filename).resolve().parent / file
    from kafka_assets.frontends.programs import load_program, load_sql_file

    load: Callable[..., Any] = load_sql_file if file.suffix == ".sql" else load_program
    return load(
        file,
        layers=layers,
        conf=conf,
        tables=tables,
        topics=topics,
        schemas=schemas,
        names=names,
    )
