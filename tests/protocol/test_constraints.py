import pytest

from queuegate.protocol import shapes
from queuegate.protocol.shapes import STRING, Constraint, List, Map, Scalar, Structure

NAME, AGE, MODE, KEY = Scalar("string"), Scalar("integer"), Scalar("string"), Scalar("string")
TAG = Structure({"Key": KEY})
TAGS = List(TAG)
INNER = Structure({"Mode": MODE, "Age": AGE})
REQUEST = Structure(
    {"Name": NAME, "Window": INNER, "Tags": TAGS, "Free": STRING, "More": Map(NAME)}
)
RULES: shapes.Constraints = {
    REQUEST: Constraint(required=("Name", "Window")),
    NAME: Constraint(1, 4, "[a-z]+"),
    AGE: Constraint(0, 9),
    MODE: Constraint(values=("ON", "OFF")),
    INNER: Constraint(required=("Mode",)),
    KEY: Constraint(least=1),
    TAG: Constraint(required=("Key",)),
    TAGS: Constraint(most=2),
}
GOOD = {"Name": "abc", "Window": {"Mode": "ON"}}


@pytest.mark.parametrize(
    ("changes", "breach"),
    [
        (
            {"Name": None},
            "Value null at 'name' failed to satisfy constraint: Member must not be null",
        ),
        (
            {"Name": "abcde"},
            "Value 'abcde' at 'name' failed to satisfy constraint: Member must have length less "
            "than or equal to 4",
        ),
        (
            {"Window": {"Mode": "on"}},
            "Value 'on' at 'window.mode' failed to satisfy constraint: Member must satisfy enum "
            "value set: [ON, OFF]",
        ),
        (
            {"Window": {"Mode": "ON", "Age": -1}},
            "Value '-1' at 'window.age' failed to satisfy constraint: Member must have value "
            "greater than or equal to 0",
        ),
        (
            {"Window": {"Mode": "ON", "Age": 10}},
            "Value '10' at 'window.age' failed to satisfy constraint: Member must have value less "
            "than or equal to 9",
        ),
        (
            {"Window": {}},
            "Value null at 'window.mode' failed to satisfy constraint: Member must not be null",
        ),
        (
            {"Tags": [{"Key": "a"}, {}]},
            "Value null at 'tags.2.member.key' failed to satisfy constraint: Member must not be "
            "null",
        ),
        (
            {"Tags": [{"Key": "a"}, {"Key": ""}]},
            "Value '' at 'tags.2.member.key' failed to satisfy constraint: Member must have length "
            "greater than or equal to 1",
        ),
        (
            {"Tags": [{}, {}, {}]},
            "Value '[3 elements]' at 'tags' failed to satisfy constraint: Member must have length "
            "less than or equal to 2",
        ),
        (
            {"More": {"k": "A"}},
            "Value 'A' at 'more.k.member' failed to satisfy constraint: Member must satisfy "
            "regular expression pattern: [a-z]+",
        ),
    ],
)
def test_one_breach(changes: dict[str, object], breach: str) -> None:
    found = shapes.constraint_errors(REQUEST, GOOD | changes, RULES)
    assert found == f"1 validation error detected: {breach}"


def test_what_keeps_the_rules_is_not_refused() -> None:
    whole = GOOD | {"Tags": [{"Key": "a"}], "Free": "", "More": {"k": "ab"}}
    assert shapes.constraint_errors(REQUEST, GOOD, RULES) is None
    assert shapes.constraint_errors(REQUEST, whole, RULES) is None


def test_all_breaches_are_counted_in_the_order_of_the_members() -> None:
    found = shapes.constraint_errors(REQUEST, {"Name": "", "Window": {"Age": 10}}, RULES) or ""
    head, _, rest = found.partition(": ")
    assert head == "4 validation errors detected"
    places = [part.split(" at ")[1].split(" ")[0] for part in rest.split("; ")]
    assert places == ["'name'", "'name'", "'window.mode'", "'window.age'"]


def test_a_pattern_is_for_the_whole_text_and_for_ascii() -> None:
    rules: shapes.Constraints = {NAME: Constraint(pattern=r"\d+")}
    assert shapes.constraint_errors(NAME, "12", rules) is None
    for text in ("12\n", "١٢", "1 2"):
        assert shapes.constraint_errors(NAME, text, rules) is not None, text


def test_a_long_value_is_not_sent_back_whole() -> None:
    found = shapes.constraint_errors(REQUEST, GOOD | {"Name": "x" * 100_000}, RULES) or ""
    assert "x" * 1024 + "...' at 'name'" in found
    assert len(found) < 2000
