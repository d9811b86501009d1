"""The command `kafka-assets`. Thin: every command calls a function that has a test of its own.

Here belongs what a terminal needs: options, output, exit codes. A command imports what it calls
when it is called, so that `--help` answers at once.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from kafka_assets import __version__, cli_programs, cli_tables
from kafka_assets.errors import BrokerError, KafkaAssetsError

if TYPE_CHECKING:
    from kafka_assets.demo.live import Demo

app = typer.Typer(
    name="kafka-assets",
    help="Kafka topics as Delta tables, run by Spark and orchestrated by Dagster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console()
err = Console(stderr=True)

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the signal's number."""

NOT_WRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
LOG_SECONDS = 10
"""How often the live demo says how things are, where its output is no terminal."""

ONLY_ONCE = ("events", "lake", "as_json")
ONLY_LIVE = ("port", "per_second", "data")
"""Options of `demo` that only one of its two forms has a use for."""


def main() -> None:
    """Run the command line; an error raised on purpose is one message and exit code 1."""
    try:
        app()
    except OSError as error:
        if error.errno not in NOT_WRITABLE or _debugs():
            raise
        where = error.filename or "a file"
        show_error(
            KafkaAssetsError(
                f"{where} cannot be used: {error.strerror}; what was committed before is kept",
                fix="make room, or let this user read and write there; then give the command again",
            )
        )
        sys.exit(1)
    except KafkaAssetsError as error:
        if _debugs():
            raise
        show_error(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _debugs() -> bool:
    return os.environ.get("KAFKA_ASSETS_DEBUG", "").lower() in {"1", "true", "yes"}


def show_error(error: KafkaAssetsError) -> None:
    """Print an error and its fix on standard error."""
    err.print("Error:", style="bold red", end=" ")
    # As it is: brackets in a message are not markup, and paths stay in one piece for copying.
    err.print(error.what, markup=False, highlight=False, soft_wrap=True)
    if error.fix:
        err.print("To fix:", style="bold", end=" ")
        err.print(error.fix, markup=False, highlight=False, soft_wrap=True)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    # Its options' callbacks do the work.
    del version


@app.command()
def setup() -> None:
    """Fetch the jars of Spark's connectors and of the demo broker, and let later JVMs start sooner.

    What is there is left as it is.
    """
    from kafka_assets import class_archive, jars

    java = jars.check_java()
    with out.status("Jars: looking ...") as status:
        folder = jars.fetch(progress=lambda line: status.update(f"Jars: {line}"))
    count = len(jars.spark_jars()) + len(jars.broker_jars())
    out.print(f"Java {java.version}; {count} jars in {folder}", highlight=False, soft_wrap=True)
    with out.status("Classes: running the sample pipelines once, about a minute ..."):
        why = class_archive.record()
    place = class_archive.archive("spark").parent
    told = f"Loaded classes in {place}" if why is None else f"No class archive: {why}"
    out.print(told, highlight=False, soft_wrap=True)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Look at every part that the product needs and say what to do; exit code 1 if one is wrong."""
    from kafka_assets import doctor as parts
    from kafka_assets.settings import Settings

    findings = parts.examine(Settings())
    if as_json:
        print(json.dumps(parts.as_dicts(findings), indent=2))
    else:
        out.print(parts.as_table(findings))
    if not parts.healthy(findings):
        raise typer.Exit(1)


@app.command()
def broker(
    port: Annotated[
        int | None, typer.Option(help="Where clients connect.", show_default="a free one")
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder of its data and log.")] = Path(".demo/broker"),
) -> None:
    """Run a Kafka broker on this machine until Ctrl-C. Its data stays for the next time."""
    from kafka_assets.demo.broker import Broker

    _stop_in_order()
    try:
        with Broker(data, port=port) as running:
            out.print(
                f"Kafka on {running.bootstrap}, data and log in {running.data_dir}.\n"
                "Stop it with Ctrl-C; the data stays.",
                highlight=False,
                soft_wrap=True,
            )
            while running.alive:
                time.sleep(0.3)
            raise BrokerError(
                f"The broker ended by itself. Last lines of {running.log_file}:\n"
                f"{running.log_tail()}",
                fix="Start it again; acknowledged events are kept.",
            )
    except KeyboardInterrupt:
        out.print("Kafka stopped.")


@app.command()
def plan() -> None:
    """Run every table's function once on empty frames, without a broker; exit 1 if one is wrong."""
    import kafka_assets.pipelines
    from kafka_assets.errors import PlanError
    from kafka_assets.graph import build_graph
    from kafka_assets.settings import Settings
    from kafka_assets.streaming.plan import plan_graph
    from kafka_assets.streaming.session import spark_session

    settings = Settings()
    graph = build_graph(kafka_assets.pipelines, settings)
    for note in graph.notes:
        out.print(f"note: {note}", highlight=False, soft_wrap=True)
    found = plan_graph(graph, spark_session(settings))
    wrong = [result for result in found.values() if isinstance(result, PlanError)]
    for name, result in found.items():
        if not isinstance(result, PlanError):
            columns = ", ".join(result.schema.names)
            out.print(f"{name}: {columns}", highlight=False, soft_wrap=True)
    for error in wrong:
        show_error(error)
    skipped = [name for name in (*graph.tables, *graph.views) if name not in found]
    if skipped:
        out.print(f"not planned, because an upstream is wrong: {', '.join(skipped)}")
    if wrong:
        raise typer.Exit(1)


@app.command()
def run(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables to run.", show_default="all")
    ] = None,
) -> None:
    """Bring tables up to date once, upstreams first, without Dagster."""
    import kafka_assets.pipelines
    from kafka_assets.errors import SettingsError
    from kafka_assets.graph import build_graph
    from kafka_assets.settings import Settings
    from kafka_assets.streaming.report import summary
    from kafka_assets.streaming.run import run_graph
    from kafka_assets.streaming.session import spark_session

    settings = Settings()
    graph = build_graph(kafka_assets.pipelines, settings)
    unknown = [name for name in tables or () if name not in graph.tables]
    if unknown:
        raise SettingsError(
            f"there is no table {', '.join(unknown)}", fix=f"use {', '.join(graph.tables)}"
        )
    with out.status("starting Spark ..."):
        session = spark_session(settings)
    run_graph(
        graph,
        session,
        settings,
        names=tuple(tables or ()),
        on_report=lambda report: out.print(summary(report), highlight=False, soft_wrap=True),
    )


@app.command()
def demo(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="One bounded pass, then exit.")] = False,
    events: Annotated[int, typer.Option(min=1, help="With --once: how many events.")] = 10_000,
    bad_ratio: Annotated[float, typer.Option(min=0, max=1, help="Share of bad events.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Decides the events' values.")] = 1,
    lake: Annotated[
        Path | None,
        typer.Option(
            help="With --once: where the tables go.", show_default="a folder that is removed"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: print JSON.")] = False,
    port: Annotated[
        int | None, typer.Option(help="Port of the Dagster UI.", show_default="3000 or a free one")
    ] = None,
    per_second: Annotated[float, typer.Option(min=0.1, help="Events a second.")] = 5.0,
    data: Annotated[Path, typer.Option(help="Folder of data, history and logs.")] = Path(".demo"),
) -> None:
    """Run a broker, sample events and all tables: live with the Dagster UI, or --once."""
    _refuse_options(context, ONLY_LIVE if once else ONLY_ONCE, once=once)
    _stop_in_order()
    if once:
        _demo_once(events, bad_ratio, seed, lake, as_json)
    else:
        _demo_live(data, port, per_second, bad_ratio, seed)


def _refuse_options(context: typer.Context, names: Sequence[str], *, once: bool) -> None:
    sources = {name: context.get_parameter_source(name) for name in names}
    given = [name for name, one in sources.items() if one is not None and one.name == "COMMANDLINE"]
    if given:
        options = ", ".join(f"--{name.removeprefix('as_').replace('_', '-')}" for name in given)
        raise typer.BadParameter(
            f"{options}: only {'without' if once else 'with'} --once has a use for it"
        )


def _demo_once(events: int, bad_ratio: float, seed: int, lake: Path | None, as_json: bool) -> None:
    from kafka_assets.demo.once import as_table, run_once, to_json

    outcome = run_once(
        events,
        bad_ratio,
        seed,
        lake,
        progress=lambda line: err.print(line, highlight=False, soft_wrap=True),
    )
    if as_json:
        print(to_json(outcome))
    else:
        out.print(as_table(outcome))
    if not outcome.complete:
        raise typer.Exit(1)


def _demo_live(
    data: Path, port: int | None, per_second: float, bad_ratio: float, seed: int
) -> None:
    from rich.live import Live

    from kafka_assets.demo.live import running_demo, wait_for_ui
    from kafka_assets.demo.screen import render

    out.print("Starting the broker and Dagster ...", highlight=False)
    try:
        with running_demo(data, port, per_second, bad_ratio, seed) as (demo, ended):
            wait_for_ui(demo.address, ended)
            if not out.is_terminal:
                _demo_in_lines(demo, ended)
                return
            with Live(console=out, auto_refresh=False) as screen:
                while not ended.is_set():
                    screen.update(render(demo.address, demo.graph, demo.settings), refresh=True)
                    ended.wait(2)
    except KeyboardInterrupt:
        out.print("Everything is stopped; data and history stay.", highlight=False)


def _demo_in_lines(demo: Demo, ended: threading.Event) -> None:
    """What the screen shows, for a log: once in a while."""
    from kafka_assets.demo.screen import render

    while not ended.is_set():
        out.print(render(demo.address, demo.graph, demo.settings))
        ended.wait(LOG_SECONDS)


def _stop_in_order() -> None:
    """A service manager stops as a terminal does, also where a shell made Ctrl-C be ignored.

    A second signal changes nothing: all parts are being stopped.
    """

    def interrupt(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        err.print("Stopping ...", highlight=False)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


app.add_typer(cli_tables.dlq, name="dlq")
app.command("import")(cli_programs.import_program)
app.command()(cli_tables.repair)
app.command("accept-loss")(cli_tables.accept_loss)
app.command()(cli_tables.move)
app.command()(cli_tables.reset)


if __name__ == "__main__":
    main()
