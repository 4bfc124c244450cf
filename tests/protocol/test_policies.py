"""Policies: the table of cases of the contract, and what hostile ones cost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queuegate.protocol.malformed import Malformed
from queuegate.protocol.policy_documents import (
    Policy,
    PolicyKind,
    compile_policy,
    decide,
    missing_statement,
    parse,
)
from queuegate.protocol.policy_patterns import PolicyRequest, Principal

_TABLE = json.loads((Path(__file__).parents[2] / "docs/contract/policies.json").read_text("utf-8"))
QUEUE = "arn:aws:sqs:eu-west-1:111122223333:orders"
SECONDS = 1.0
"""Far more than anything here takes, and far less than what would try again and again."""


def principal(who: str | list[str]) -> Principal:
    """`*`: nobody in particular, a list: the ARNs of somebody, else a service."""
    if isinstance(who, list):
        return Principal(who[0].split(":")[4], tuple(who))
    return Principal() if who == "*" else Principal(service=who)


def request(
    who: str | list[str],
    context: dict[str, list[str]] | None = None,
    *,
    action: str = "sqs:SendMessage",
    resource: str = QUEUE,
) -> PolicyRequest:
    by_key = {key.lower(): values for key, values in (context or {}).items()}
    return PolicyRequest(principal(who), action, resource, resource.split(":")[4], by_key)


def policy(statements: list[Any], kind: PolicyKind, version: str | None = "2012-10-17") -> Policy:
    document = {"Version": version, "Statement": statements}
    if version is None:
        del document["Version"]
    return parse(json.dumps(document), kind)


def conditions() -> Iterator[Any]:
    for group in _TABLE["conditions"]:
        for row in group["rows"]:
            yield pytest.param(*row, id=f"{json.dumps(row[0])} {json.dumps(row[1])}")


@pytest.mark.parametrize(("condition", "context", "holds"), [*conditions()])
def test_condition(condition: Any, context: dict[str, list[str]], holds: bool) -> None:
    statement = {"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": condition}
    asked = request("*", context)
    allowing = policy([{**statement, "Principal": "*"}], PolicyKind.RESOURCE)
    assert decide(asked, resource=allowing, identities=None).is_allowed is holds


def decisions() -> Iterator[Any]:
    for group in _TABLE["decisions"]:
        for case in group["cases"]:
            yield pytest.param(group["statement"], case, id=f"{group['source']}: {case['name']}")


@pytest.mark.parametrize(("statement", "case"), [*decisions()])
def test_decision(statement: dict[str, Any] | None, case: dict[str, Any]) -> None:
    hanging = case.get("resource")
    if statement is not None:
        changed = case.get("statement", {})
        # A member and its opposite exclude each other.
        opposites = {f"Not{name}" for name in changed} | {
            name.removeprefix("Not") for name in changed if name.startswith("Not")
        }
        kept = {name: value for name, value in statement.items() if name not in opposites}
        hanging = [{**kept, **changed}]
    version = case.get("version", "2012-10-17")
    identities = case.get("identities")
    asked = request(
        case["principal"],
        case.get("context"),
        action=case.get("action", "sqs:SendMessage"),
        resource=case.get("on", QUEUE),
    )
    decision = decide(
        asked,
        resource=None if hanging is None else policy(hanging, PolicyKind.RESOURCE, version),
        identities=None
        if identities is None
        else [policy(one, PolicyKind.IDENTITY) for one in identities],
    )
    assert decision.reason.value == case["decision"]


def refused() -> Iterator[Any]:
    for group in _TABLE["refused"]:
        for row in group["rows"]:
            yield pytest.param(row, id=f"{group['source']}: {row['name']}")


@pytest.mark.parametrize("row", [*refused()])
def test_refused(row: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        compile_policy(row["document"], PolicyKind[row.get("kind", "RESOURCE")])


def test_what_is_no_json_is_refused() -> None:
    for text in ("", "{", "[" * 100_000, '{"a":' * 2_000 + "1" + "}" * 2_000):
        with pytest.raises(Malformed):
            parse(text, PolicyKind.RESOURCE)


def test_each_group_says_where_it_is_from() -> None:
    for groups in _TABLE.values():
        assert all(group["source"] and group["known"] in "SDI" for group in groups)


def test_the_deciding_statement_is_named() -> None:
    allow = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}
    deny = {**allow, "Effect": "Deny", "Sid": "no", "Principal": "*"}
    ada = ["arn:aws:iam::111122223333:user/ada"]
    mine = policy([allow, {**allow, "Sid": "also"}], PolicyKind.IDENTITY)
    by_caller = decide(request(ada), resource=None, identities=[mine])
    assert (by_caller.kind, by_caller.statement) == (PolicyKind.IDENTITY, mine.allowing[0])
    hanging = policy([{**allow, "Principal": "*"}, deny], PolicyKind.RESOURCE)
    denied = decide(request(ada), resource=hanging, identities=[mine])
    assert denied.kind is PolicyKind.RESOURCE
    assert denied.statement is not None
    assert (denied.statement.sid, denied.statement.index) == ("no", 1)


@pytest.mark.parametrize(
    ("who", "identities"),
    [
        (["arn:aws:iam::444455556666:user/bob"], []),
        (["arn:aws:iam::111122223333:user/ada"], []),
        (["arn:aws:iam::444455556666:root"], None),
        ("sns.amazonaws.com", None),
        ("*", None),
    ],
)
def test_statements_that_are_missing_are_enough(
    who: str | list[str], identities: list[Policy] | None
) -> None:
    context = {"aws:SourceArn": ["arn:aws:sns:eu-west-1:111122223333:news"]}
    asked = request(who, context if who == "sns.amazonaws.com" else {})
    resource: Policy | None = None
    decision = decide(asked, resource=resource, identities=identities)
    assert not decision.is_allowed
    while not decision.is_allowed:
        assert decision.kind is not None
        added = policy([missing_statement(asked, decision.kind)], decision.kind)
        if decision.kind is PolicyKind.RESOURCE:
            assert resource is None
            resource = added
        else:
            assert not identities
            identities = [added]
        decision = decide(asked, resource=resource, identities=identities)
    others = asked._replace(context={"aws:sourcearn": ["arn:aws:sns:eu-west-1:1:other"]})
    if who == "sns.amazonaws.com":
        assert not decide(others, resource=resource, identities=None).is_allowed


_LONG = "a" * 4_000
_HOSTILE = [
    {"StringLike": {"aws:useragent": ["*a" * 2_000 + "b", "*a?" * 1_300 + "b"]}},
    {"StringLike": {"aws:useragent": ["*" + "a?" * 1_900 + "b*"] * 4}},
    {"StringLike": {"aws:useragent": ["*" + "?a" * n + "b*" for n in range(1, 90)]}},
    {"StringLike": {"aws:useragent": ["*" * 8_000 + "b"]}},
    {"StringLike": {"aws:useragent": "${aws:useragent}" * 500}},
    {"StringLike": {"aws:useragent": "*${aws:useragent}" * 400 + "b"}},
    {"StringEquals": {"aws:useragent": "${" * 4_000}},
    {"StringEquals": {"aws:useragent": "${a" * 2_500 + "}"}},
    {"ArnLike": {"aws:sourcearn": "arn:*:*:*:*:" + "*:" * 4_000 + "b"}},
    {"NumericEquals": {"aws:useragent": ["9" * 40] * 180}},
    {"IpAddress": {"aws:useragent": ["0.0.0.0/0"] * 600}},
]


@pytest.mark.parametrize("condition", _HOSTILE)
def test_hostile_policies_cost_little(condition: Any) -> None:
    context = {"aws:useragent": [_LONG], "aws:sourcearn": ["arn:a:b:c:d:" + ":" * 4_000]}
    started = time.thread_time()
    document = {
        "Statement": {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "*",
            "Condition": condition,
        },
        "Version": "2012-10-17",
    }
    asked = request("*", context)
    hanging = compile_policy(document, PolicyKind.RESOURCE)
    assert not decide(asked, resource=hanging, identities=None).is_allowed
    assert time.thread_time() - started < SECONDS


@pytest.mark.parametrize(
    "resource",
    ["arn:" + "*:" * 3_000 + "b", "arn:*:*:*:" + "*a" * 3_000, "arn:" + "?*a*:" * 1_500, "arn:*"],
)
def test_hostile_resources_cost_little(resource: str) -> None:
    started = time.thread_time()
    statement = {"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": [resource] * 5}
    hanging = policy([statement], PolicyKind.RESOURCE)
    for arn in ("arn:a:b:c:d:" + ":" * 40_000, "arn:aws:sqs:e:1:" + "a:" * 20_000):
        asked = request("*", resource=arn)
        assert decide(asked, resource=hanging, identities=None).is_allowed is (resource == "arn:*")
    assert time.thread_time() - started < SECONDS
