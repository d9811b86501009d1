"""The table in docs/reliability.md of what a round of the soak saw."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kafka_assets_tests.reliability.judge import Verdict
from kafka_assets_tests.reliability.rounds import FULL, Past
from kafka_assets_tests.reliability.windows import WINDOWS

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


@dataclass(frozen=True)
class Result:
    """What a round did and saw.

    Attributes:
        past: What it did.
        limit: Minutes for the strokes of one sitting, without what comes before and after them.
        planned: How many strokes it was to deal.
        verdict: The judge's, at the end.
    """

    past: Past
    limit: float
    planned: int
    verdict: Verdict

    @property
    def cut(self) -> bool:
        """Whether the time limit ended it."""
        return self.past.done.total() < self.planned

    @property
    def command(self) -> str:
        """The command that runs such a round."""
        amounts, again = self.past.amounts, self.past.sittings > 1
        kills = "" if amounts == FULL else f" KILLS={amounts.random}"
        minutes = f" MINUTES={self.limit:.0f}" if self.cut or again else ""
        return f"make soak{kills}{minutes}"


def write_table(result: Result) -> None:
    """Put a round's table into the page, in the place of the last one of its kind."""
    kind = "full" if result.past.amounts == FULL else "short"
    begin, end = f"<!-- {kind} round -->", f"<!-- end of {kind} round -->"
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(begin, 1)
    _, tail = rest.split(end, 1)
    PAGE.write_text(f"{head}{begin}\n{_table(result)}\n{end}{tail}", encoding="utf-8")


def _table(result: Result) -> str:
    past = result.past
    assert past.ledger is not None
    rows = [
        *[_row(f"SIGKILL aimed at `{w}`", w, past) for w in WINDOWS],
        _row("SIGKILL at a random moment", "random kill", past),
        _row("SIGKILL of the broker while events are sent and a run reads", "broker kill", past),
        _row("SIGSTOP of the broker for 2 to 15 s, likewise", "broker pause", past),
        _row("Two processes start the same tables at once", "double start", past),
    ]
    transactions = past.ledger.transactions
    rows.append(
        f"| Kafka transactions of 50 events | {sum(transactions.values())} | "
        f"{transactions['aborted']} aborted, {transactions['committed']} committed |"
    )
    verdict = result.verdict
    cut = f" Its time limit ended it after {past.done.total()} of {result.planned} strokes."
    sittings = f" in {past.sittings} sittings" if past.sittings > 1 else ""
    faults = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in verdict.faults.items())
    return "\n".join(
        [
            f"`{result.command}`, {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, "
            f"{past.seconds / 60:.0f} minutes{sittings}.{cut if result.cut else ''}",
            "",
            "| What was done | Times | What was seen |",
            "| --- | ---: | --- |",
            *rows,
            f"| Events acknowledged by the broker | {verdict.acknowledged:,} | "
            f"{verdict.kept:,} in silver, {verdict.dead:,} dead letters |",
            f"| Records that the Kafka sink, at least once, sent again | {verdict.sent_again} | "
            "none lost |",
            f"| Versions of silver read meanwhile | {past.versions} | none torn |",
            "",
            f"Found by the judge at the end: **{faults}**.",
        ]
    )


def _row(what: str, fault: str, past: Past) -> str:
    seen = past.seen.get(fault, Counter())
    found = ", ".join(f"{name} {times}" for name, times in seen.most_common())
    return f"| {what} | {past.done[fault]} | {found or '-'} |"
