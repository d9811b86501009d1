"""One bounded pass of the sample pipelines: broker, events, tables, account; then stop.

What the pass made is read back from the tables (`account`); the live demo is `live`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

import kafka_assets.pipelines
from kafka_assets.demo.account import Account, accounts
from kafka_assets.demo.broker import Broker
from kafka_assets.demo.events import TOPICS
from kafka_assets.demo.own_settings import settings_of
from kafka_assets.demo.producing import Produced, ensure_topics, produce
from kafka_assets.graph import build_graph
from kafka_assets.streaming.report import RunReport, summary
from kafka_assets.streaming.run import run_graph
from kafka_assets.streaming.session import spark_session

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What one pass did.

    Attributes:
        produced: What the broker acknowledged in this pass.
        accounts: Topic -> what became of its records, of this pass and of earlier ones.
        reports: Table -> the report of this pass's run.
        seconds: Step -> how long it took.
    """

    produced: Produced
    accounts: dict[str, Account]
    reports: dict[str, RunReport]
    seconds: dict[str, float]

    @property
    def complete(self) -> bool:
        """True when no record is lost or doubled and every conservation equality holds."""
        holds = all(c.holds for report in self.reports.values() for c in report.conservation)
        return holds and all(account.complete for account in self.accounts.values())

    def as_dict(self) -> dict[str, Any]:
        """The outcome as plain values, totals first."""
        totals = list(self.accounts.values())
        return {
            "complete": self.complete,
            "produced": sum(self.produced.total(topic) for topic in TOPICS),
            "bronze": sum(a.bronze for a in totals),
            "silver": sum(a.silver for a in totals),
            "dead_letters": sum(a.dead for a in totals),
            "dead_letters_by_rule": _summed(a.dead_by_rule for a in totals),
            "gold": sum(sum(a.gold.values()) for a in totals),
            "lost": sum(a.lost + a.lost_ids for a in totals),
            "doubled": sum(a.doubled + a.doubled_ids for a in totals),
            "topics": {
                topic: {"produced": dict(self.produced.counts[topic]), **asdict(account)}
                for topic, account in self.accounts.items()
            },
            "conservation": {
                **{
                    account.bronze_table: {"topic_records": account.conserved} for account in totals
                },
                **{
                    name: {
                        c.name: {"left": c.left, "right": c.right, **c.parts, "holds": c.holds}
                        for c in report.conservation
                    }
                    for name, report in self.reports.items()
                    if report.conservation
                },
            },
            "seconds": {step: round(seconds, 2) for step, seconds in self.seconds.items()},
        }


def run_once(
    events: int, bad_ratio: float, seed: int, lake: Path | None, progress: Progress
) -> Outcome:
    """Start a broker, send events, bring all tables up to date, account for every record, stop.

    Args:
        events: How many events, shared by the sample topics.
        bad_ratio: Share of bad ones, 0 to 1.
        seed: Decides the events' values.
        lake: Where the tables go; the broker's data lies below it, so that a second pass on the
            same lake adds to the first. By default a temporary folder that is removed.
        progress: Called with a line for each step.

    Raises:
        KafkaAssetsError: A step failed; what was committed before is kept.
    """
    seconds: dict[str, float] = {}
    with ExitStack() as stack:
        if lake is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-assets-demo-"))
            lake = Path(folder)
        lake = lake.absolute()
        clock = time.monotonic()
        broker = stack.enter_context(Broker(lake / "_broker"))
        settings = settings_of(lake, broker.bootstrap)
        # However many bad events are asked for, they are to be counted.
        counted = settings.dead_letters.model_copy(update={"max_share": 1})
        settings = settings.model_copy(update={"dead_letters": counted})
        graph = build_graph(kafka_assets.pipelines, settings)
        new = ensure_topics(broker.bootstrap)
        # Ids of an earlier pass do not come again, however it ended.
        first = 0 if len(new) == len(TOPICS) else time.time_ns() // 1000
        seconds["broker"] = _lap(clock)
        progress(f"broker up at {broker.bootstrap} in {seconds['broker']:.1f} s")

        share = {topic: events // len(TOPICS) for topic in TOPICS}
        share[TOPICS[0]] += events - sum(share.values())
        produced = produce(broker.bootstrap, share, bad_ratio, seed, first=first, timeout=600)
        seconds["produce"] = produced.seconds
        progress(f"{events} events acknowledged in {produced.seconds:.1f} s")

        clock = time.monotonic()
        session = spark_session(settings)
        seconds["spark"] = _lap(clock)
        progress(f"Spark up in {seconds['spark']:.1f} s")

        clock = time.monotonic()
        reports = run_graph(
            graph, session, settings, on_report=lambda report: progress(summary(report))
        )
        seconds["tables"] = _lap(clock)

        clock = time.monotonic()
        found = accounts(graph, session, settings)
        seconds["account"] = _lap(clock)
        return Outcome(produced, found, reports, seconds)


def as_table(outcome: Outcome) -> Group:
    """The outcome as a table for people, and what it means."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("topic")
    names = ("produced", "bronze", "silver", "dead letters", "gold", "lost", "doubled")
    for name in names:
        table.add_column(name, justify="right")
    for topic, account in outcome.accounts.items():
        figures = (
            outcome.produced.total(topic),
            account.bronze,
            account.silver,
            account.dead,
            sum(account.gold.values()),
            account.lost + account.lost_ids,
            account.doubled + account.doubled_ids,
        )
        table.add_row(topic, *[f"{figure:,}" for figure in figures])
    reasons = Table(box=None, pad_edge=False, header_style="bold")
    reasons.add_column("dead letters by rule")
    reasons.add_column("rows", justify="right")
    for rule, count in outcome.as_dict()["dead_letters_by_rule"].items():
        reasons.add_row(rule, f"{count:,}")
    verdict = (
        "Every record is accounted for exactly once."
        if outcome.complete
        else "NOT every record is accounted for: see lost, doubled, and --json."
    )
    seconds = ", ".join(f"{step} {took:.1f}" for step, took in outcome.seconds.items())
    return Group(table, "", reasons, "", verdict, f"seconds: {seconds}")


def to_json(outcome: Outcome) -> str:
    """The outcome as JSON for programs."""
    return json.dumps(outcome.as_dict(), indent=2)


def _lap(since: float) -> float:
    return time.monotonic() - since


def _summed(counts: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))
