"""Names of catalogs and schemas in the graph's flat space, for texts that have such names.

A table goes by the last part of its name. Where two tables of one text share that, they go by as
many parts before it as keep them apart. How a part is spelled is the callers' to decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Parts = tuple[str, ...]


def told_apart(names: Iterable[Parts], called: Mapping[str, str] | None = None) -> dict[Parts, str]:
    """Names whose last part another has too, and what each is called.

    One that is written without a schema keeps its name.

    Args:
        names: The names of all tables of a text.
        called: What some of them are called by their author, by their parts with dots between.
    """
    by_last: dict[str, list[Parts]] = {}
    for name in dict.fromkeys(names):
        by_last.setdefault(name[-1], []).append(name)
    found: dict[Parts, str] = {}
    for same in by_last.values():
        for name in same if len(same) > 1 else ():
            found[name] = name[-1]
            for count in range(2, len(name) + 1):
                found[name] = re.sub(r"[^a-z0-9]+", "_", "_".join(name[-count:]))
                if not any(other[-count:] == name[-count:] for other in same if other != name):
                    break
    said = {name: (called or {}).get(".".join(name)) for name in found}
    return {name: said[name] or one for name, one in found.items()}


def shared(name: Parts, by: Mapping[Parts, str]) -> str | None:
    """What a table was called before another had the same last part; None where one still is.

    Args:
        name: As it is declared.
        by: From `told_apart`.
    """
    if name not in by or name[-1] in by.values():
        return None
    return name[-1]


def meant(name: Parts, by: Mapping[Parts, str]) -> Parts | None:
    """Which of the tables that are told apart a text means; None where that cannot be said.

    Args:
        name: As it is read, with as many parts as its author wrote.
        by: From `told_apart`.
    """
    if not name or name in by:
        return name or None
    shorter = [one for one in by if name[-len(one) :] == one]
    if shorter:
        return max(shorter, key=len)
    longer = _ending_in(name, by)
    return longer[0] if len(longer) == 1 else None


def may_mean(name: Parts, by: Mapping[Parts, str]) -> list[str]:
    """The tables that a name may mean, where it does not say which."""
    found = _ending_in(name, by) if name and meant(name, by) is None else []
    return [".".join(one) for one in found]


def _ending_in(name: Parts, by: Mapping[Parts, str]) -> list[Parts]:
    return [one for one in by if one[-len(name) :] == name]
