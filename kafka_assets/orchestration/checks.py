"""Asset checks: one for each expectation, and the conservation equalities.

Specs come from the declaration, results from a run's report; both sides must name the same checks,
because Dagster wants a result for every spec. Rules are evaluated by `streaming`, never here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from kafka_assets.declarations import Changes, Expectation, TableExpectation
from kafka_assets.errors import DeclarationError, ExpectationFailed
from kafka_assets.graph import Node
from kafka_assets.orchestration.names import dead_letters_key, table_key
from kafka_assets.streaming.report import (
    Conservation,
    RuleResult,
    RunReport,
    TableRuleResult,
)

ROWS_READ = "rows_read"
ROWS_RETURNED = "rows_returned"

CONSERVATION = {
    ROWS_READ: "Rows read from upstream = rows decoded + rows that do not decode + rows on which "
    "the function raised.",
    ROWS_RETURNED: "Rows that the function returned = rows kept + rows moved to the dead letters.",
}

SEQUENCED = "changes_have_sequence"
NEWEST = "newest"
"""Metadata of an `expect_fresh`: the time of the newest event."""

CONSEQUENCE = {
    "warn": "rows that break it are kept",
    "drop": "rows that break it are moved to the dead letters",
    "fail": "a batch with a row that breaks it is not written at all",
}


def check_specs(node: Node) -> list[dg.AssetCheckSpec]:
    """The checks of a table.

    Raises:
        DeclarationError: An expectation has the name of a check that the table gets by itself.
    """
    key = table_key(node)
    specs = []
    declared: list[Expectation | TableExpectation] = [
        *node.table.expectations,
        *node.table.table_expectations,
    ]
    for expectation in declared:
        if expectation.name in (*CONSERVATION, SEQUENCED):
            raise DeclarationError(
                f"expectation {expectation.name!r}",
                str(expectation.place),
                "has the name of a check that every table gets by itself",
                fix="give it another name",
            )
    for expectation in node.table.expectations:
        specs.append(
            dg.AssetCheckSpec(
                expectation.name,
                asset=key,
                description=f"{expectation.text} ({_consequence(expectation)})",
                blocking=expectation.action == "fail",
                metadata={"rule": expectation.text, "action": expectation.action},
            )
        )
    specs += [
        dg.AssetCheckSpec(
            rule.name,
            asset=key,
            description=f"{rule.text} (of the table as a whole, after each run)",
            blocking=rule.blocking,
            metadata={"rule": rule.text, "action": "fail" if rule.blocking else "warn"},
        )
        for rule in node.table.table_expectations
    ]
    specs += [
        dg.AssetCheckSpec(name, asset=key, description=CONSERVATION[name], blocking=True)
        for name in conservation_names(node)
    ]
    if node.table.changes is not None:
        order = node.table.changes.sequence_by
        told = f"Each change has its place in the order: {order} IS NOT NULL. One that has none is"
        specs.append(dg.AssetCheckSpec(SEQUENCED, asset=key, description=f"{told} passed over."))
    return specs


def _consequence(expectation: Expectation) -> str:
    above = expectation.above
    if not above:
        return CONSEQUENCE[expectation.action]
    most = f"{above:g} of its rows" if above < 1 else f"{above:g} rows"
    return f"a batch in which more than {most} break it is not written at all"


def conservation_names(node: Node) -> tuple[str, ...]:
    """The equalities that are counted for a table of this kind.

    Rows that go straight from the stream to Delta's own sink are counted once: nothing to compare.
    """
    if node.goes_to_kafka:
        # What a topic got is counted on one side only.
        return (ROWS_READ,) if node.decodes else ()
    if node.decodes:
        return (ROWS_READ, ROWS_RETURNED)
    plain = node.table.kind in ("streaming_table", "sink") and not (
        node.table.expectations or node.table.keys
    )
    return () if plain else (ROWS_RETURNED,)


def check_results(node: Node, report: RunReport) -> Iterator[dg.AssetCheckResult]:
    """One result for each check of a table, also for a run that read nothing."""
    for rule in report.rules:
        # Where a fail rule had stopped a batch, there would be no report of it.
        yield _rule_result(node, rule, report.returned, put_up_with=rule.action == "fail")
    for found in report.table_rules:
        yield table_rule_result(node, found)
    equalities = {equality.name: equality for equality in report.conservation}
    for name in conservation_names(node):
        yield _conservation_result(node, name, equalities.get(name))
    if node.table.changes is not None:
        yield _sequence_result(node, node.table.changes, int(report.extra.get("unsequenced", 0)))


def _sequence_result(node: Node, changes: Changes, without: int) -> dg.AssetCheckResult:
    sources = ", ".join(one.source.name for one in node.inputs)
    return dg.AssetCheckResult(
        asset_key=table_key(node),
        check_name=SEQUENCED,
        passed=without == 0,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{without} changes were passed over, because {changes.sequence_by} is null; "
        f"{sources} has them. A rule of that table that drops such rows makes dead letters of them."
        if without
        else "Each change has its place in the order.",
        metadata={"unsequenced": without},
    )


def table_rule_result(node: Node, found: TableRuleResult) -> dg.AssetCheckResult:
    """What an expectation on a table as a whole says."""
    metadata: dict[str, Any] = {} if found.found is None else {"found": found.found}
    if found.newest is not None:
        metadata[NEWEST] = dg.MetadataValue.timestamp(float(found.newest))
    if found.sample:
        metadata["sample"] = dg.MetadataValue.json([dict(row) for row in found.sample])
    return dg.AssetCheckResult(
        asset_key=table_key(node),
        check_name=found.name,
        passed=found.holds,
        severity=_severity("fail" if found.blocking else "warn"),
        description=found.sentence,
        metadata=metadata,
    )


def failed_results(node: Node, error: ExpectationFailed) -> Iterator[dg.AssetCheckResult]:
    """A failed result for each rule that stopped a batch."""
    by_name = {e.name: e for e in node.table.expectations}
    for name, details in error.rules.items():
        rule = RuleResult(
            name=name,
            action="fail",
            rule=by_name[name].text,
            broken=_count(details),
            first=_first(details),
        )
        yield _rule_result(node, rule, None)


def _rule_result(
    node: Node, rule: RuleResult, checked: int | None, *, put_up_with: bool = False
) -> dg.AssetCheckResult:
    metadata: dict[str, Any] = {
        "rule": dg.MetadataValue.text(rule.rule),
        "action": dg.MetadataValue.text(rule.action),
        "broken": rule.broken,
    }
    if checked is not None:
        metadata["checked"] = checked
        metadata["share"] = rule.broken / checked if checked else 0.0
    if rule.first is not None:
        metadata["first"] = dg.MetadataValue.text(coordinates(rule.first))
    if rule.action == "drop":
        metadata["dead_letters"] = dg.MetadataValue.asset(dead_letters_key(node))
    return dg.AssetCheckResult(
        asset_key=table_key(node),
        check_name=rule.name,
        passed=rule.broken == 0 or put_up_with,
        severity=_severity(rule.action),
        description=_sentence(rule, checked, put_up_with),
        metadata=metadata,
    )


def _severity(action: str) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if action == "fail" else dg.AssetCheckSeverity.WARN


def _sentence(rule: RuleResult, checked: int | None, put_up_with: bool) -> str:
    if rule.broken == 0:
        return "No new rows." if checked == 0 else "All rows keep the rule."
    of = "" if checked is None else f" of {checked}"
    where = "" if rule.first is None else f", first at {coordinates(rule.first)}"
    done = {
        "warn": "kept",
        "drop": "moved to the dead letters",
        "fail": "kept, for they are not more than the rule puts up with"
        if put_up_with
        else "so nothing of the batch was written",
    }[rule.action]
    return f"{rule.broken}{of} rows break {rule.rule}{where}; {done}."


def _conservation_result(
    node: Node, name: str, equality: Conservation | None
) -> dg.AssetCheckResult:
    # A report leaves out an equality only when it has no batch to count.
    equality = equality or Conservation(name, left=0, right=0, parts={})
    sum_of = " + ".join(f"{count} {part}" for part, count in equality.parts.items()) or "0"
    sign = "=" if equality.holds else "≠"
    return dg.AssetCheckResult(
        asset_key=table_key(node),
        check_name=name,
        passed=equality.holds,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"{name.replace('_', ' ')}: {equality.left} {sign} {sum_of}",
        metadata={name: equality.left, "sum": equality.right, **equality.parts},
    )


def coordinates(first: Mapping[str, Any]) -> str:
    """Topic, partition and offset as one text."""
    return f"{first.get('topic')}/{first.get('partition')} offset {first.get('offset')}"


def _count(details: Mapping[str, object]) -> int:
    broken = details.get("broken", 0)
    return broken if isinstance(broken, int) else 0


def _first(details: Mapping[str, object]) -> Mapping[str, Any] | None:
    first = details.get("first")
    return first if isinstance(first, Mapping) else None
