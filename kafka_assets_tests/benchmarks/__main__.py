"""`python -m kafka_assets_tests.benchmarks [--only NAME] [--json FILE]`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kafka_assets_tests.benchmarks import changes, fence, throughput

BENCHMARKS = {
    "throughput": throughput.measure,
    "fence": fence.measure,
    "changes": changes.measure,
}


def main(
    only: Annotated[str | None, typer.Option(help=f"One of {', '.join(BENCHMARKS)}.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
    events: Annotated[int, typer.Option(min=1000, help="Events in the topic.")] = 2_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Counted, after those that warm up.")] = 5,
) -> None:
    """Measure and print; each figure with how it was measured."""
    names = [only] if only is not None else list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise typer.BadParameter(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    figures: dict[str, Any] = {name: BENCHMARKS[name](events, rounds) for name in names}
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
