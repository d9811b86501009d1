"""How often the soak does what, and the table of what it saw in docs/reliability.md."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kafka_assets_tests.reliability.judge import Verdict
from kafka_assets_tests.reliability.ledger import Ledger
from kafka_assets_tests.reliability.windows import WINDOWS

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


@dataclass(frozen=True)
class Amounts:
    """How often each fault comes.

    Attributes:
        aimed: Kills aimed at each window.
        random: Kills at random moments.
        broker_kills: SIGKILLs of the broker.
        broker_pauses: SIGSTOPs of the broker, for 2 to 15 seconds.
        double_starts: Two processes that start the same tables at once.
        transactions: Kafka transactions of 50 events, 30 % of them aborted.
        events: Acknowledged events, at least.
    """

    aimed: int
    random: int
    broker_kills: int
    broker_pauses: int
    double_starts: int
    transactions: int
    events: int

    @property
    def strokes(self) -> int:
        """Strokes that send events."""
        kills = self.aimed * len(WINDOWS) + self.random
        return kills + self.broker_kills + self.broker_pauses + self.double_starts

    @property
    def events_per_stroke(self) -> int:
        """Events that each stroke sends."""
        return self.events // self.strokes

    def scaled(self, kills: int) -> Amounts:
        """The same in proportion to so many random kills, with each fault at least once."""
        share = kills / FULL.random
        return Amounts(
            aimed=max(1, round(FULL.aimed * share)),
            random=kills,
            broker_kills=max(1, round(FULL.broker_kills * share)),
            broker_pauses=max(1, round(FULL.broker_pauses * share)),
            double_starts=max(1, round(FULL.double_starts * share)),
            transactions=max(50, 50 * round(FULL.transactions * share / 50)),
            events=max(10_000, round(FULL.events * share)),
        )


FULL = Amounts(
    aimed=10,
    random=200,
    broker_kills=20,
    broker_pauses=10,
    double_starts=40,
    transactions=1000,
    events=1_050_000,
)


@dataclass(frozen=True)
class Result:
    """What a round did and saw; `planned` is how many strokes it was to deal, and `limit` how long.

    The limit is in minutes, and does not count what comes before the strokes and after.
    """

    amounts: Amounts
    limit: float
    planned: int
    done: Counter[str]
    seen: Mapping[str, Counter[str]]
    verdict: Verdict
    ledger: Ledger
    versions: int
    minutes: float

    @property
    def command(self) -> str:
        """The command that runs such a round."""
        kills = "" if self.amounts == FULL else f" KILLS={self.amounts.random}"
        cut = sum(self.done.values()) < self.planned
        return f"make soak{kills}{f' MINUTES={self.limit:.0f}' if cut else ''}"


def write_table(result: Result) -> None:
    """Put a round's table into the page, in the place of the last one of its kind."""
    kind = "full" if result.amounts == FULL else "short"
    begin, end = f"<!-- {kind} round -->", f"<!-- end of {kind} round -->"
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(begin, 1)
    _, tail = rest.split(end, 1)
    PAGE.write_text(f"{head}{begin}\n{_table(result)}\n{end}{tail}", encoding="utf-8")


def _table(result: Result) -> str:
    rows = [
        *[_row(f"SIGKILL aimed at `{w}`", w, result) for w in WINDOWS],
        _row("SIGKILL at a random moment", "random kill", result),
        _row("SIGKILL of the broker while events are sent and a run reads", "broker kill", result),
        _row("SIGSTOP of the broker for 2 to 15 s, likewise", "broker pause", result),
        _row("Two processes start the same tables at once", "double start", result),
    ]
    transactions = result.ledger.transactions
    rows.append(
        f"| Kafka transactions of 50 events | {sum(transactions.values())} | "
        f"{transactions['aborted']} aborted, {transactions['committed']} committed |"
    )
    verdict = result.verdict
    dealt = sum(result.done.values())
    cut = f" Its time limit ended it after {dealt} of {result.planned} strokes."
    faults = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in verdict.faults.items())
    return "\n".join(
        [
            f"`{result.command}`, {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, "
            f"{result.minutes:.0f} minutes.{cut if dealt < result.planned else ''}",
            "",
            "| What was done | Times | What was seen |",
            "| --- | ---: | --- |",
            *rows,
            f"| Events acknowledged by the broker | {verdict.acknowledged:,} | "
            f"{verdict.kept:,} in silver, {verdict.dead:,} dead letters |",
            f"| Records that the Kafka sink, at least once, sent again | {verdict.sent_again} | "
            "none lost |",
            f"| Versions of silver read meanwhile | {result.versions} | none torn |",
            "",
            f"Found by the judge at the end: **{faults}**.",
        ]
    )


def _row(what: str, fault: str, result: Result) -> str:
    seen = result.seen.get(fault, Counter())
    found = ", ".join(f"{name} {times}" for name, times in seen.most_common())
    return f"| {what} | {result.done[fault]} | {found or '-'} |"
