"""Policies against an evaluator of our own, which reads the document anew and tries everything."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from queuegate.protocol.malformed import Malformed
from queuegate.protocol.policy_documents import PolicyKind, decide, parse
from queuegate.protocol.policy_patterns import PolicyRequest, Principal

# The oracle

Context = dict[str, list[str]]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def fill(text: str, context: Context, version: str) -> str | None:
    """The text with variables replaced. What they stand for, and what is escaped, is in characters
    of a private range, so that no wildcard is in it."""
    if version != "2012-10-17":
        return text
    missing = False

    def value(found: re.Match[str]) -> str:
        nonlocal missing
        inner = found[1].strip()
        if inner in ("*", "?", "$"):
            return hidden(inner)
        key, comma, default = inner.partition(",")
        values = context.get(key.strip().lower(), [])
        if len(values) == 1:
            return hidden(values[0])
        if comma and not values:
            return hidden(default.strip().strip("'"))
        missing = True
        return ""

    filled = re.sub(r"\$\{([^{}]*)\}", value, text)
    return None if missing else filled


def hidden(text: str) -> str:
    return "".join(chr(0xE000 + ord(each)) for each in text)


def shown(text: str) -> str:
    return "".join(chr(ord(each) - 0xE000) if ord(each) >= 0xE000 else each for each in text)


def like(pattern: str, text: str) -> bool:
    """By trying every length of what a `*` can stand for."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(like(pattern[1:], text[start:]) for start in range(len(text) + 1))
    if not text:
        return False
    return (pattern[0] == "?" or shown(pattern[0]) == text[0]) and like(pattern[1:], text[1:])


def arn_like(pattern: str, text: str) -> bool:
    """As ArnLike compares: six segments, each by itself."""
    segments = ["*"] * 6 if pattern == "*" else pattern.split(":", 5)
    given = text.split(":", 5)
    if len(segments) != 6 or len(given) != 6:
        return False
    return all(like(one, other) for one, other in zip(segments, given, strict=True))


def is_resource(pattern: str, text: str) -> bool:
    """As Resource compares: by every way in which `*` at the end of a segment can go on."""
    if pattern != "*" and not pattern.startswith("arn:"):
        return False
    segments = pattern.split(":", 5)
    given = text.split(":")
    if len(given) < 6:
        return False
    completed = [*segments, *["*"] * (6 - len(segments))]
    return any(follows(way, given, 0) for way in (segments, completed))


def follows(segments: list[str], given: list[str], at: int) -> bool:
    first, *rest = segments
    if not given:
        return False
    if not rest:
        if at >= 5:
            return like(first, ":".join(given))
        return first.endswith("*") and like(first, given[0])
    reaches = range(1, len(given) + 1) if first.endswith("*") else [1]
    return like(first, given[0]) and any(follows(rest, given[n:], at + n) for n in reaches)


def instant(text: str) -> datetime:
    if text.isdigit():
        return datetime.fromtimestamp(int(text), UTC)
    parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def compare(operator: str, has: Any, wanted: Any) -> bool:
    for ending, verdict in (
        ("LessThanEquals", has <= wanted),
        ("GreaterThanEquals", has >= wanted),
        ("LessThan", has < wanted),
        ("GreaterThan", has > wanted),
        ("Equals", has == wanted),
    ):
        if operator.endswith(ending):
            return bool(verdict)
    raise AssertionError(operator)


def one_matches(operator: str, has: str, wanted: str, context: Context, version: str) -> bool:
    if operator.startswith(("String", "Arn")):
        filled = fill(wanted, context, version)
        if filled is None:
            return False
        if operator.startswith("Arn"):
            return arn_like(filled, has)
        if operator == "StringLike":
            return like(filled, has)
        if operator == "StringEqualsIgnoreCase":
            return shown(filled).lower() == has.lower()
        return shown(filled) == has
    try:
        return read_matches(operator, has, wanted)
    except (ValueError, ArithmeticError):
        return False


def read_matches(operator: str, has: str, wanted: str) -> bool:
    if operator.startswith("Numeric"):
        return compare(operator, Decimal(has), Decimal(wanted))
    if operator.startswith("Date"):
        return compare(operator, instant(has), instant(wanted))
    if operator == "IpAddress":
        return ipaddress.ip_address(has) in ipaddress.ip_network(wanted, strict=False)
    if operator == "BinaryEquals":
        return base64.b64decode(has, validate=True) == base64.b64decode(wanted)
    assert operator == "Bool"
    return has.lower() == wanted.lower()


def condition_holds(name: str, key: str, wanted: Any, context: Context, version: str) -> bool:
    values = context.get(key.lower(), [])
    texts = [json.dumps(one) if isinstance(one, bool | int) else one for one in listed(wanted)]
    if name == "Null":
        return any(not values if text.lower() == "true" else bool(values) for text in texts)
    quantifier, _, operator = name.rpartition(":")
    if operator.endswith("IfExists"):
        operator = operator.removesuffix("IfExists")
        if not values:
            return True
    is_negated = "Not" in operator
    operator = operator.replace("Not", "")

    def good(value: str) -> bool:
        found = any(one_matches(operator, value, text, context, version) for text in texts)
        return not found if is_negated else found

    if quantifier == "ForAllValues" or (is_negated and not quantifier):
        return all(good(value) for value in values)
    return any(good(value) for value in values)


def reach(statement: Any, principal: Principal) -> str:
    """`direct`, `account` or nothing."""
    if "Principal" not in statement and "NotPrincipal" not in statement:
        return "direct"
    excepts = "NotPrincipal" in statement
    block = statement["NotPrincipal" if excepts else "Principal"]
    block = {"AWS": "*"} if block == "*" else block
    named, services = listed(block.get("AWS", [])), listed(block.get("Service", []))
    root = f"arn:aws:iam::{principal.account_id}:root"
    by_account = bool(principal.account_id) and (principal.account_id in named or root in named)
    if excepts:
        if "*" in named or (principal.service and principal.service in services):
            return ""
        users = [arn for arn in principal.arns if arn != root]
        return "" if by_account and all(arn in named for arn in users) else "direct"
    if "*" in named or (principal.service and principal.service in services):
        return "direct"
    if any(arn in named for arn in principal.arns):
        return "direct"
    if by_account:
        return "direct" if principal.arns == (root,) else "account"
    return ""


def applies(statement: Any, version: str, request: PolicyRequest) -> str:
    context = {key: list(values) for key, values in request.context.items()}
    actions = listed(statement.get("Action", statement.get("NotAction")))
    acts = any(like(one.lower(), request.action.lower()) for one in actions)
    if acts == ("NotAction" in statement):
        return ""
    resources = statement.get("Resource", statement.get("NotResource"))
    if resources is not None:
        filled = [fill(one, context, version) for one in listed(resources)]
        found = any(one is not None and is_resource(one, request.resource) for one in filled)
        if found == ("NotResource" in statement):
            return ""
    for name, tests in statement.get("Condition", {}).items():
        for key, wanted in tests.items():
            if not condition_holds(name, key, wanted, context, version):
                return ""
    return reach(statement, request.principal)


def expected(request: PolicyRequest, resource: Any, identities: list[Any] | None) -> str:
    def found(document: Any, effect: str) -> list[str]:
        version = document.get("Version", "2008-10-17")
        every = [one for one in listed(document["Statement"]) if one["Effect"] == effect]
        return [how for one in every if (how := applies(one, version, request))]

    mine = identities or []
    if any(found(document, "Deny") for document in (*mine, *([resource] if resource else []))):
        return "explicit deny"
    by_resource = found(resource, "Allow") if resource else []
    account = request.principal.account_id
    by_me = bool(account) and (
        identities is None or any(found(document, "Allow") for document in mine)
    )
    if account == request.owner_id:
        return "allowed" if by_me or "direct" in by_resource else "implicit deny"
    allowed = bool(by_resource) and (by_me or not account)
    return "allowed" if allowed else "implicit deny"


# What we ask about: few names and values, so that they meet

A, B = "111122223333", "444455556666"
NAMED = [
    A,
    f"arn:aws:iam::{A}:root",
    f"arn:aws:iam::{B}:root",
    f"arn:aws:iam::{A}:user/a",
    f"arn:aws:iam::{B}:user/b",
    f"arn:aws:iam::{B}:role/r",
    f"arn:aws:sts::{B}:assumed-role/r/s",
]
PRINCIPALS = st.sampled_from(
    [
        Principal(),
        Principal(service="sns.amazonaws.com"),
        Principal(A, (f"arn:aws:iam::{A}:root",)),
        Principal(A, (f"arn:aws:iam::{A}:user/a",)),
        Principal(B, (f"arn:aws:iam::{B}:user/b",)),
        Principal(B, (f"arn:aws:iam::{B}:role/r", f"arn:aws:sts::{B}:assumed-role/r/s")),
    ]
)


def some(values: st.SearchStrategy[Any], least: int = 1) -> st.SearchStrategy[Any]:
    return values | st.lists(values, min_size=least, max_size=3)


WHOM = st.just("*") | st.fixed_dictionaries(
    {"AWS": some(st.sampled_from([*NAMED, "*"]))},
    optional={"Service": some(st.sampled_from(["sns.amazonaws.com", "s3.amazonaws.com"]))},
)
ACTIONS = ["sqs:SendMessage", "SQS:sendmessage", "sqs:*", "*", "sqs:?endM*", "sqs:S*d*", "sns:*"]
KEYS = ["aws:username", "AWS:UserName", "aws:sourcearn", "aws:tagkeys"]
ARNS = [
    "*",
    "arn:aws:sqs:e:1:ab",
    "arn:aws:sqs:e:1:aab",
    "arn:aws:sqs:*:*:a*b",
    "arn:aws:sqs:?:1:*a?",
    "arn:aws:sqs:*:ab",
    "arn:aws:sqs",
    "arn:aws:sqs:e:1:${aws:username}",
    "arn:aws:sqs:e:1:${aws:username, 'ab'}*",
    "arn:aws:sqs:e:1:a${*}b",
    "arn:aws:sqs:e:1:${aws:tagkeys}",
    "arn:aws:sqs:*:*ab",
    "arn:aws:s*:aab",
    "arn:aws:s*s:e:1:ab",
    "arn:aws:s*b",
    "arn:a*:1*:a*b",
    "arn:*",
    "arn:*:${aws:username}",
]
TEXTS_OF_NOTHING = ["$queue_arn", "ab", "a*", "**", "*:ab", "${aws:username}"]
"""What a policy of a resource may have for a Resource, and matches nothing."""
CHARACTERS = st.sampled_from([*"aAb*?", "${aws:username}", "${*}", "${?}", "${$}", "${x, 'a'}"])
TEXTS = st.lists(CHARACTERS, max_size=6).map("".join) | st.sampled_from(ARNS)
NUMBERS = st.sampled_from(["0", "1", "1.0", "-1", "2.5", "10"])
DATES = st.sampled_from(["2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "0"])
NETWORKS = st.sampled_from(["10.0.0.0/8", "10.0.0.1", "0.0.0.0/0", "::/0", "::1"])
BYTES = st.sampled_from(["YQ==", "YWI=", ""])
BOOLS = st.sampled_from(["true", "false", "TRUE", True, False])
OPERANDS = {
    "String": TEXTS,
    "Arn": st.sampled_from(ARNS) | TEXTS,
    "Numeric": NUMBERS,
    "Date": DATES,
    "IpAddress": NETWORKS,
    "NotIpAddress": NETWORKS,
    "BinaryEquals": BYTES,
    "Bool": BOOLS,
    "Null": BOOLS,
}
ORDERS = ["Equals", "NotEquals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals"]
OPERATORS = [
    *(f"String{n}" for n in ("Equals", "NotEquals", "Like", "NotLike")),
    "StringEqualsIgnoreCase",
    "StringNotEqualsIgnoreCase",
    *(f"Arn{n}" for n in ("Equals", "NotEquals", "Like", "NotLike")),
    *(f"{kind}{order}" for kind in ("Numeric", "Date") for order in ORDERS),
    "IpAddress",
    "NotIpAddress",
    "BinaryEquals",
    "Bool",
]


@st.composite
def conditions(draw: st.DrawFn) -> dict[str, Any]:
    block: dict[str, Any] = {}
    for _ in range(draw(st.integers(0, 2))):
        operator = draw(st.sampled_from([*OPERATORS, "Null"]))
        values = next(one for start, one in OPERANDS.items() if operator.startswith(start))
        name = operator
        if operator != "Null":
            name = draw(st.sampled_from(["", "", "ForAllValues:", "ForAnyValue:"])) + operator
            name += draw(st.sampled_from(["", "", "IfExists"]))
        tests = st.dictionaries(st.sampled_from(KEYS), some(values, 0), max_size=2)
        block[name] = draw(tests)
    return block


@st.composite
def statements(draw: st.DrawFn, kind: PolicyKind) -> dict[str, Any]:
    statement: dict[str, Any] = {"Effect": draw(st.sampled_from(["Allow", "Allow", "Deny"]))}
    if kind is PolicyKind.RESOURCE:
        excepts = statement["Effect"] == "Deny" and draw(st.booleans())
        statement["NotPrincipal" if excepts else "Principal"] = draw(WHOM)
    action = draw(st.sampled_from(["Action", "Action", "NotAction"]))
    statement[action] = draw(some(st.sampled_from(ACTIONS)))
    resource = draw(st.sampled_from(["Resource", "Resource", "NotResource"]))
    if kind is PolicyKind.IDENTITY or draw(st.booleans()):
        more = TEXTS_OF_NOTHING if kind is PolicyKind.RESOURCE else []
        statement[resource] = draw(some(st.sampled_from([*ARNS, *more])))
    return {**statement, "Condition": draw(conditions())}


def documents(kind: PolicyKind) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"Statement": some(statements(kind))},
        optional={"Version": st.sampled_from(["2012-10-17", "2008-10-17"])},
    )


VALUES = (
    st.text("aAb*?$", max_size=5)
    | st.sampled_from(ARNS)
    | NUMBERS
    | DATES
    | BYTES
    | st.sampled_from(["10.0.0.1", "::1", "true", "FALSE", "x"])
)
CONTEXTS = st.dictionaries(
    st.sampled_from([key for key in KEYS if key.islower()]),
    st.lists(VALUES, max_size=2),
    max_size=3,
)
REQUESTS = st.builds(
    PolicyRequest,
    PRINCIPALS,
    st.sampled_from(["sqs:SendMessage", "sqs:ReceiveMessage"]),
    st.sampled_from(["arn:aws:sqs:e:1:ab", "arn:aws:sqs:e:1:aab", "arn:aws:sqs:f:1:b"]),
    st.sampled_from([A, B]),
    CONTEXTS,
)


@given(
    REQUESTS,
    st.none() | documents(PolicyKind.RESOURCE),
    st.none() | st.lists(documents(PolicyKind.IDENTITY), max_size=2),
)
def test_decisions_are_those_of_a_naive_evaluator(
    request: PolicyRequest, resource: Any, identities: list[Any] | None
) -> None:
    hanging = None if resource is None else parse(json.dumps(resource), PolicyKind.RESOURCE)
    own = (
        None
        if identities is None
        else [parse(json.dumps(one), PolicyKind.IDENTITY) for one in identities]
    )
    decision = decide(request, resource=hanging, identities=own)
    assert decision.reason.value == expected(request, resource, identities)


@given(statements(PolicyKind.RESOURCE), REQUESTS)
def test_one_statement_is_read_as_a_naive_evaluator_reads_it(
    statement: Any, request: PolicyRequest
) -> None:
    document = {"Version": "2012-10-17", "Statement": statement}
    decision = decide(
        request, resource=parse(json.dumps(document), PolicyKind.RESOURCE), identities=[]
    )
    assert decision.reason.value == expected(request, document, [])


@given(st.text("ab*?", max_size=12), st.text("ab", max_size=14))
@example("*a?b*", "aaab")
@example("ab*ab", "ab")
def test_wildcards_are_those_that_try_everything(pattern: str, text: str) -> None:
    condition = {"StringLike": {"aws:username": pattern}}
    statement = {"Effect": "Allow", "Principal": "*", "Action": "*", "Condition": condition}
    policy = parse(json.dumps({"Statement": statement}), PolicyKind.RESOURCE)
    asked = PolicyRequest(Principal(), "a:b", "arn:aws:sqs:e:1:q", A, {"aws:username": [text]})
    assume(asked.context["aws:username"])
    assert decide(asked, resource=policy, identities=[]).is_allowed is like(pattern, text)


JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        5,
        "",
        "x",
        "*",
        [],
        ["*"],
        [5],
        {},
        {"AWS": "*"},
        {"AWS": [[]]},
        {"Bool": {"a": {}}},
    ]
)


@given(
    statements(PolicyKind.RESOURCE),
    st.dictionaries(
        st.sampled_from(
            ["Sid", "Effect", "Principal", "NotPrincipal", "Action", "Resource", "Condition", "x"]
        ),
        JUNK,
        max_size=3,
    ),
    st.sampled_from(PolicyKind),
)
def test_what_is_no_policy_is_refused_and_nothing_worse(
    statement: Any, junk: dict[str, Any], kind: PolicyKind
) -> None:
    try:
        policy = parse(json.dumps({"Statement": {**statement, **junk}}), kind)
    except Malformed:
        return
    asked = PolicyRequest(Principal(), "a:b", "arn:aws:sqs:e:1:q", A, {})
    decide(asked, resource=policy, identities=None)
