"""The long round of `make soak`: every fault many times on one lake, and a table of what was seen.

`python -m kafka_assets_tests.reliability.soak --kills 5` is a short round. What is done is decided
by the seed; what is hit is decided by the machine, and reported as it was seen. A fault that the
judge finds ends the round at once, and the lake is kept. With `--folder`, a round that its time
limit ended goes on when the same command is given again.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kafka_assets.demo.broker import Broker
from kafka_assets_tests.reliability.judge import Verdict
from kafka_assets_tests.reliability.killer import tables_of
from kafka_assets_tests.reliability.kinds import CHAINS, KINDS
from kafka_assets_tests.reliability.reader import Reader
from kafka_assets_tests.reliability.report import Result, write_table
from kafka_assets_tests.reliability.rounds import FULL, Past
from kafka_assets_tests.reliability.siege import SEED, Siege
from kafka_assets_tests.reliability.windows import WINDOWS
from kafka_assets_tests.reliability.workers import GROUP, JVM, PYTHON

SHORT = ("raw", "clean")
ALL = (*SHORT, "hourly", *KINDS)
GLANCES = 7
"""After a random kill the next worker is mostly killed too; after so many one recovers in full."""
EACH = 50
"""Transactions of a stroke."""


class Soak:
    """One round, or as much of it as its time allows.

    Args:
        siege: Where it happens.
        broker: The broker, which is killed and paused too.
        past: What was done before.
    """

    def __init__(self, siege: Siege, broker: Broker, past: Past) -> None:
        self.siege, self.broker, self.past = siege, broker, past
        self._chance = random.Random(f"{SEED}/{past.sittings}")
        self._unjudged = 0
        self._begun: set[str] = set()

    def strokes(self) -> list[tuple[str, Callable[[], None]]]:
        """All faults in the order in which they come."""
        a = self.past.amounts
        aimed = [
            (window, self._aimed(window, tables_of(window)[index % len(tables_of(window))]))
            for index in range(a.aimed)
            for window in WINDOWS
        ]
        others: list[tuple[str, Callable[[], None]]] = [
            *[("random kill", self._random)] * a.random,
            *[("broker kill", self._broker_kill)] * a.broker_kills,
            *[("broker pause", self._broker_pause)] * a.broker_pauses,
            *[("double start", self._double_start)] * a.double_starts,
            *[(f"{EACH} transactions", self._transactions)] * (a.transactions // EACH),
        ]
        mixed = [*aimed, *others]
        random.Random(SEED).shuffle(mixed)
        return mixed

    def run(self, minutes: float) -> Verdict:
        """Deal the strokes, as far as time allows, and judge the tables as a whole at the end."""
        self._judge(self.siege.recover(*ALL, whole=False), "first run")
        deadline = time.monotonic() + minutes * 60
        strokes, done = self.strokes(), self.past.done
        for number, (name, stroke) in enumerate(strokes[done.total() :], done.total() + 1):
            if time.monotonic() > deadline:
                print(f"out of time after {number - 1} of {len(strokes)} strokes", flush=True)
                return self._judge(self.siege.recover(*ALL), "last run")
            begin = time.monotonic()
            stroke()
            done[name] += 1
            seconds = time.monotonic() - begin
            print(
                f"[{number}/{len(strokes)}] {name}: {self._last(name)} {seconds:.0f} s", flush=True
            )
        self.siege.ledger.send(max(0, self.past.amounts.events - self.siege.ledger.acknowledged))
        return self._judge(self.siege.recover(*ALL), "last run")

    def _last(self, name: str) -> str:
        kills = self.siege.kills
        return f"{kills[-1]}," if kills and name in (*WINDOWS, "random kill") else ""

    def _note(self, fault: str, seen: str) -> None:
        self.past.seen.setdefault(fault, Counter())[seen] += 1

    def _judge(self, verdict: Verdict, after: str) -> Verdict:
        self._unjudged = 0
        if not verdict.exact:
            raise SystemExit(f"after {after}: {verdict}\nthe lake is kept: {self.siege.lake}")
        return verdict

    def _aimed(self, window: str, table: str) -> Callable[[], None]:
        def stroke() -> None:
            part = self._chance.choice((GROUP, GROUP, JVM, PYTHON))
            kill = self.siege.strike(window, table, part)
            self._note(window, kill.seen)
            self._judge(self.siege.recover(whole=False), str(kill))

        return stroke

    def _random(self) -> None:
        part = self._chance.choice((JVM, PYTHON, GROUP))
        chain = self._chance.choice((("hourly",), *CHAINS))
        self._begun.update(chain)
        kill = self.siege.strike_after(self._chance.random(), part, (*SHORT, *chain))
        self._note("random kill", kill.seen)
        self._unjudged += 1
        if self._unjudged > GLANCES:
            words = [table for table in ALL if table in self._begun.union(SHORT)]
            self._judge(self.siege.recover(*words, whole=False), str(kill))
            self._begun = set()
        elif not (glance := self.siege.glance()).sound:
            self._judge(glance, str(kill))

    def _while_the_broker_is(self, fault: Callable[[], None], name: str) -> None:
        """Send events and run the tables while something happens to the broker."""
        siege = self.siege
        sender = threading.Thread(target=siege.ledger.send, args=(siege.events,))
        worker = siege.worker
        sender.start()
        worker.tell("run")
        time.sleep(self._chance.uniform(0, 3))
        fault()
        answer = worker.answer() or "no answer"
        sender.join()
        self._note(name, " ".join(answer.split()[: 1 if answer.startswith("done") else 2]))
        self._judge(siege.recover(whole=False), name)

    def _broker_kill(self) -> None:
        def kill() -> None:
            self.broker.kill()
            time.sleep(self._chance.uniform(0, 3))
            self.broker.start()

        self._while_the_broker_is(kill, "broker kill")

    def _broker_pause(self) -> None:
        def pause() -> None:
            self.broker.pause()
            time.sleep(self._chance.uniform(2, 15))
            self.broker.resume()

        self._while_the_broker_is(pause, "broker pause")

    def _double_start(self) -> None:
        answers = self.siege.double_start()
        refused = [a.split()[1] for a in answers if a.startswith("failed")]
        self._note("double start", " and ".join(refused) or "one after the other")
        self._judge(self.siege.recover(whole=False), f"double start {answers}")

    def _transactions(self) -> None:
        self.siege.ledger.transact(EACH, 50, aborted_percent=30)
        self._judge(self.siege.recover(whole=False), "transactions")


def main() -> None:
    """Run a round and write its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=FULL.random, help="random kills; the rest is in proportion"
    )
    parser.add_argument("--minutes", type=float, default=240, help="time limit of the strokes")
    parser.add_argument(
        "--folder", type=Path, help="where it happens and may go on; default: a temporary one"
    )
    arguments = parser.parse_args()
    # Ended from outside, it cleans up as after Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _interrupted)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="kafka-assets-soak-"))
    folder = folder.absolute()
    past = Past.of(folder, FULL.scaled(arguments.kills))
    verdict, planned = _sitting(folder, past, arguments.minutes)
    result = Result(past, arguments.minutes, planned, verdict)
    minutes = past.seconds / 60
    print(f"{verdict}; {past.failures} runs failed and were tried again; {minutes:.0f} min")
    if result.cut and arguments.folder is not None:
        past.keep(folder)
        print(f"to go on, and to write the table at the end: {result.command} FOLDER={folder}")
    else:
        write_table(result)
        shutil.rmtree(folder)


def _sitting(folder: Path, past: Past, minutes: float) -> tuple[Verdict, int]:
    """Deal strokes for so long, and take them up in `past`; gives also how many there are."""
    begin = time.monotonic()
    ledger = past.ledger
    # Producers of the ledger know the broker by its port.
    port = int(ledger.bootstrap.rpartition(":")[2]) if ledger is not None else None
    with Broker(folder / "broker", port) as broker:
        past.begin(folder)
        each = past.amounts.events_per_stroke
        with Siege(folder, broker.bootstrap, "soak", ledger=ledger, events=each) as siege:
            soak = Soak(siege, broker, past)
            with Reader(siege.lake, siege.ledger) as reader:
                verdict = soak.run(minutes)
            if reader.torn or not reader.versions:
                torn = f"torn of {reader.versions} versions: {reader.torn[:5]}"
                raise SystemExit(f"{torn}\nthe lake is kept: {folder}")
    past.ledger = siege.ledger
    past.versions += reader.versions
    past.failures += len(siege.failures)
    past.seconds += time.monotonic() - begin
    return verdict, len(soak.strokes())


def _interrupted(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt as interrupt:
        print(f"ended by {interrupt}; no table was written")
        sys.exit(130)
