"""Values that a program asks for and nobody has given: of its configuration, and secrets.

They may go where the settings decide anyway, which is how Kafka is reached. Wherever else one is
used, it is refused there, by its name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from kafka_assets.declarations import Place
from kafka_assets.frontends.programs.columns import is_column
from kafka_assets.frontends.programs.registry import Registry

MARK = "[no value of "
_MARKED = re.compile(r"\[no value of ([^\]]+)\]")


class Unknown(str):
    """Stands for a value, and knows when a decision is made by it.

    Args:
        name: What was asked for.
        registry: Takes up the decision as a problem.
    """

    _registry: Registry

    def __new__(cls, name: str, registry: Registry) -> Unknown:
        """A text that marks the value wherever it goes."""
        made = super().__new__(cls, f"{MARK}{name}]")
        made._registry = registry
        return made

    def _decides(self) -> None:
        """Refuse it when the program's own code is asking."""
        if self._registry.owns(sys._getframe(2).f_code.co_filename):
            refuse_unknown(self._registry, "a decision of the program", str(self))

    def __eq__(self, other: object) -> bool:
        self._decides()
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        self._decides()
        return str.__ne__(self, other)

    def __contains__(self, part: Any) -> bool:
        self._decides()
        return str.__contains__(self, part)

    def startswith(self, *arguments: Any) -> bool:
        """Nobody knows."""
        self._decides()
        return str.startswith(self, *arguments)

    def endswith(self, *arguments: Any) -> bool:
        """Nobody knows."""
        self._decides()
        return str.endswith(self, *arguments)

    def lower(self) -> str:
        """The mark as it is."""
        return self

    upper = lower

    __hash__ = str.__hash__


def note_unknown(registry: Registry, asked: str, name: str) -> str:
    """What is given for a value that nobody gave."""
    registry.note(
        f"{asked} has no value: only options of Kafka, which the settings decide, may use it; "
        f'else give it: conf={{"{name}": ...}}, or --conf {name}=...'
    )
    return Unknown(name, registry)


def refuse_unknown(registry: Registry, what: str, values: Any, place: Place | None = None) -> bool:
    """Refuse values that depend on one that nobody gave.

    Args:
        registry: Takes up the problem.
        what: What they are, in the message.
        values: A text, a Column, or a list or mapping of such.
        place: Where; by default the line that is running.

    Returns:
        Whether one does.
    """
    names = dict.fromkeys(_MARKED.findall(" ".join(_texts(values))))
    for name in names:
        registry.problem(
            f"{what} depends on {name!r}, which has no value",
            f'give it: conf={{"{name}": ...}}, or --conf {name}=...',
            place,
        )
    return bool(names)


def _texts(values: Any) -> list[str]:
    if isinstance(values, str):
        return [str.__str__(values)]
    if is_column(values):
        return [repr(values)]
    if isinstance(values, Mapping):
        return _texts([*values.keys(), *values.values()])
    if isinstance(values, list | tuple | set):
        return [text for one in values for text in _texts(one)]
    return []
