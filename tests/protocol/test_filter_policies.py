import base64
import json
from typing import Any

import pytest

from queuegate.protocol.filter_policies import (
    FilterPolicy,
    PlacedPolicy,
    Scope,
    Unplaced,
    parse,
    prepare_attributes,
    prepare_body,
)
from queuegate.protocol.malformed import Malformed
from tests.protocol import contract

VECTORS = contract.load("filter_policies")


def numbered(name: str) -> pytest.MarkDecorator:
    rows = VECTORS[name]
    return pytest.mark.parametrize("row", rows, ids=[f"{name}-{n}" for n in range(len(rows))])


def wire(attribute: dict[str, str]) -> dict[str, Any]:
    """The vectors write attributes as envelopes do."""
    if attribute["Type"] == "Binary":
        return {"DataType": "Binary", "BinaryValue": base64.b64decode(attribute["Value"])}
    return {"DataType": attribute["Type"], "StringValue": attribute["Value"]}


def attributes_match(policy: Any, **attributes: tuple[str, Any]) -> bool:
    values = {
        name: {"DataType": kind, "BinaryValue" if kind == "Binary" else "StringValue": value}
        for name, (kind, value) in attributes.items()
    }
    return compiled(policy, "MessageAttributes").matches(prepare_attributes(values))


def body_matches(policy: Any, body: Any) -> bool:
    text = body if isinstance(body, str) else json.dumps(body)
    return compiled(policy, "MessageBody").matches(prepare_body(text))


def compiled(policy: Any, scope: Scope = "MessageBody") -> FilterPolicy:
    return parse(policy if isinstance(policy, str) else json.dumps(policy), scope)


def refusal(policy: Any, scope: Scope = "MessageBody") -> str:
    with pytest.raises(Malformed) as caught:
        compiled(policy, scope)
    assert caught.value.kind == "serialization"
    return str(caught.value).partition("\n at [Source: ")[0]


@numbered("match_attributes")
def test_attributes_of_the_contract(row: dict[str, Any]) -> None:
    policy = compiled(row["policy"], "MessageAttributes")
    values = {name: wire(attribute) for name, attribute in row["attributes"].items()}
    assert policy.matches(prepare_attributes(values)) is row["match"]


@numbered("match_body")
def test_bodies_of_the_contract(row: dict[str, Any]) -> None:
    policy = compiled(row["policy"])
    assert policy.matches(prepare_body(row["message"])) is row["match"]


@numbered("invalid_policies")
def test_invalid_policies_of_the_contract(row: dict[str, Any]) -> None:
    assert row["code"] == "InvalidParameter"
    # Subscribe names its parameter first; that is the operation's to add.
    reason = "Attributes Reason: " if row["call"] == "Subscribe" else ""
    found = f"Invalid parameter: {reason}{refusal(row['policy'], row['scope'])}"
    assert row["message_first_line"] in (None, found.partition("\n")[0])


def test_six_leaves_are_too_many_keys() -> None:
    (row,) = (row for row in VECTORS["invalid_policies"] if row["message_first_line"] is None)
    assert refusal(row["policy"]) == "FilterPolicy: Filter policy can not have more than 5 keys"


@numbered("valid_policies")
def test_valid_policies_of_the_contract(row: dict[str, Any]) -> None:
    assert compiled(row["policy"], row["scope"]).scope == row["scope"]


# Attributes


def test_labels_of_data_types_do_not_matter() -> None:
    assert attributes_match({"n": [5]}, n=("Number.int", "5.0"))
    assert attributes_match({"n": ["x"]}, n=("String.name", "x"))
    assert attributes_match({"n": [{"exists": True}]}, n=("Binary.png", b"x"))


def test_arrays_of_attributes_have_scalars_of_all_kinds() -> None:
    array = ("String.Array", '["x", 5.0, true, null]')
    for value in ("x", 5, True, None, {"prefix": "x"}, {"numeric": [">", 4]}, {"exists": True}):
        assert attributes_match({"n": [value]}, n=array), value
    for value in ("5", 1, 0, False, "true", "null", "", {"exists": False}):
        assert not attributes_match({"n": [value]}, n=array), value


def test_text_of_a_string_attribute_is_no_number_or_boolean() -> None:
    for value in (5, True, None, {"numeric": ["=", 5]}, {"numeric": [">", 0]}):
        assert not attributes_match({"n": [value]}, n=("String", json.dumps(value)))
        assert not attributes_match({"n": [value]}, n=("String", "5"))
    assert not attributes_match({"n": ["5"]}, n=("Number", "5"))
    assert not attributes_match({"n": [{"prefix": "5"}]}, n=("Number", "5"))


@pytest.mark.parametrize(
    "attribute",
    [
        ("Binary", b"x"),
        ("String.Array", "[1,"),
        ("String.Array", '"x"'),
        ("String.Array", "[]"),
        ("String.Array", "[{}]"),
        ("String.Array", "[" * 5000),
        ("Number", "x"),
        ("Number", "nan"),
        ("Number", "1_0"),
        ("Number", "9" * 5000),
        ("Other", "x"),
        ("String", None),
        (None, "x"),
    ],
)
def test_unreadable_attributes_only_exist(attribute: tuple[str, Any]) -> None:
    assert attributes_match({"n": [{"exists": True}]}, n=attribute)
    others: list[Any] = ["x", 1, None, {"exists": False}, {"anything-but": "y"}, {"prefix": ""}]
    others += [{"anything-but": {"prefix": "y"}}, {"numeric": ["<", 9]}, {"suffix": ""}]
    for other in others:
        assert not attributes_match({"n": [other]}, n=attribute), other


def test_names_of_attributes_are_not_paths() -> None:
    assert attributes_match({"a.b": ["x"]}, **{"a.b": ("String", "x")})
    assert not attributes_match({"a.b": ["x"]}, a=("String", '{"b": "x"}'))


# Operators


def test_anything_but_takes_scalars_of_other_kinds() -> None:
    values: list[Any] = ["a", 6, True, False, None]
    for value in values:
        assert body_matches({"k": [{"anything-but": 5}]}, {"k": value})
        assert body_matches({"k": [{"anything-but": "b"}]}, {"k": value})
        assert body_matches({"k": [{"anything-but": {"prefix": "b"}}]}, {"k": value})
    assert not body_matches({"k": [{"anything-but": 5}]}, {"k": 5.0})
    assert not body_matches({"k": [{"anything-but": [1, 0]}]}, {"k": 1})
    assert body_matches({"k": [{"anything-but": [1, 0]}]}, {"k": True})


def test_booleans_are_no_numbers() -> None:
    assert not body_matches({"k": [1]}, {"k": True})
    assert not body_matches({"k": [False]}, {"k": 0})
    assert not body_matches({"k": [{"numeric": [">=", 0]}]}, {"k": True})
    assert body_matches({"k": [True, 0]}, {"k": [0.0]})
    assert not body_matches({"k": [1, 0]}, {"k": [True, False]})


@pytest.mark.parametrize(
    ("terms", "inside", "outside"),
    [
        (["=", 5], [5, 5.0], [4.99999, 5.00001, "5"]),
        (["<", 5], [4.99999, -1e12], [5, 6]),
        (["<=", 5], [5], [5.00001]),
        ([">", 5], [5.00001, 1e12], [5]),
        ([">=", -5], [-5], [-5.00001]),
        ([">", 1, "<", 2], [1.5], [1, 2]),
        ([">=", 1, "<=", 2], [1, 2], [0.99999, 2.00001]),
        ([">=", 1, "<", 2], [1], [2]),
        ([">", -1e9, "<=", 1e9], [1e9], [-1e9]),
    ],
)
def test_numeric_ranges(terms: list[Any], inside: list[Any], outside: list[Any]) -> None:
    for value in inside:
        assert body_matches({"k": [{"numeric": terms}]}, {"k": value})
    for value in outside:
        assert not body_matches({"k": [{"numeric": terms}]}, {"k": value})


def test_case_is_ignored_in_all_alphabets() -> None:
    for pattern, text in [("ŻÓŁĆ", "żółć"), ("ΟΔΟΣ", "οδος"), ("", ""), ("ß", "SS")]:
        assert body_matches({"k": [{"equals-ignore-case": pattern}]}, {"k": text})
    assert not body_matches({"k": [{"equals-ignore-case": "ab"}]}, {"k": "abc"})


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.0.0.77/24", "10.0.0.1", "10.0.1.0"),
        ("10.0.0.1/32", "10.0.0.1", "10.0.0.2"),
        ("0.0.0.0/0", "255.1.1.1", "::1"),
        ("::/0", "2001:DB8::1", "10.0.0.1"),
        ("2001:db8::/127", "2001:db8::1", "2001:db8::2"),
        ("fe80::/10", "fe80::1", "fe80::1%eth0"),
        ("10.0.0.0/8", "10.1.1.1", "10.1.1.01"),
        ("10.0.0.0/8", "10.1.1.1", "10.1.1.1 "),
        ("10.0.0.0/8", "10.1.1.1", "1" * 60),
        ("10.0.0.0/8", "10.1.1.1", "10"),
    ],
)
def test_networks(network: str, inside: str, outside: str) -> None:
    assert body_matches({"k": [{"cidr": network}]}, {"k": inside})
    assert not body_matches({"k": [{"cidr": network}]}, {"k": outside})
    assert not body_matches({"k": [{"cidr": network}]}, {"k": 167772161})


def test_one_condition_of_many_is_enough() -> None:
    conditions: list[Any] = [
        "x",
        {"prefix": "a"},
        {"prefix": "b"},
        {"suffix": "c"},
        {"suffix": "d"},
        None,
    ]
    conditions += [{"equals-ignore-case": "e"}, {"numeric": [">", 3]}, {"cidr": "10.0.0.0/8"}]
    for value in ("x", "a1", "b1", "1c", "1d", "E", 4, "10.1.2.3", None):
        assert body_matches({"k": conditions}, {"k": value})
    for value in ("y", "", "f", 3, True, "11.0.0.1"):
        assert not body_matches({"k": conditions}, {"k": value})


# Bodies


@pytest.mark.parametrize("body", ["", "text", "5", "null", "[]", '[{"k": 1}]', '{"k": 1', "\ud800"])
def test_other_bodies_than_objects_match_no_key(body: str) -> None:
    for condition in (1, None, {"exists": True}, {"exists": False}, {"anything-but": 2}):
        assert not body_matches({"k": [condition]}, body)
        assert not body_matches({"a": {"b": [condition]}}, body)
    assert body_matches({}, body)


def test_exists_is_about_leaves() -> None:
    nothing: list[Any] = [{"x": 1}, {}, [], [[], {}], [{"x": 1}]]
    for value in nothing:
        assert body_matches({"k": [{"exists": False}]}, {"k": value}), value
        assert not body_matches({"k": [{"exists": True}]}, {"k": value}), value
    leaves: list[Any] = [None, "", 0, False, [None], [[], [0]]]
    for value in leaves:
        assert body_matches({"k": [{"exists": True}]}, {"k": value}), value


def test_leaves_may_match_in_different_elements_of_an_array() -> None:
    body = {"items": [{"kind": "a", "size": 1}, [{"kind": "b"}], {"size": [2]}]}
    assert body_matches({"items": {"kind": ["b"], "size": [1]}}, body)
    assert body_matches({"items": {"kind": ["a"], "size": [2]}}, body)
    assert not body_matches({"items": {"kind": ["c"], "size": [2]}}, body)


def test_dots_are_anywhere() -> None:
    for body in (
        {"a": {"b": {"c": 1}}},
        {"a.b": {"c": 1}},
        {"a": {"b.c": 1}},
        {"a.b.c": 1},
        {"a": [{"b.c": 2}, {"b": [[{"c": 1}]]}]},
        {"a.b.c": [], "a": {"b": {"c": 1}}},
    ):
        for policy in ({"a.b.c": [1]}, {"a": {"b.c": [1]}}, {"a": {"b": {"c": [1]}}}):
            assert body_matches(policy, body)
            assert not body_matches(policy, {"x": body})
    assert body_matches({"": {"": [1]}}, {".": 1})
    assert body_matches({"a.": [1]}, {"a": {"": 1}})
    assert not body_matches({"a.b": [1]}, {"a": 1, "b": 1, "": 1})


def test_long_paths_are_cut_anywhere_too() -> None:
    path = ".".join("k" * 400)
    nested: Any = 1
    for _ in range(200):
        nested = {"k": {"k": nested}}
    assert body_matches({path: [1]}, nested)
    assert body_matches({path: [1]}, {path: 1})
    assert body_matches({path: [1]}, {path[:301]: [{path[302:]: 1}]})
    assert not body_matches({path: [1]}, {path[:301]: {path[303:]: 1}})
    assert not body_matches({path + "k": [1]}, nested)


def test_last_of_equal_keys_counts() -> None:
    assert body_matches('{"k": ["a"], "k": ["b"]}', '{"k": "a", "k": "b"}')
    assert not body_matches('{"k": ["a"], "k": ["b"]}', '{"k": "b", "k": "a"}')


def test_hostile_bodies_are_read_in_linear_time() -> None:
    size = 256 * 1024
    deep = '{"a":' * 1000 + "1" + "}" * 1000
    deeper = '{"a":' * 40000 + "1" + "}" * 40000
    rings = '{"a":{"a":1},"a.a":1}'
    while len(rings) < size // 3:
        rings = f'{{"a":{rings},"a.a":{rings}}}'
    wide = json.dumps({"a": [{"a": n, f"b{n}": n} for n in range(9000)]})
    for body in (deep, deeper, rings, wide, '{"a":' + "[" * 900 + "]" * 900 + "}"):
        subject = prepare_body(body)
        for path in ("a", "a.a", ".".join("a" * 17), ".".join("a" * 1000), ".".join("a" * 9999)):
            compiled({path: [1]}).matches(subject)
        for n in range(2000):
            assert not compiled({"a": {f"c{n}": [1]}}).matches(subject)


# Structure of policies


def test_or_needs_one_branch() -> None:
    policy = {"a": [1], "$or": [{"b": [1]}, {"c": [1], "$or": [{"d": [1]}, {"e": [1]}]}]}
    assert body_matches(policy, {"a": 1, "b": 1})
    assert body_matches(policy, {"a": 1, "c": 1, "e": 1})
    assert not body_matches(policy, {"a": 1, "c": 1})
    assert not body_matches(policy, {"b": 1})


def test_policy_without_keys_matches_everything() -> None:
    assert attributes_match({})
    assert body_matches({}, "text")


def test_key_in_two_branches_counts_once() -> None:
    keys = {key: [1] for key in "abcde"}
    assert compiled({"$or": [keys, keys]})
    assert "5 keys" in refusal({"$or": [keys, {"f": [1]}]})


def test_complexity_may_be_150() -> None:
    assert compiled({"k": [*range(150)]})
    assert compiled({"a": [*range(10)], "b": [*range(15)]})
    assert compiled({"a": {"b": [*range(75)]}})
    assert "complex" in refusal({"a": {"b": [*range(76)]}})
    nested: dict[str, Any] = {"k": [1]}
    for _ in range(149):
        nested = {"$or": [nested, {"k": [1]}]}
    assert body_matches(nested, {"k": 1})
    assert "complex" in refusal({"$or": [nested, {"k": [1]}]})


def test_numbers_are_compared_to_five_decimals() -> None:
    """Documented (docs/contract/sns.md 3.7)."""

    def matches(condition: Any, number: str) -> bool:
        return attributes_match({"k": [condition]}, k=("Number", number))

    for number in ("3.14159", "3.141592", "3.1415899", "31.4159e-1"):
        assert matches(3.14159, number), number
    for number in ("3.1416", "3.1415"):
        assert not matches(3.14159, number), number
    assert matches(0.1234567, "0.12346")
    assert matches({"numeric": ["=", 1.000001]}, "1")
    assert not matches({"numeric": [">", 1]}, "1.000004")
    assert not matches({"anything-but": [1]}, "1.000004")
    assert body_matches({"k": [1.5]}, {"k": [1.500001]})
    assert body_matches({"k": [1.5]}, {"k": [*range(10), 1.500001]})


@pytest.mark.parametrize(("text", "matches"), [("100", True), ("500.0", True), ("7", False)])
def test_an_array_that_is_a_number_alone(text: str, matches: bool) -> None:
    """An emulator's choice, not recorded (docs/contract/sns.md 3.7)."""
    assert attributes_match({"k": [100, 500]}, k=("String.Array", text)) == matches


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ('{"k":' * 900 + "[1]" + "}" * 900, "Filter policy is too complex"),
        ('{"$or":[{"k":[1]},' * 400 + "{}" + "]}" * 400, "Filter policy is too complex"),
        ([], "Filter is not an object"),
        ("null", "Filter is not an object"),
        ({"k": {}}, "Empty objects are not allowed"),
        ({"k": [{}]}, "Empty objects are not allowed"),
        ({"k": None}, '"k" must be an object or an array'),
        ({"k\x00\n" + "x" * 999: 1}, f'"k??{"x" * 253}" must be an object or an array'),
        ({"$or": {"k": [1]}}, '"$or" must be an array'),
        ({"$or": []}, "Empty arrays are not allowed"),
        ({"$or": [{"k": [1]}]}, 'There must have at least 2 Objects in "$or" relationship.'),
        ({"$or": [1, 2]}, 'Only JSON object is allowed in array of "$or" relationship.'),
        ({"$or": [{"k": [1]}, {}]}, "Empty objects are not allowed"),
        ({"k": [[1]]}, "Match value must be String, number, true, false, or null"),
        ({"k": [{"wildcard": "a*"}]}, "Unrecognized match type wildcard"),
        ({"k": [{"\x07": "a*"}]}, "Unrecognized match type ?"),
        ({"k": [{"prefix": 1}]}, "prefix match pattern must be a string"),
        ({"k": [{"equals-ignore-case": 1}]}, "equals-ignore-case match pattern must be a string"),
        ({"k": [{"exists": True, "prefix": ""}]}, "Only one key allowed in match expression"),
        ({"k": [{"exists": 1}]}, "exists match pattern must be either true or false."),
        ({"k": [1000000001]}, "Value must be between -1.0E9 and 1.0E9, inclusive"),
        ({"k": [-1e10]}, "Value must be between -1.0E9 and 1.0E9, inclusive"),
        ({"k": [10**40]}, "Value must be between -1.0E9 and 1.0E9, inclusive"),
        ({"k": [{"anything-but": 1e10}]}, "Value must be between -1.0E9 and 1.0E9, inclusive"),
        ({"k": [{"numeric": ["<", 1e10]}]}, "Value must be between -1.0E9 and 1.0E9, inclusive"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_refusals(policy: Any, text: str) -> None:
    assert refusal(policy) == f"FilterPolicy: {text}"


@pytest.mark.parametrize(
    ("operator", "operand", "text"),
    [
        ("numeric", 5, "Value of numeric must be an array."),
        ("numeric", [[]], "Invalid member in numeric match: ["),
        ("numeric", [{}], "Invalid member in numeric match: {"),
        ("numeric", [None], "Invalid member in numeric match: null"),
        ("numeric", [1.5], "Invalid member in numeric match: 1.5"),
        ("numeric", ["=", True], "Value of equals must be numeric"),
        ("numeric", ["=", 1, 2], "Too many elements in numeric expression"),
        ("numeric", [">", 1, "<", 1], "Bottom must be less than top"),
        ("numeric", [">", 1, None], "Bad value in numeric range: null"),
        ("anything-but", [], "Empty arrays are not allowed"),
        ("anything-but", {}, "Anything-But expression name not found"),
        ("anything-but", {"prefix": ""}, "Null prefix/suffix not allowed"),
        ("anything-but", {"prefix": "a", "b": 1}, "Only one key allowed in match expression"),
        ("anything-but", {"wildcard": "a*"}, "Unsupported anything-but pattern: wildcard"),
        (
            "anything-but",
            {"equals-ignore-case": "a"},
            "Unsupported anything-but pattern: equals-ignore-case",
        ),
        ("anything-but", None, "Inside anything but list, start|null|boolean is not supported."),
        ("anything-but", [True], "Inside anything but list, start|null|boolean is not supported."),
        (
            "anything-but",
            ["a", 1],
            "Inside anything but list, either all values are number or string, "
            "mixed type is not supported",
        ),
        ("cidr", "", "Malformed CIDR, one '/' required"),
        ("cidr", "10.0.0.0/", "Malformed CIDR, one '/' required"),
        ("cidr", "10.0.0.0/8/8", "Malformed CIDR, one '/' required"),
        ("cidr", "10.0.0.0/ 8", "Malformed CIDR, mask bits must be an integer"),
        ("cidr", "10.0.0.0/" + "9" * 5000, "Malformed CIDR, mask bits must be an integer"),
        ("cidr", "10.0.0.0/-1", "Malformed CIDR, mask bits must not be negative"),
        ("cidr", "10.0.0.0/33", "Malformed CIDR, mask bits must not be more than 32"),
        ("cidr", "::/129", "Malformed CIDR, mask bits must not be more than 128"),
        ("cidr", "10.0.0.0\n/8", "Nonstandard IP address: 10.0.0.0?"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_refused_operands(operator: str, operand: Any, text: str) -> None:
    assert refusal({"k": [{operator: operand}]}) == f"FilterPolicy: {text}"


def test_policies_have_256_kb_at_most() -> None:
    policy = '{"k": ["' + "ż" * (128 * 1024 - 6) + '"]}'
    assert len(policy.encode()) == 256 * 1024 - 1
    assert compiled(policy + " ")
    text = "FilterPolicy: Filter policy can not be larger than 262144 bytes"
    assert refusal(policy + "  ") == text
    assert refusal("x" * 2**20) == text


def test_only_bodies_have_nested_policies() -> None:
    text = "Filter policy scope MessageAttributes does not support nested filter policy"
    assert refusal({"$or": [{"a": [1]}, {"b": {"c": [1]}}]}, "MessageAttributes") == text


@pytest.mark.parametrize(
    ("policy", "reason", "column"),
    [
        ('{"key_a":"value_one"}', '"key_a" must be an object or an array', 11),
        ('{"key": []}', "Empty arrays are not allowed", 11),
        ('{"k":[{"suffixx":"v"}]}', "Unrecognized match type suffixx", 19),
        ('{"k":[{"suffix":100}]}', "suffix match pattern must be a string", 20),
        ('{"k":[{"prefix":"a","suffix":"b"}]}', "Only one key allowed in match expression", 31),
        ('{"k":[{"numeric":[">=","1"]}]}', "Value of >= must be numeric", 25),
        ('{"k":[{"numeric":[">="]}]}', "Value of >= must be numeric", 24),
        ('{"k":["a",["b"]]}', "Match value must be String, number, true, false, or null", 12),
        ('{"k":{}}', "Empty objects are not allowed", 8),
        ('{"k":[{"anything-but":{"prefix":1}}]}', "prefix match pattern must be a string", 34),
        ('{"$or":[{"a":[1]},7]}', None, 20),
        ('{"k":[9e9]}', "Value must be between -1.0E9 and 1.0E9, inclusive", 10),
        ('{"a":[1],"k":[{"exists":1}],"z":{}}', None, 26),
    ],
)
def test_refusals_name_the_place_of_the_value(policy: str, reason: str | None, column: int) -> None:
    """The column is that of AWS's reader: docs/contract/sns.md 3.7."""
    with pytest.raises(Malformed) as caught:
        compiled(policy)
    first, _, second = str(caught.value).partition("\n")
    assert reason is None or first == f"FilterPolicy: {reason}"
    assert second == f' at [Source: (String)"{policy}"; line: 1, column: {column}]'


def test_places_count_lines_and_show_the_beginning() -> None:
    policy = '{\n "a": [1],\n "b": ["' + "x" * 600 + '", []]}'
    with pytest.raises(Malformed) as caught:
        compiled(policy)
    left = len(policy) - 500
    shown = f'(String)"{policy[:500]}"[truncated {left} chars]'
    assert str(caught.value).endswith(f"\n at [Source: {shown}; line: 3, column: 613]")


@pytest.mark.parametrize(
    ("text", "reason", "column"),
    [
        (
            "{invalid",
            "Unexpected character ('i' (code 105)): was expecting double-quote to start field name",
            2,
        ),
        ('{"a": }', "Unexpected character ('}' (code 125)): expected a valid value", 7),
        ('{"a" 1}', "Unexpected character ('1' (code 49)): was expecting a colon", 6),
        ('{"a":[1 2]}', "Unexpected character ('2' (code 50)): was expecting comma", 9),
        ('{"a":[nope]}', "Unrecognized token 'nope': was expecting (JSON String", 11),
        ('{"a":["\\q"]}', "Unrecognized character escape 'q' (code 113)", 10),
        ('{"a":["\t"]}', "Illegal unquoted character ((CTRL-CHAR, code 9))", 9),
        ('{"a":["x', "Unexpected end-of-input: was expecting closing quote", 9),
        ('{"a":[1,', "Unexpected end-of-input: expected close marker for Array", 9),
        ("", "No content to map due to end-of-input", 1),
        ('{\n"k": }', "Unexpected character ('}' (code 125))", None),
        # Only the first parser complains, in its own words.
        ('{"a":[1]} x', "", 11),
        ('{"k": ["\ud800"]}', "", None),
        ('{"k": ["\\ud800"]}', "", None),
        ('{"k": [1e400]}', "", None),
        ('{"k": ' + "[" * 100000 + "]" * 100000, "", None),
    ],
)
def test_a_policy_that_is_no_json_is_refused_in_the_words_of_its_parser(
    text: str, reason: str, column: int | None
) -> None:
    with pytest.raises(Malformed) as caught:
        parse(text, "MessageBody")
    found = str(caught.value)
    assert found.startswith(f"FilterPolicy: failed to parse JSON. {reason}")
    assert (
        "\n at [Source: REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled)" in found
    )
    assert column is None or found.endswith(f"; line: 1, column: {column}]")


@pytest.mark.parametrize("policy", ["[" * 200_000, '{"a":' * 90_000, '{"a":[' + "1," * 90_000])
def test_long_and_deep_texts_are_refused_without_their_place(policy: str) -> None:
    assert "FilterPolicy: " in refusal(policy)
    with pytest.raises(Unplaced):
        PlacedPolicy(policy)
