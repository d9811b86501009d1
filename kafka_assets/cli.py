"""The command `kafka-assets`. Thin: every command calls a function that has a test of its own.

Here belongs what a terminal needs: options, output, exit codes. A command imports what it calls
when it is called, so that `--help` answers at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kafka_assets import __version__
from kafka_assets.errors import BrokerError, KafkaAssetsError

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


def main() -> None:
    """Run the command line; an error raised on purpose is one message and exit code 1."""
    try:
        app()
    except KafkaAssetsError as error:
        if os.environ.get("KAFKA_ASSETS_DEBUG", "").lower() in {"1", "true", "yes"}:
            raise
        show_error(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


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
    """Fetch the jars of Spark's connectors and of the demo broker, unless they are there."""
    from kafka_assets import jars

    java = jars.check_java()
    with out.status("Jars: looking ...") as status:
        folder = jars.fetch(progress=lambda line: status.update(f"Jars: {line}"))
    count = len(jars.spark_jars()) + len(jars.broker_jars())
    out.print(f"Java {java.version}; {count} jars in {folder}", highlight=False, soft_wrap=True)


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

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # A service manager stops as a terminal does.
    signal.signal(signal.SIGTERM, interrupt)
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


if __name__ == "__main__":
    main()
