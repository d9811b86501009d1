"""The stand-ins for `dbutils` and `display`: widgets and secrets answer, the rest is refused."""

from __future__ import annotations

from typing import Any

from kafka_assets.frontends.programs.execution import Execution
from kafka_assets.frontends.programs.recording import Nothing
from kafka_assets.frontends.programs.unknown import note_unknown


class Dbutils:
    """The stand-in for `dbutils`.

    Args:
        by: The execution that it belongs to.
    """

    def __init__(self, by: Execution) -> None:
        self._by = by
        self.widgets = Widgets(by)
        self.secrets = Secrets(by)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._by.registry.problem(
            f"dbutils.{name} exists only on Databricks",
            "remove the call, or do it outside of the program",
        )
        return Nothing()


class Widgets:
    """`dbutils.widgets`: a value of `conf=`, else the widget's default."""

    def __init__(self, by: Execution) -> None:
        self._by = by
        self._defaults: dict[str, str] = {}

    def text(self, name: str, defaultValue: Any = "", *more: Any, **named: Any) -> None:  # noqa: N803
        """Declare a widget."""
        del more, named
        self._defaults[name] = str(defaultValue)

    dropdown = combobox = multiselect = text

    def get(self, name: str) -> str:
        """A widget's value."""
        values = {**self._defaults, **self._by.registry.conf}
        if name in values:
            return values[name]
        return note_unknown(self._by.registry, f"dbutils.widgets.get({name!r})", name)

    getArgument = get  # noqa: N815

    def remove(self, name: str) -> None:
        """Forget a widget."""
        self._defaults.pop(name, None)

    def removeAll(self) -> None:  # noqa: N802
        """Forget all widgets."""
        self._defaults.clear()


class Secrets:
    """`dbutils.secrets`: a value of `conf=`, else a mark that only options of Kafka may have."""

    def __init__(self, by: Execution) -> None:
        self._by = by

    def get(self, scope: str, key: str) -> str:
        """A secret."""
        registry = self._by.registry
        name = f"{scope}/{key}"
        if name in registry.conf:
            return registry.conf[name]
        return note_unknown(registry, f"dbutils.secrets.get({scope!r}, {key!r})", name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._by.registry.problem(
            f"dbutils.secrets.{name} exists only on Databricks", "remove the call"
        )
        return Nothing()


def show_nothing(*arguments: Any, **named: Any) -> None:
    """Show nothing."""
    del arguments, named
