"""The function that reads a topic: the arguments of `read_kafka`, each kept or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from kafka_assets.errors import DeclarationError
from kafka_assets.frontends.sql.text import Source

_ALWAYS = {
    "startingoffsets": ("earliest", "a table has all that the topic holds"),
    "failondataloss": ("true", "lost records stop a run"),
    "includeheaders": ("true", "headers are always there"),
}
"""Options of Spark's source that have one value here, with the reason."""
_BROKERS = "kafka."
"""What the options begin with that are the broker's: the settings say them."""


@dataclass(frozen=True)
class KafkaRead:
    """What `read_kafka` says.

    Attributes:
        topic: The topic's name at the broker.
        servers: The brokers that are named, if any.
        most: Records of a micro-batch at most.
        offset: Where it stands.
        notes: What it says otherwise than it is done.
    """

    topic: str
    servers: str | None
    most: int | None
    offset: int
    notes: tuple[str, ...] = ()


def kafka_read(source: Source, subject: str, call: exp.Expr, offset: int) -> KafkaRead:
    """The arguments of a `read_kafka`.

    Raises:
        DeclarationError: One of them cannot be kept.
    """

    def refused(what: str, fix: str) -> DeclarationError:
        return source.refused(subject, offset, f"read_kafka: {what}", fix)

    given = _arguments(call, refused)
    servers = given.pop("bootstrapservers", None)
    topic, most = given.pop("subscribe", None), given.pop("maxoffsetspertrigger", None)
    notes: list[str] = []
    for name, value in given.items():
        allowed, why = _ALWAYS.get(name, (None, None))
        if name.startswith(_BROKERS):
            # Its value may be a password.
            notes.append(f"read_kafka's {name} is not used: KAFKA_ASSETS_KAFKA__... says it")
        elif allowed is None:
            raise refused(
                f"the option {name} cannot be kept",
                "set what the broker needs in KAFKA_ASSETS_KAFKA__..., and remove it here",
            )
        elif value.lower() != allowed:
            notes.append(f"read_kafka's {name} is always '{allowed}': {why}")
    if topic is None or "," in topic:
        raise refused(
            f"subscribe => '{topic}' names several topics" if topic else "names no topic",
            "write subscribe => 'topic', one topic for each read_kafka; bring several together "
            "with a CREATE FLOW for each",
        )
    if most is not None and not (most.isdecimal() and int(most)):
        raise refused(f"maxOffsetsPerTrigger => {most} is no number", "write a whole number")
    return KafkaRead(topic, servers, None if most is None else int(most), offset, tuple(notes))


def _arguments(call: exp.Expr, refused: Callable[[str, str], DeclarationError]) -> dict[str, str]:
    """Name in lower case -> value."""
    given: dict[str, str] = {}
    for argument in call.expressions:
        if not isinstance(argument, exp.Kwarg):
            raise refused(f"{argument.sql()} has no name", "write subscribe => 'topic'")
        name, value = argument.this.name, literal(argument.expression)
        if value is None:
            raise refused(f"{name} is no plain value", "write a string, a number or a boolean")
        if name.lower() in given:
            raise refused(f"{name} is given twice", "give it once")
        given[name.lower()] = value
    return given


def literal(value: exp.Expr | None) -> str | None:
    """A plain value as text; None when it is something else."""
    if isinstance(value, exp.Boolean):
        return str(value.this).lower()
    return str(value.this) if isinstance(value, exp.Literal) else None
