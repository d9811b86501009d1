"""The `new_files` sensor: looks at the folders that tables read, and starts their chains.

It lists, and never reads a file or starts Spark. Its cursor holds what it said last of each folder;
which files a table has read is its checkpoint's to know. When a chain that failed starts again is
decided as for topics, in `verdicts`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from kafka_assets.errors import SourceError
from kafka_assets.graph import Files, Graph
from kafka_assets.orchestration import metadata
from kafka_assets.orchestration.history import failures_of, keys_in_flight, latest, repository_of
from kafka_assets.orchestration.names import (
    FOLDER_SENSOR,
    FolderChain,
    files_key,
    folder_chains_of,
    table_key,
)
from kafka_assets.orchestration.verdicts import (
    Done,
    Last,
    Verdict,
    done_by_hand,
    emptied,
    held_back,
    in_turn,
    run_request,
    said_before,
)
from kafka_assets.settings import Settings
from kafka_assets.sources.files import FolderState, state_of


def new_files_sensor(
    graph: Graph,
    settings: Settings,
    *,
    look: Callable[[Files], FolderState] = state_of,
    clock: Callable[[], float] = time.time,
) -> dg.SensorDefinition:
    """The sensor for all folders; on by default.

    Args:
        graph: The folders and tables.
        settings: How often it looks, and how failures are paused after.
        look: Says what a folder holds.
        clock: Seconds since 1970-01-01 UTC.
    """
    chains = folder_chains_of(graph)

    @dg.sensor(
        name=FOLDER_SENSOR,
        target=dg.AssetSelection.assets(*sorted({k for c in chains for k in c.keys})),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=settings.sensor.interval_seconds,
        description="Starts the tables that read a folder when a file has come.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        here = repository_of(context)
        said, busy = said_before(context.cursor), keys_in_flight(context.instance, here)
        last = latest(context.instance, [table_key(n) for c in chains for n in c.tables])
        done = done_by_hand(settings, clock()) or {}
        requests: list[dg.RunRequest] = []
        moved: list[dg.AssetMaterialization] = []
        notes: list[str] = []
        for chain in in_turn(chains, said):
            try:
                state = look(chain.source)
            except SourceError as error:
                notes.append(str(error).replace("\n", " "))
                continue
            told = said.setdefault(chain.name, {})
            if told.get("version") != state.version:
                told["version"] = state.version
                moved.append(_moved(chain, state))
            now = clock()
            failures = failures_of(context.instance, chain, last, here)
            held = held_back(chain, busy, failures, graph, settings, now, done)
            found = held or _verdict(chain, state, told, last, done)
            started = {key for request in requests for key in request.asset_selection or ()}
            if found.start and not started & chain.keys:
                told |= {"started": state.version, "at": now}
                requests.append(run_request(chain, found, FOLDER_SENSOR))
            notes.append(f"{chain.name}: {found.why}")
        return dg.SensorResult(
            run_requests=requests,
            asset_events=moved,
            cursor=json.dumps(said, sort_keys=True),
            skip_reason=None if requests else "; ".join(notes),
        )

    return evaluate


def _verdict(
    chain: FolderChain, state: FolderState, told: Mapping[str, Any], last: Last, done: Done
) -> Verdict:
    """Whether what a folder holds starts its chain."""
    empty = emptied(chain, last, done)
    if empty is not None:
        return Verdict(True, f"{empty.name} was reset")
    if not state.files and not ("started" in told and chain.is_computed_from):
        return Verdict(False, "no files")
    if told.get("started") == state.version:
        return Verdict(False, f"{state.files} files, none of them new")
    return Verdict(True, f"{state.files} files, which were not like this before")


def _moved(chain: FolderChain, state: FolderState) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        files_key(chain.source),
        description="The files changed.",
        metadata=metadata.folder_state(state),
        tags={"dagster/data_version": state.version},
    )
