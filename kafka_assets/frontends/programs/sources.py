"""What a program's readers can read: for each format of Spark, the source that it becomes.

Kafka is here, files are in `files`. Another is added as a function in `_MAKERS`; every format that
is not there is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_assets.declarations import Place
from kafka_assets.declarations.files import FORMATS
from kafka_assets.frontends.file_options import AUTO_LOADER
from kafka_assets.frontends.programs.asked import Asked
from kafka_assets.frontends.programs.facts import Source
from kafka_assets.frontends.programs.files import files
from kafka_assets.frontends.programs.registry import Registry
from kafka_assets.frontends.programs.unknown import MARK, refuse_unknown
from kafka_assets.settings import Settings

Maker = Callable[[Registry, Asked], Source | None]


def kafka(registry: Registry, asked: Asked) -> Source | None:
    """The topic of a Kafka reader; None when it is not one topic read as a stream."""
    place = asked.place
    given = {name.lower(): value for name, value in asked.options.items()}
    if not asked.streaming:
        registry.problem(
            "reads a topic as a batch (spark.read)",
            "read it with spark.readStream into a table, and read that",
            place,
        )
        return None
    topic = given.get("subscribe", "")
    for option in ("subscribepattern", "assign"):
        if option in given:
            registry.problem(
                f"reads topics by {option}={given[option]!r}",
                "read each topic by subscribe, in a table or append_flow of its own",
                place,
            )
            return None
    if not topic or "," in topic:
        registry.problem(
            f"reads several topics at once: {topic}" if topic else "reads Kafka without a topic",
            "read each topic in an append_flow of its own" if topic else 'set "subscribe"',
            place,
        )
        return None
    _keep_broker(registry, given.get("kafka.bootstrap.servers"), place)
    for name, value in asked.options.items():
        text = _about(name, value)
        if text is not None:
            registry.note(text, place)
    refuse_unknown(registry, "maxOffsetsPerTrigger", given.get("maxoffsetspertrigger", ""), place)
    most = given.get("maxoffsetspertrigger", "")
    return Source(
        topic.strip(),
        "topic",
        "stream",
        place,
        headers=given.get("includeheaders", "").lower() == "true",
        most=int(most) if most.isdecimal() and int(most) else None,
    )


def _keep_broker(registry: Registry, address: str | None, place: Place) -> None:
    """A code location has one broker, so a program's topics must be on one."""
    if address is None:
        return
    hosts = set(address.replace(" ", "").split(","))
    known = [one for one in registry.brokers if MARK not in one + address]
    others = [one for one in known if hosts.isdisjoint(one.split(","))]
    if others:
        registry.problem(
            f"reads from the broker {address!r} besides {others[0]!r}",
            "load the tables of each broker in a code location of its own",
            place,
        )
    registry.brokers.add(address.replace(" ", ""))


def _about(name: str, value: str) -> str | None:
    """What to say about an option of the Kafka reader; None when it means what it says."""
    low = name.lower()
    if low in ("subscribe", "includeheaders", "maxoffsetspertrigger"):
        return None
    if low == "kafka.bootstrap.servers":
        ours = Settings().kafka.bootstrap_servers
        if value == ours:
            return None
        return (
            f"kafka.bootstrap.servers={value!r}: the setting kafka.bootstrap_servers decides "
            f"(now {ours!r})"
        )
    if low.startswith("kafka."):
        return f"{name}: the settings kafka.properties and kafka.secrets decide"
    if low.startswith("starting"):
        if value.lower() == "earliest":
            return None
        return f"{name}={value!r}: a topic is always read from its earliest record"
    if low == "failondataloss":
        return f"{name}={value!r}: a run always refuses to pass over lost records"
    return f"{name}={value!r} is not used: the settings decide how topics are read"


_MAKERS: dict[str, Maker] = {
    "kafka": kafka,
    AUTO_LOADER: files,
    **{name.lower(): files for name in FORMATS},
}
"""Format of a reader -> what makes its source."""


def source_of(registry: Registry, asked: Asked) -> Source | None:
    """The source that a reader loads; None when it was refused."""
    maker = _MAKERS.get(asked.format.lower())
    if maker is not None:
        return maker(registry, asked)
    registry.problem(
        f"reads the source {asked.format!r}, which kafka_assets has no reader for",
        f"sources are Kafka, files ({', '.join(FORMATS)}), and Delta tables that are declared; "
        "bring the data into one of them, and name a table with tables={...}",
        asked.place,
    )
    return None
