"""The program that is killed: one process with one Spark session that runs the tables when told.

`python -m kafka_assets_tests.reliability.worker --lake L --bootstrap B --topic T` prints `ready`
and then reads one command a line; each is answered by `done ...` or `failed ...`. It ends with its
standard input. Nothing in it helps the killer: what is killed is the product as it is, unless
`--without` switches one of its protections off.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_assets.errors import FenceRefused, KafkaAssetsError
from kafka_assets.operations.letters import Filter
from kafka_assets.operations.replay import replay
from kafka_assets.streaming.run import run_graph
from kafka_assets.streaming.session import spark_session
from kafka_assets_tests.reliability import pipeline, without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_assets.settings import Settings

GOLD = "hourly"


def main() -> None:
    """Serve commands until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--most-offsets", type=int, default=1_000_000)
    parser.add_argument("--remote")
    parser.add_argument("--without", choices=without.PROTECTIONS, nargs="*", default=[])
    arguments = parser.parse_args()
    settings = pipeline.settings_for(arguments.lake, arguments.bootstrap, arguments.most_offsets)
    if arguments.remote is not None:
        spark = settings.spark.model_copy(update={"remote": arguments.remote})
        settings = settings.model_copy(update={"spark": spark})
    for protection in arguments.without:
        without.switch_off(protection)
    session = spark_session(settings)
    # The first query of a session loads most of what a run needs: done before anyone waits for it.
    session.range(1).count()
    _say("ready")
    for line in sys.stdin:
        command = line.split()
        if command:
            _say(_answer(command, session, settings, arguments.topic))


def _answer(command: list[str], session: SparkSession, settings: Settings, topic: str) -> str:
    try:
        return f"done {_do(command, session, settings, topic)}"
    except FenceRefused as error:
        return f"failed FenceRefused.{error.state} {_one_line(error)}"
    except KafkaAssetsError as error:
        return f"failed {type(error).__name__} {_one_line(error)}"
    except Exception as error:  # the JVM may be gone; the worker says so and can be replaced
        return f"failed unnamed.{type(error).__name__} {_one_line(error)}"


def _do(command: list[str], session: SparkSession, settings: Settings, topic: str) -> str:
    """`run [strict] [table ...]`, or one of the other commands below."""
    match command:
        case ["run", *words]:
            graph = pipeline.graph(settings, topic, strict="strict" in words)
            names = tuple(word for word in words if word != "strict") or ("raw", "clean")
            reports = run_graph(graph, session, settings, names=names)
            broken = [c.name for r in reports.values() for c in r.conservation if not c.holds]
            kept = " ".join(f"{name}={report.kept}" for name, report in reports.items())
            return f"{kept} {'NOT CONSERVED ' + ' '.join(broken) if broken else ''}".strip()
        case ["replay", table, rule, *partition]:
            node = pipeline.graph(settings, topic).tables[table]
            wanted = Filter(rule=rule, partition=int(partition[0]) if partition else None)
            report = replay(node, session, settings, wanted, by="the siege")
            return f"{report.finished} finished, {report.rows} rows"
        case ["optimize", path]:
            session.sql(f"OPTIMIZE delta.`{settings.lake}/{path}`").collect()
            return path
        case ["set", path, name, value]:
            session.sql(
                f"ALTER TABLE delta.`{settings.lake}/{path}` SET TBLPROPERTIES ('{name}'='{value}')"
            )
            return path
    raise ValueError(f"unknown command {' '.join(command)}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:1000]


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
