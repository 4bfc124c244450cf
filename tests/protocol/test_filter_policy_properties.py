"""Filter policies against an evaluator of our own that flattens everything first."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from decimal import Decimal
from ipaddress import ip_address, ip_network
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from queuegate.protocol.filter_policies import Scope, parse, prepare_attributes, prepare_body
from queuegate.protocol.malformed import Malformed

# The oracle


def leaves(path: tuple[str, ...], value: Any) -> Iterator[tuple[str, Any]]:
    """Every scalar of a body, with its keys joined by dots."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves((*path, key), item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(path, item)
    else:
        yield ".".join(path), value


def alternatives(policy: dict[str, Any], path: tuple[str, ...]) -> Iterator[dict[str, list[Any]]]:
    """The policy without $or and nesting: one of these has to hold."""
    choices: list[list[dict[str, list[Any]]]] = []
    for key, value in policy.items():
        if key == "$or":
            choices.append([flat for branch in value for flat in alternatives(branch, path)])
        elif isinstance(value, dict):
            choices.append([*alternatives(value, (*path, key))])
        else:
            choices.append([{".".join((*path, key)): [value]}])
    for combination in itertools.product(*choices):
        merged: dict[str, list[Any]] = {}
        for flat in combination:
            for name, lists in flat.items():
                merged.setdefault(name, []).extend(lists)
        yield merged


def kind(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return type(value).__name__
    return "number"


def equal(value: Any, expected: Any) -> bool:
    return kind(value) == kind(expected) and value == expected


def holds(condition: Any, value: Any) -> bool:
    """One condition other than `exists`, for one scalar."""
    if not isinstance(condition, dict):
        return equal(value, condition)
    ((operator, operand),) = condition.items()
    if operator == "anything-but":
        if isinstance(operand, dict):
            return not (isinstance(value, str) and value.startswith(operand["prefix"]))
        return not any(
            equal(value, each) for each in [*([operand], operand)[type(operand) is list]]
        )
    if operator == "numeric":
        if kind(value) != "number":
            return False
        exact = Decimal(repr(value))
        bounds = [
            (sign, Decimal(repr(n))) for sign, n in zip(operand[::2], operand[1::2], strict=True)
        ]
        verdicts = {"=": {0}, "<": {-1}, ">": {1}, "<=": {-1, 0}, ">=": {1, 0}}
        return all(int(exact.compare(bound)) in verdicts[sign] for sign, bound in bounds)
    if not isinstance(value, str):
        return False
    if operator == "cidr":
        try:
            return ip_address(value) in ip_network(operand, strict=False)
        except ValueError:
            return False
    if operator == "equals-ignore-case":
        return value.casefold() == str(operand).casefold()
    head = slice(0, len(operand)) if operator == "prefix" else slice(-len(operand) or None, None)
    return bool(operand == "" or value[head] == operand)


def satisfied(conditions: list[Any], values: list[Any]) -> bool:
    for condition in conditions:
        if isinstance(condition, dict) and "exists" in condition:
            if condition["exists"] == bool(values):
                return True
        elif any(holds(condition, value) for value in values):
            return True
    return False


def expected(policy: dict[str, Any], found: list[tuple[str, Any]]) -> bool:
    return any(
        all(
            satisfied(conditions, [value for path, value in found if path == name])
            for name, lists in flat.items()
            for conditions in lists
        )
        for flat in alternatives(policy, ())
    )


# What we ask about: few names and values, so that they meet

KEYS = st.sampled_from(["a", "b", "a.b", "c", ""])
TEXTS = st.sampled_from(["", "a", "ab", "AB", "ba", "10.0.0.1", "10.0.1.1", "::1", "5", "true"])
NUMBERS = (
    st.sampled_from([0, 1, 5, 5.0, -1, 0.1, 1e9, -1e9])
    | st.integers(-(10**9), 10**9)
    | st.decimals(-(10**9), 10**9, places=5).map(float)
)
SCALARS = TEXTS | NUMBERS | st.booleans() | st.none()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
BODIES = st.dictionaries(KEYS, VALUES, max_size=4)


@st.composite
def ranges(draw: st.DrawFn) -> list[Any]:
    bottom, top = draw(NUMBERS), draw(NUMBERS)
    if draw(st.booleans()):
        return [draw(st.sampled_from(["=", "<", "<=", ">", ">="])), bottom]
    assume(bottom < top)
    lower, upper = draw(st.sampled_from([">", ">="])), draw(st.sampled_from(["<", "<="]))
    return [lower, bottom, upper, top]


def one(operator: str, operands: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return operands.map(lambda operand: {operator: operand})


CONDITIONS = st.lists(
    SCALARS
    | one("prefix", TEXTS)
    | one("suffix", TEXTS)
    | one("equals-ignore-case", TEXTS)
    | one("numeric", ranges())
    | one("exists", st.booleans())
    | one("cidr", st.sampled_from(["10.0.0.0/24", "10.0.0.7/8", "::/64", "0.0.0.0/0"]))
    | one("anything-but", TEXTS | NUMBERS)
    | one("anything-but", st.lists(TEXTS, min_size=1) | st.lists(NUMBERS, min_size=1))
    | one("anything-but", one("prefix", TEXTS.filter(bool))),
    min_size=1,
    max_size=4,
)
FLAT = st.dictionaries(KEYS, CONDITIONS, min_size=1, max_size=3)


def wider(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    branches = st.lists(inner, min_size=2, max_size=3).map(lambda found: {"$or": found})
    both = st.tuples(inner, branches).map(lambda pair: pair[0] | pair[1])
    return branches | both | st.dictionaries(KEYS, inner | CONDITIONS, min_size=1, max_size=2)


POLICIES = st.recursive(FLAT, wider, max_leaves=4)
FLAT_POLICIES = st.recursive(
    FLAT,
    lambda inner: st.tuples(inner, st.lists(inner, min_size=2, max_size=3)).map(
        lambda pair: pair[0] | {"$or": pair[1]}
    ),
    max_leaves=4,
)
ARRAYS = st.lists(SCALARS, min_size=1, max_size=4)
ATTRIBUTES = st.dictionaries(KEYS, TEXTS | NUMBERS | ARRAYS, max_size=4)


def matches_body(policy: Any, body: Any) -> bool:
    return parse(json.dumps(policy), "MessageBody").matches(prepare_body(json.dumps(body)))


def is_valid(policy: Any, scope: Scope = "MessageBody") -> bool:
    try:
        parse(json.dumps(policy), scope)
    except Malformed:
        return False
    return True


@given(POLICIES, st.lists(BODIES, min_size=1, max_size=4))
def test_bodies_match_as_flattened_ones_do(policy: Any, bodies: list[Any]) -> None:
    assume(is_valid(policy))
    for body in bodies:
        assert matches_body(policy, body) is expected(policy, [*leaves((), body)])


@given(FLAT_POLICIES, st.lists(ATTRIBUTES, min_size=1, max_size=4))
def test_attributes_match_as_flat_lists_do(policy: Any, messages: list[Any]) -> None:
    assume(is_valid(policy, "MessageAttributes"))
    compiled = parse(json.dumps(policy), "MessageAttributes")
    for message in messages:
        values: dict[str, dict[str, str]] = {}
        for name, value in message.items():
            data_type = {"str": "String", "list": "String.Array"}.get(type(value).__name__)
            text = value if isinstance(value, str) else json.dumps(value)
            values[name] = {"DataType": data_type or "Number", "StringValue": text}
        found = compiled.matches(prepare_attributes(values))
        assert found is expected(policy, [*leaves((), message)])


@given(st.lists(POLICIES, min_size=2, max_size=5), BODIES)
def test_policies_may_share_a_subject(policies: list[Any], body: Any) -> None:
    shared = prepare_body(json.dumps(body))
    for policy in filter(is_valid, policies):
        found = parse(json.dumps(policy), "MessageBody").matches(shared)
        assert found is matches_body(policy, body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=4)
            | st.sampled_from(["$or", "numeric", "anything-but", "prefix", "cidr", "exists", "<"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.text(max_size=60) | st.text('{}[]",:$or0e-. \x00', max_size=60) | JSON.map(json.dumps))
@example("\ud800")
@example('{"k": [{"numeric": ["=", 1e308]}]}')
def test_policies_are_read_or_malformed(text: str) -> None:
    scopes: list[Scope] = ["MessageAttributes", "MessageBody"]
    for scope in scopes:
        refusal = "FilterPolicy: "
        try:
            parse(text, scope).matches(prepare_attributes({}))
        except Malformed as error:
            refusal = str(error)
        assert refusal.startswith(("FilterPolicy: ", "Filter policy scope "))
        # AWS's second line says where.
        assert refusal.replace("\n at [Source: ", "").isprintable()


@given(JSON, JSON)
def test_any_body_and_attribute_can_be_asked(body: Any, value: Any) -> None:
    subject = prepare_body(json.dumps(body))
    text = json.dumps(value)
    kinds = ("String", "Number", "String.Array", "Binary", "")
    attributes = {kind: {"DataType": kind, "StringValue": text} for kind in kinds}
    for path in ("", "a", "$or", "numeric.prefix", "String.Array", "Number", "String", "Binary"):
        assert subject[path] is subject[path]
        assert isinstance(prepare_attributes(attributes)[path], frozenset)


@given(CONDITIONS, BODIES, st.randoms(use_true_random=False))
def test_order_of_conditions_does_not_matter(conditions: list[Any], body: Any, order: Any) -> None:
    shuffled = [*conditions]
    order.shuffle(shuffled)
    assert matches_body({"a": conditions}, body) is matches_body({"a": shuffled}, body)


@given(KEYS, BODIES)
def test_a_key_exists_or_not(key: str, body: Any) -> None:
    there = matches_body({key: [{"exists": True}]}, body)
    assert there is not matches_body({key: [{"exists": False}]}, body)


@given(SCALARS, st.lists(TEXTS, min_size=1) | st.lists(NUMBERS, min_size=1))
def test_anything_but_is_the_complement_of_exact(value: Any, listed: list[Any]) -> None:
    exact = matches_body({"k": listed}, {"k": value})
    assert exact is not matches_body({"k": [{"anything-but": listed}]}, {"k": value})


@given(st.decimals(-(10**9), 10**9, places=5), ranges())
def test_ranges_compare_as_decimals(number: Decimal, terms: list[Any]) -> None:
    policy = parse(json.dumps({"k": [{"numeric": terms}]}), "MessageAttributes")
    found = policy.matches(
        prepare_attributes({"k": {"DataType": "Number", "StringValue": str(number)}})
    )
    bounds = zip(terms[::2], terms[1::2], strict=True)
    compare = {
        "=": Decimal.__eq__,
        "<": Decimal.__lt__,
        "<=": Decimal.__le__,
        ">": Decimal.__gt__,
        ">=": Decimal.__ge__,
    }
    assert found is all(compare[sign](number, Decimal(repr(bound))) for sign, bound in bounds)


@given(FLAT_POLICIES, CONDITIONS, BODIES)
def test_another_key_never_matches_more(policy: Any, more: list[Any], body: Any) -> None:
    key = next(key for key in ("a", "b", "c", "") if key not in policy)
    narrower = policy | {key: more}
    assume(is_valid(narrower))
    assert matches_body(policy, body) or not matches_body(narrower, body)


@given(st.lists(FLAT, min_size=2, max_size=3), POLICIES, BODIES)
def test_another_branch_never_matches_less(branches: list[Any], more: Any, body: Any) -> None:
    wider = {"$or": [*branches, more]}
    assume(is_valid(wider))
    assert matches_body(wider, body) >= matches_body({"$or": branches}, body)
    assert matches_body({"$or": branches}, body) is any(
        matches_body(branch, body) for branch in branches
    )
