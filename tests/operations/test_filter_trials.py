"""Reasons why filter policies reject a message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuegate.gateway.operations.topics.filter_trials import mismatches
from queuegate.protocol.filter_policies import Scope, parse, prepare_attributes, prepare_body
from tests.protocol.test_filter_policies import VECTORS, wire


@pytest.mark.parametrize("name", ["match_attributes", "match_body"])
def test_there_are_reasons_whenever_a_policy_rejects(name: str) -> None:
    for row in VECTORS[name]:
        scope: Scope = "MessageAttributes" if name == "match_attributes" else "MessageBody"
        policy = parse(json.dumps(row["policy"]), scope)
        if scope == "MessageBody":
            subject = prepare_body(row["message"])
        else:
            subject = prepare_attributes({key: wire(one) for key, one in row["attributes"].items()})
        assert bool(mismatches(policy, subject)) is not row["match"], row


@pytest.mark.parametrize(
    ("policy", "reasons"),
    [
        ({"kind": ["a"]}, ['attribute `kind` is "b", and the policy wants ["a"]']),
        ({"none": ["a"]}, ['attribute `none` is absent, and the policy wants ["a"]']),
        ({"size": [{"numeric": ["<", 2]}], "kind": ["b"]},
         ['attribute `size` is 7.5, and the policy wants [{"numeric":["<",2]}]']),
        ({"bytes": [{"prefix": "x"}]},
         ['attribute `bytes` has a value that no condition can test, and the policy wants '
          '[{"prefix":"x"}]']),
        ({"list": ["a"]},
         ['attribute `list` is "x" or 1 or null or true, and the policy wants ["a"]']),
        ({"many": [-1]},
         ['attribute `many` is 0 or 1 or 10 or 11 or 12 or 15 others, and the policy wants [-1]']),
        ({"$or": [{"kind": ["a"], "none": [1]}, {"size": [1]}]},
         ['no branch of `$or` matches: attribute `kind` is "b", and the policy wants ["a"] and '
          "attribute `none` is absent, and the policy wants [1]; or attribute `size` is 7.5, and "
          "the policy wants [1]"]),
        ({"$or": [{"kind": ["b"]}, {"size": [1]}]}, []),
    ],
)  # fmt: skip
def test_reasons_name_the_attribute_and_the_condition(policy: Any, reasons: list[str]) -> None:
    values: dict[str, dict[str, Any]] = {
        "kind": {"DataType": "String", "StringValue": "b"},
        "size": {"DataType": "Number", "StringValue": "7.5"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"x"},
        "list": {"DataType": "String.Array", "StringValue": '["x", 1, true, null]'},
        "many": {"DataType": "String.Array", "StringValue": json.dumps([*range(20)])},
    }
    found = mismatches(parse(json.dumps(policy), "MessageAttributes"), prepare_attributes(values))
    assert found == reasons


def test_reasons_of_bodies_name_the_path() -> None:
    policy = parse('{"a": {"b": ["x"]}}', "MessageBody")
    assert mismatches(policy, prepare_body('{"a": [{"b": "y"}, {"b": false}]}')) == [
        'member `a.b` is "y" or false, and the policy wants ["x"]'
    ]
    [reason] = mismatches(policy, prepare_body("plain text"))
    assert "the message is no JSON object" in reason
    [reason] = mismatches(policy, prepare_body(json.dumps({"a": {"b": "y" * 100_000}})))
    assert len(reason) < 400
    hundred = parse(json.dumps({"$or": [{"k": [str(n)]} for n in range(140)]}), "MessageBody")
    [reason] = mismatches(hundred, prepare_body("{}"))
    assert 2_000 <= len(reason) < 2_100
