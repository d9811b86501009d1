"""The stand-ins for the modules `dlt` and `pyspark.pipelines`: each word notes what is declared.

Both modules have the same words, those of either product. What a word's options mean is decided in
`mapping`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from kafka_assets.declarations import Action, Read
from kafka_assets.frontends.programs.execution import Execution
from kafka_assets.frontends.programs.facts import Source
from kafka_assets.frontends.programs.recording import Nothing
from kafka_assets.frontends.programs.registry import (
    ChangesRecord,
    Dataset,
    FlowRecord,
    Function,
    Rule,
    SinkRecord,
    Word,
    place_of,
    plain,
    snake,
)
from kafka_assets.frontends.programs.unknown import refuse_unknown


def module_of(by: Execution, name: str) -> ModuleType:
    """A module with all words.

    Args:
        by: The execution whose registry takes up what is declared.
        name: The module's name.
    """
    words = Words(by)
    module = ModuleType(name)
    named: dict[str, Any] = {
        "table": words.dataset("table"),
        "create_table": words.dataset("table"),
        "materialized_view": words.dataset("materialized_view"),
        "view": words.dataset("view"),
        "create_view": words.dataset("view"),
        "temporary_view": words.dataset("view"),
        "create_streaming_table": words.create_streaming_table,
        "create_streaming_live_table": words.create_streaming_table,
        "create_target_table": words.create_streaming_table,
        "append_flow": words.append_flow,
        "apply_changes": words.apply_changes,
        "create_auto_cdc_flow": words.apply_changes,
        "create_sink": words.create_sink,
        "read": words.reader("static"),
        "read_stream": words.reader("stream"),
        "readStream": words.reader("stream"),
        "expect": words.expectation("warn"),
        "expect_or_drop": words.expectation("drop"),
        "expect_or_fail": words.expectation("fail"),
        "expect_all": words.expectations("warn"),
        "expect_all_or_drop": words.expectations("drop"),
        "expect_all_or_fail": words.expectations("fail"),
    }
    vars(module).update(named)
    vars(module)["__all__"] = list(named)
    # Python asks this function for every name that the module does not have.
    vars(module)["__getattr__"] = lambda word: words.unknown(name, word)
    return module


class Words:
    """What the words do."""

    def __init__(self, by: Execution) -> None:
        self._by = by
        self._registry = by.registry

    def dataset(self, word: Word) -> Callable[..., Any]:
        """The decorator of a table or view, with or without options."""

        def decorate(
            query_function: Function | str | None = None, *positional: Any, **options: Any
        ) -> Any:
            if isinstance(query_function, str):
                self._registry.problem(
                    f"the name {query_function!r} stands without name=", "write name="
                )
                options, query_function = {"name": query_function, **options}, None
            if positional:
                self._registry.problem("options without a name", "write name=, comment= and so on")

            named = self._registry.name_in_graph

            def declare(function: Function) -> Function:
                written = str(options.get("name") or self._name_of(function))
                place = place_of(function)
                refuse_unknown(self._registry, f"the table {written!r}", options, place)
                others = {k: v for k, v in options.items() if k != "name"}
                self._registry.datasets.append(
                    Dataset(named(written), written, word, function, place, others)
                )
                return function

            return declare if query_function is None else declare(query_function)

        return decorate

    def create_streaming_table(self, name: str, **options: Any) -> None:
        """A table that flows feed."""
        place = self._registry.place()
        refuse_unknown(self._registry, f"the table {name!r}", [name, options], place)
        named = self._registry.name_in_graph(name)
        self._registry.datasets.append(Dataset(named, name, "target", None, place, options))

    def append_flow(
        self,
        query_function: Function | None = None,
        *,
        target: str,
        name: str | None = None,
        once: bool = False,
        comment: str | None = None,
        spark_conf: Mapping[str, Any] | None = None,
    ) -> Any:
        """One of a table's flows."""
        del comment
        place = self._registry.place()
        if spark_conf:
            self._registry.problem(
                "spark_conf= of a flow", "set it on the flow's table, or with spark.conf.set", place
            )

        def declare(function: Function) -> Function:
            self._registry.flows.append(
                FlowRecord(
                    snake(name or self._name_of(function)),
                    target,
                    function,
                    place_of(function),
                    bool(once),
                )
            )
            return function

        return declare if query_function is None else declare(query_function)

    def apply_changes(
        self, target: str, source: str, keys: Sequence[Any], sequence_by: Any = None, **options: Any
    ) -> None:
        """Changes that a table gets."""
        refuse_unknown(self._registry, f"the target {target!r}", [target, source, options])
        given = {"keys": keys, "sequence_by": sequence_by, **options}
        self._registry.changes.append(ChangesRecord(target, source, given, self._registry.place()))

    def create_sink(self, name: str, format: str, options: Mapping[str, Any] | None = None) -> None:
        """A place outside the lake."""
        texts = {str(option): str(value) for option, value in (options or {}).items()}
        self._registry.sinks.append(SinkRecord(name, format, texts, self._registry.place()))

    def reader(self, how: Read) -> Callable[..., Any]:
        """`dlt.read` and `dlt.read_stream`."""

        def read(name: str) -> Any:
            return self._by.read(Source(name, "table", how, self._registry.place()))

        return read

    def expectation(self, action: Action) -> Callable[..., Any]:
        """The decorator for one rule; its arguments have had several names."""

        def attach(*arguments: Any, **named: Any) -> Any:
            given = [*arguments, *named.values()]
            if len(given) != 2:
                self._registry.problem(
                    "an expectation without a name and a condition", "write both"
                )
                return Nothing()
            return self._keep({given[0]: given[1]}, action)

        return attach

    def expectations(self, action: Action) -> Callable[..., Any]:
        """The decorator for several rules."""

        def attach(*arguments: Any, **named: Any) -> Any:
            (rules,) = (*arguments, *named.values())
            return self._keep(rules, action)

        return attach

    def _name_of(self, function: Function) -> str:
        """The name of a function; a `partial` and an object to call have none."""
        name = getattr(function, "__name__", None)
        if name is None:
            self._registry.problem(
                f"a function that is a {type(function).__name__} has no name of its own",
                "write name=",
            )
        return str(name or plain(function).__name__)

    def _keep(self, rules: Mapping[str, Any], action: Action) -> Callable[[Function], Function]:
        place = self._registry.place()
        refuse_unknown(self._registry, "an expectation", rules, place)

        def attach(function: Function) -> Function:
            new = [(function, Rule(str(name), rule, action, place)) for name, rule in rules.items()]
            # Decorators run from the function upwards; the rules stand in the order written.
            self._registry.rules[:0] = new
            return function

        return attach

    def unknown(self, module: str, word: str) -> Any:
        """A word that has no counterpart."""
        if word.startswith("__"):
            raise AttributeError(word)
        hints = {
            "apply_changes_from_snapshot": "bring snapshots as changes, with an operation column",
            "create_auto_cdc_from_snapshot_flow": "bring snapshots as changes, with an operation "
            "column",
            "on_event_hook": "use a Dagster sensor on the assets",
            "foreach_batch_sink": "write to a kafka or delta sink",
        }
        self._registry.problem(
            f"{module}.{word} has no counterpart here",
            hints.get(word, "remove it, or write this part as a module of kafka_assets"),
        )
        return Nothing()
