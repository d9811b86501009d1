"""Delta tables as they lie in the lake: their state and their rows; a commit is `commits`'.

Logs are read with deltalake, which needs no Spark; what operations change, and our own bookkeeping
tables, are written with it too where it can, so that a repair starts no JVM. How a table comes to
be is `creating`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafka_assets.errors import LakeError
from kafka_assets.streaming.commits import Commit, commit_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    OpenSpark = Callable[[], SparkSession]
    """Gives a session, and starts it when there is none."""


CONSTRAINT = "delta.constraints."
"""Properties of this name hold the conditions that Delta holds every row to."""


class LakeTable:
    """A Delta table that exists, as its log says. A snapshot: open it again to see newer commits.

    Args:
        path: Where the table lies.
    """

    def __init__(self, path: str, log: DeltaTable) -> None:
        self.path = path
        self._log = log
        self.version = log.version()
        metadata = log.metadata()
        self.table_id = str(metadata.id)
        self.properties: dict[str, str] = dict(metadata.configuration)
        self.partition_columns: list[str] = list(metadata.partition_columns)

    @classmethod
    def open(cls, path: str) -> LakeTable | None:
        """The table at a path, or None when there is none.

        Raises:
            LakeError: There is something that cannot be read as a Delta table.
        """
        try:
            return cls(path, DeltaTable(path))
        except TableNotFoundError:
            return None
        except Exception as error:
            if "No such file or directory" in str(error) or "not found" in str(error).lower():
                return None
            raise LakeError(
                f"{path} cannot be read as a Delta table: {error}",
                fix="check the path and its permissions; nothing was changed",
            ) from error

    @classmethod
    def existing(cls, path: str) -> LakeTable:
        """The table at a path where there must be one.

        Raises:
            LakeError: There is none.
        """
        table = cls.open(path)
        if table is None:
            raise LakeError(
                f"{path} holds no Delta table any more", fix="restore it, or run its table again"
            )
        return table

    @property
    def schema(self) -> StructType:
        """The columns as Spark has them."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self._log.schema().to_json()))

    @property
    def comment(self) -> str | None:
        """Its description."""
        return self._log.metadata().description

    @property
    def column_comments(self) -> dict[str, str]:
        """Column -> comment, for those that have one."""
        found = {f.name: f.metadata.get("comment") for f in self._log.schema().fields}
        return {name: str(about) for name, about in found.items() if about}

    @property
    def columns(self) -> dict[str, str]:
        """Column name -> type, in Spark's words."""
        return {f.name: f.dataType.simpleString() for f in self.schema.fields}

    @property
    def rows(self) -> int:
        """Rows of the table, from the statistics of its files."""
        counts = self._log.get_add_actions(flatten=True).column("num_records").to_pylist()
        return sum(count or 0 for count in counts)

    @property
    def data_version(self) -> str:
        """Names the table's content: its id and the last version that changed data."""
        last = self.last_change
        return f"{self.table_id}:{0 if last is None else last.version}"

    @property
    def last_change(self) -> Commit | None:
        """The last commit that changed data."""
        for limit in (20, None):
            for commit in self.commits(limit=limit):
                if commit.changed_data:
                    return commit
        return None

    @property
    def changed_at(self) -> datetime | None:
        """When data last changed (UTC); None when it never did."""
        last = self.last_change
        return None if last is None else last.at

    def transaction(self, query_id: str) -> int:
        """The last batch of a query that the table has, or -1."""
        version = self._log.transaction_version(query_id)
        return -1 if version is None else int(version)

    def sample(
        self, columns: tuple[str, ...], where: Mapping[str, Any], most: int
    ) -> tuple[dict[str, Any], ...]:
        """A few rows whose columns have these values."""
        import pyarrow.dataset as ds

        condition = ds.scalar(True)
        for name, value in where.items():
            condition = condition & (ds.field(name) == value)
        found = self._log.to_pyarrow_dataset().scanner(columns=list(columns), filter=condition)
        return tuple(found.head(most).to_pylist())

    def read(self, columns: tuple[str, ...], condition: Any = None) -> Any:
        """Rows as an Arrow table, without Spark.

        Args:
            columns: The columns wanted.
            condition: A condition of `pyarrow.dataset`; None for all rows.
        """
        return self._log.to_pyarrow_dataset().to_table(columns=list(columns), filter=condition)

    @property
    def arrow_schema(self) -> Any:
        """The columns as an Arrow schema."""
        return self._log.to_pyarrow_dataset().schema

    def set_properties(self, properties: Mapping[str, str], spark: OpenSpark) -> None:
        """Set table properties.

        Args:
            properties: Name -> value.
            spark: Gives a session, which is asked for where only Spark can write the table.
        """
        try:
            with _writable(self):
                self._log.alter.set_table_properties(dict(properties), raise_if_not_exists=False)
        except OnlySparkWrites:
            pairs = ", ".join(f"{sql_text(n)} = {sql_text(v)}" for n, v in properties.items())
            quoted = self.path.replace("`", "``")
            spark().sql(f"ALTER TABLE delta.`{quoted}` SET TBLPROPERTIES ({pairs})")
            self._log.update_incremental()

    def count(self, condition: Any) -> int:
        """Rows for which a condition of `pyarrow.dataset` holds."""
        return int(self._log.to_pyarrow_dataset().count_rows(filter=condition))

    def delete(self, predicate: str | None, spark: OpenSpark | None = None) -> None:
        """Remove the rows for which a condition holds, or all; for tables that no stream reads.

        Args:
            predicate: The condition, in SQL.
            spark: Gives a session, which is asked for where only Spark can write the table.

        Raises:
            LakeError: Only Spark can write the table, and no session was offered.
        """
        try:
            with _writable(self):
                self._log.delete(predicate)
        except OnlySparkWrites:
            if spark is None:
                raise
            where = "" if predicate is None else f" WHERE {predicate}"
            quoted = self.path.replace("`", "``")
            # The path is quoted, and the condition is ours.
            spark().sql(f"DELETE FROM delta.`{quoted}`{where}").collect()  # noqa: S608
            self._log.update_incremental()

    def append_nothing(
        self, *, info: Mapping[str, Any], transaction: tuple[str, int], spark: OpenSpark
    ) -> None:
        """Make a commit without rows, that only says something.

        Args:
            info: What it carries in `userMetadata`.
            transaction: Application id and version that it records, for exactly once.
            spark: Gives a session, which is asked for where only Spark can write the table.
        """
        try:
            self.append(self.arrow_schema.empty_table(), info=info, transaction=transaction)
        except OnlySparkWrites:
            none = spark().read.format("delta").load(self.path).limit(0)
            writer = none.write.format("delta").mode("append")
            writer = writer.option("userMetadata", json.dumps(info))
            app, version = transaction
            writer.option("txnAppId", app).option("txnVersion", version).save(self.path)
            self._log.update_incremental()

    def append(
        self, rows: Any, *, info: Mapping[str, Any], transaction: tuple[str, int] | None = None
    ) -> None:
        """Commit rows without Spark; no rows at all make a commit that only says something.

        Args:
            rows: An Arrow table with the table's columns.
            info: What the commit carries in `userMetadata`.
            transaction: Application id and version that the commit records, for exactly once.

        Raises:
            LakeError: Only Spark can write the table.
        """
        from deltalake import (
            CommitProperties,
            PostCommitHookProperties,
            Transaction,
            write_deltalake,
        )

        with _writable(self):
            write_deltalake(
                self._log,
                rows,
                mode="append",
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": json.dumps(info)},
                    app_transactions=[Transaction(*transaction)] if transaction else None,
                ),
                # Checkpoints and the cleaning of logs are Spark's: it knows the properties.
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=False, cleanup_expired_logs=False
                ),
            )

    def commits(self, *, after: int = -1, limit: int | None = None) -> list[Commit]:
        """Commits beyond a version, newest first."""
        if limit is None and after >= 0:
            limit = self.version - after
            if limit <= 0:
                return []
        found = (commit_of(entry) for entry in self._log.history(limit))
        return [commit for commit in found if commit.version > after]


class OnlySparkWrites(LakeError):
    """A table has a Delta feature with which deltalake does not write."""


@contextmanager
def _writable(table: LakeTable) -> Iterator[None]:
    """Say in our words that a table has a feature with which deltalake does not write."""
    path = table.path
    if any(name.startswith(CONSTRAINT) for name in table.properties):
        # Spark's SQL is not always deltalake's.
        raise OnlySparkWrites(
            f"{path} has constraints, which only Spark can hold to; nothing was changed",
            fix=f"ALTER TABLE delta.`{path}` DROP CONSTRAINT, and again",
        )
    try:
        yield
    except DeltaError as error:
        if "nsupported table features" not in str(error):
            raise
        raise OnlySparkWrites(
            f"{path} has a Delta feature with which only Spark can write it (clustering is one): "
            f"{first_line(error)}; nothing was changed",
            fix=f"ALTER TABLE delta.`{path}` CLUSTER BY NONE, then DROP FEATURE clustering; and "
            "again",
        ) from error


def sql_text(value: str) -> str:
    """A text as a literal of Spark's SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def first_line(error: BaseException) -> str:
    """The first line of an engine's message, which is long and holds a stack trace."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0][:500] if lines else type(error).__name__
