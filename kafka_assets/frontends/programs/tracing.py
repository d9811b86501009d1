"""What each function of a program reads: it is called once, with frames that hold no rows.

A function that wants rows is looked at as text instead (`reading`), and a note says so.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from kafka_assets.frontends.programs.environment import around
from kafka_assets.frontends.programs.execution import Execution, Trace
from kafka_assets.frontends.programs.facts import Facts, Source
from kafka_assets.frontends.programs.program import line_of
from kafka_assets.frontends.programs.reading import found_in_text
from kafka_assets.frontends.programs.recording import Recorded
from kafka_assets.frontends.programs.registry import Function, place_of


@dataclass(frozen=True)
class Traced:
    """What is known of a function.

    Attributes:
        sources: All that it reads, in order.
        facts: What it returns.
    """

    sources: tuple[Source, ...]
    facts: Facts

    @property
    def streams(self) -> bool:
        """Whether it reads a stream."""
        return any(source.how != "static" for source in self.sources)


class Tracer:
    """Traces the functions of one execution, views before what reads them.

    Args:
        by: The execution at load.
    """

    def __init__(self, by: Execution) -> None:
        self._by = by
        self._known: dict[int, Traced] = {}
        self._busy: set[int] = set()
        by.trace_of = self.facts_of_view

    def facts_of_view(self, name: str) -> Facts:
        """What a view of the program returns."""
        dataset = self._by.registry.dataset(name)
        if dataset is None or dataset.function is None or id(dataset.function) in self._busy:
            # A view that reads itself is refused when the graph is built.
            return Facts()
        return self.traced(dataset.function, dataset.name).facts

    def traced(self, function: Function, name: str) -> Traced:
        """What a function reads and returns; problems go to the registry."""
        if id(function) not in self._known:
            self._busy.add(id(function))
            try:
                self._known[id(function)] = self._trace(function, name)
            finally:
                self._busy.discard(id(function))
        return self._known[id(function)]

    def _trace(self, function: Function, name: str) -> Traced:
        trace, registry = Trace(), self._by.registry
        needed = [
            one.name
            for one in inspect.signature(function).parameters.values()
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        if needed:
            registry.problem(
                f"the function of {name!r} takes {', '.join(needed)}",
                "let it take nothing, and read its tables in its body",
                place_of(function),
            )
            return Traced((), Facts())
        problems = len(registry.problems)
        self._by.traces.append(trace)
        result: Any = None
        try:
            with around(self._by):
                result = function()
        except Exception as error:
            return self._from_text(function, name, trace, error)
        finally:
            self._by.traces.pop()
        if type(result) is not Recorded:
            if len(registry.problems) == problems:
                registry.problem(
                    f"the function of {name!r} returns {type(result).__name__}, no DataFrame",
                    "return a DataFrame",
                    place_of(function),
                )
            return Traced(tuple(trace.sources), Facts(tuple(trace.sources)))
        for problem in result._facts.refused:
            registry.used(problem)
        sources = _once((*trace.sources, *result._facts.sources))
        return Traced(sources, result._facts)

    def _from_text(self, function: Function, name: str, trace: Trace, error: Exception) -> Traced:
        registry = self._by.registry
        where = line_of(registry, error)
        problems = len(registry.problems)
        found = found_in_text(self._by, function, trace.sources)
        if len(registry.problems) > problems:
            # What it reads has been seen, and refused.
            return Traced((), Facts())
        if found is None or not (found.sources or trace.sources):
            registry.problem(
                f"what {name!r} reads cannot be seen: {type(error).__name__}: {error}",
                "read tables by constant names, and let Spark do the work that needs rows",
                where,
            )
            return Traced((), Facts())
        registry.note(
            f"{name!r} cannot be called without rows ({type(error).__name__}: {error}); what it "
            "reads was taken from its text",
            where,
        )
        sources = _once((*trace.sources, *found.sources))
        facts = Facts(
            sources,
            any(source.how != "static" for source in sources),
            found.watermark,
            found.aggregate,
        )
        return Traced(sources, facts)


def _once(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    found: dict[tuple[object, ...], Source] = {}
    for source in sources:
        found.setdefault((source.key, source.how, source.files), source)
    return tuple(found.values())
