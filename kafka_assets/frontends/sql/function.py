"""A SELECT as a function of DataFrames, as a Python table has one.

Sent by value to where this package is not importable, so it imports the standard library alone.
What the SELECT reads was found by `query`.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SqlFunction:
    """Runs a SELECT on the frames of its upstreams, streams or not.

    Attributes:
        name: Name of the table, view or flow.
        text: The SELECT with values in their places, `{frame_0}`, `{frame_1}`, ... in place of the
            upstreams, and its own braces doubled.
        upstreams: Names of the upstreams, in the order of these numbers.
        code: The SELECT without comments and white space: it changes when the meaning may.
        columns: The declared columns with their types, None where no type is said. The result
            must have just these, and columns of ours, whose names begin with an underscore.
        partial: The result may lack some of them: other flows bring those.
        doc: What the declaration says about itself.
        hidden: Upstreams whose hidden column `_metadata` the SELECT uses.
    """

    name: str
    text: str = field(repr=False)
    upstreams: tuple[str, ...]
    code: str = field(repr=False)
    columns: tuple[tuple[str, str | None], ...] = ()
    partial: bool = False
    doc: str | None = None
    hidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # As a function has them.
        object.__setattr__(self, "__name__", self.name)
        object.__setattr__(self, "__doc__", self.doc)

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.upstreams])

    def __call__(self, *frames: Any, **named: Any) -> Any:
        """Run the SELECT.

        Args:
            frames: Frames of the upstreams, in order.
            named: Frames by the upstream's name.

        Returns:
            A DataFrame; a streaming one when a frame is.

        Raises:
            TypeError: A frame is missing, or there are too many.
            ValueError: The result has not the columns that the declaration lists.
        """
        given = {**dict(zip(self.upstreams, frames, strict=False)), **named}
        if len(frames) + len(named) != len(self.upstreams) or set(given) != set(self.upstreams):
            raise TypeError(
                f"{self.name} takes the frames {', '.join(self.upstreams)}; it got {len(frames)} "
                f"by position and {', '.join(named) or 'none'} by name"
            )
        # A cached frame whose own view is dropped leaves the cache; a filter makes another plan,
        # and Spark takes it away again.
        views = {f"frame_{n}": given[name].filter("true") for n, name in enumerate(self.upstreams)}
        for number, name in enumerate(self.upstreams):
            if name in self.hidden:
                # A view does not hand on what is hidden; `*` is not to show it all the same.
                views[f"frame_{number}"] = views[f"frame_{number}"].select("*", "_metadata")
        session = given[self.upstreams[0]].sparkSession
        result = session.sql(self.text, **views)
        return self._as_declared(result.drop("_metadata") if self.hidden else result)

    def _as_declared(self, result: Any) -> Any:
        if not self.columns:
            return result
        has = {name.lower(): name for name in result.columns}
        listed = {name.lower() for name, _ in self.columns}
        ours = [name for lower, name in has.items() if lower not in listed and name[0] == "_"]
        lacks = [name for name, _ in self.columns if name.lower() not in has]
        more = [name for lower, name in has.items() if lower not in listed and name not in ours]
        if more or (lacks and not self.partial):
            wrong = [f"lacks {', '.join(lacks)}"] * bool(lacks)
            wrong += [f"has {', '.join(more)} besides"] * bool(more)
            raise ValueError(f"of the columns that are listed, its SELECT {' and '.join(wrong)}")
        casts = [_cast(name, kind) for name, kind in self.columns if name.lower() in has]
        return result.selectExpr(*casts, *[f"`{name}`" for name in ours])


def _cast(name: str, kind: str | None) -> str:
    return f"`{name}`" if kind is None else f"CAST(`{name}` AS {kind}) AS `{name}`"
