"""The errors that people see.

Every error that the product raises on purpose is one of these. Each names the thing (table,
topic, file, offset), the actual value, what was kept safe, and the command or edit that repairs
it. Errors of Spark, Kafka or Dagster are translated where they arise, not here.
"""

from __future__ import annotations

from dataclasses import dataclass


class KafkaAssetsError(Exception):
    """Base of all errors raised on purpose.

    Args:
        what: What happened, with names and actual values, in one or two sentences.
        fix: What to do about it: an edit or a command. None when nothing can be done but wait.
    """

    def __init__(self, what: str, *, fix: str | None = None) -> None:
        super().__init__(what if fix is None else f"{what}\nTo fix: {fix}")
        self.what = what
        self.fix = fix


class DeclarationError(KafkaAssetsError):
    """A declaration is wrong; raised while definitions load, before anything runs."""

    def __init__(self, subject: str, where: str, what: str, *, fix: str) -> None:
        super().__init__(f"{subject} ({where}): {what}", fix=fix)
        self.subject = subject
        self.where = where


@dataclass(frozen=True)
class Problem:
    """Something in a program that cannot be mapped.

    Attributes:
        where: File and line.
        what: What it is.
        fix: What to do about it.
    """

    where: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n    {self.fix}"


class ProgramRefused(KafkaAssetsError):
    """A program that was written for another product cannot be mapped as it is.

    Args:
        program: Its file.
        problems: All that cannot be mapped, each with its line.
    """

    def __init__(self, program: str, problems: tuple[Problem, ...]) -> None:
        count = f"{len(problems)} thing{'s' * (len(problems) != 1)}"
        listed = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{program}: {count} in it cannot be mapped\n{listed}")
        self.program = program
        self.problems = problems


class SettingsError(KafkaAssetsError):
    """A setting has a value that cannot be used."""


class PlanError(KafkaAssetsError):
    """A table's function does not fit its inputs; found on empty frames, before any batch."""


class SourceError(KafkaAssetsError):
    """A topic or the broker cannot be read; `transient` says whether a retry may help."""

    def __init__(self, what: str, *, fix: str | None = None, transient: bool = False) -> None:
        super().__init__(what, fix=fix)
        self.transient = transient


class LakeError(KafkaAssetsError):
    """A path of the lake cannot be read or written, or holds something else than expected."""


class FenceRefused(KafkaAssetsError):
    """Checkpoint, table and source do not fit together; running would lose or double rows.

    Args:
        state: Short snake_case name of the state that was found.
    """

    def __init__(self, state: str, what: str, *, fix: str) -> None:
        super().__init__(f"[{state}] {what}", fix=fix)
        self.state = state


class PlaceChanged(KafkaAssetsError):
    """A table is declared in another place than where its rows lie; nothing was done."""


class LeaseHeld(KafkaAssetsError):
    """Another run is writing this table now."""


class RunFailed(KafkaAssetsError):
    """A run stopped because of the engine; batches committed before it stay committed."""


class ExpectationFailed(KafkaAssetsError):
    """A batch broke an `expect_or_fail` rule; nothing of that batch was committed.

    Args:
        rules: For each broken rule its count of failing rows and the first failing coordinates.
    """

    def __init__(self, what: str, *, rules: dict[str, dict[str, object]], fix: str) -> None:
        super().__init__(what, fix=fix)
        self.rules = rules


class DeadShareExceeded(KafkaAssetsError):
    """Too large a share of a batch would have become dead letters; nothing of it was committed."""


class OperationRefused(KafkaAssetsError):
    """An operation on a table cannot be done, or would lose rows that nobody agreed to lose."""


class JarsMissing(KafkaAssetsError):
    """Jars of Spark's connectors or of the embedded broker are not on this machine."""


class BrokerError(KafkaAssetsError):
    """The embedded broker could not be started, reached or stopped."""
