"""How often a round of the soak does what, and what it has done: kept, so that it can go on."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kafka_assets_tests.reliability.ledger import Ledger
from kafka_assets_tests.reliability.windows import WINDOWS


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


_FILE = "round.pickle"

FULL = Amounts(
    aimed=10,
    random=200,
    broker_kills=20,
    broker_pauses=10,
    double_starts=40,
    transactions=1000,
    events=1_050_000,
)


@dataclass
class Past:
    """What a round has done so far; kept in its folder.

    Attributes:
        amounts: How often each fault comes.
        ledger: What was sent; None before the first.
        done: How often each fault came.
        seen: What the files said of each.
        versions: Versions of silver that the reader read.
        failures: Runs that failed and were tried again.
        seconds: How long it took.
        sittings: How often it was begun or went on.
    """

    amounts: Amounts
    ledger: Ledger | None = None
    done: Counter[str] = field(default_factory=Counter)
    seen: dict[str, Counter[str]] = field(default_factory=dict)
    versions: int = 0
    failures: int = 0
    seconds: float = 0.0
    sittings: int = 0

    @classmethod
    def of(cls, folder: Path, amounts: Amounts) -> Past:
        """That of a round in a folder, or that of a new one."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / _FILE
        if not file.exists():
            if any(folder.iterdir()):
                raise SystemExit(f"{folder} is neither empty nor a round that can go on")
            return cls(amounts)
        past: Past = pickle.loads(file.read_bytes())
        if past.amounts != amounts:
            raise SystemExit(f"{folder} holds a round of {past.amounts}; give its --kills again")
        return past

    def begin(self, folder: Path) -> None:
        """Go on: from now on the folder alone does not say any more what was sent.

        A round that is broken off before it is kept again cannot go on.
        """
        (folder / _FILE).unlink(missing_ok=True)
        self.sittings += 1

    def keep(self, folder: Path) -> None:
        """Let the round go on later."""
        (folder / _FILE).write_bytes(pickle.dumps(self))
