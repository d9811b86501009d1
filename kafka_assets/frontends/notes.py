"""What a frontend says about a text that it took in: what is otherwise here, or is not needed.

What cannot be taken in at all is an error, not a note.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_assets.declarations import Place


@dataclass(frozen=True)
class Note:
    """Something in a text that works otherwise here, or is not needed.

    Attributes:
        place: Where it stands.
        text: What it is, and what happens instead.
        servers: Brokers that the text names: nothing differs when they are those of the settings.
    """

    place: Place
    text: str
    servers: str | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"
