"""Alerts: each has what a person on duty needs, a section of the runbook, and a unit test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.tidy.source import ROOT

_PROMETHEUS = ROOT / "deploy/prometheus"
_RUNBOOK = ROOT / "docs/how-to/runbook.md"
_LINK = "http://127.0.0.1:9324/docs/how-to/runbook.html#"


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((_PROMETHEUS / "rules/queuegate.yaml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def missing_parts(rule: dict[str, Any]) -> Iterator[str]:
    """Yield the parts that a rule lacks."""
    if rule["labels"].get("severity") not in ("critical", "warning"):
        yield "severity"
    if not re.fullmatch(r"[1-9]\d*[mh]", rule.get("for", "")):
        yield "for"
    for part in ("summary", "description"):
        if not rule["annotations"].get(part):
            yield part
    if rule["annotations"].get("runbook_url") != _LINK + rule["alert"].lower():
        yield "runbook_url"


def test_each_alert_is_complete() -> None:
    assert len(alerts()) == 12
    assert [(rule["alert"], part) for rule in alerts() for part in missing_parts(rule)] == []


def test_each_alert_has_a_section_of_the_runbook() -> None:
    sections = re.split(r"^## ", _RUNBOOK.read_text(), flags=re.MULTILINE)[1:]
    names = [section.partition("\n")[0] for section in sections]
    assert sorted(names) == sorted(rule["alert"] for rule in alerts())
    for section in sections:
        assert all(f"**{part}.**" in section for part in ("Meaning", "See", "Do")), section


def test_each_alert_is_tested() -> None:
    """It fires, and it is quiet at another time."""
    tests = yaml.safe_load((_PROMETHEUS / "tests/queuegate.yaml").read_text())["tests"]
    outcomes = {
        (one["alertname"], bool(one.get("exp_alerts")))
        for test in tests
        for one in test["alert_rule_test"]
    }
    assert outcomes == {(rule["alert"], fires) for rule in alerts() for fires in (True, False)}


def test_the_checks_can_fail() -> None:
    rule = alerts()[0]
    assert [*missing_parts({**rule, "for": "0m"})] == ["for"]
    assert [*missing_parts({**rule, "labels": {}, "annotations": {}})] == [
        *("severity", "summary", "description", "runbook_url")
    ]
