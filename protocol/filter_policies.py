"""Filter policies of SNS subscriptions (docs/contract/sns.md 3.7), parsed once and matched per
message.

policy = parse(text, "MessageAttributes"); subject = prepare_attributes(attributes), once for all
policies of this scope; policy.matches(subject)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from queuegate.protocol.filter_conditions import (
    REDACTED,
    FilterPolicyRefused,
    NoJson,
    PlacedPolicy,
    Unplaced,
    any_of,
    compile_conditions,
    named,
    place,
    refuse,
)
from queuegate.protocol.filter_subjects import FilterSubject, prepare_attributes, prepare_body
from queuegate.protocol.malformed import Malformed

__all__ = ["FilterPolicy", "FilterSubject", "Scope", "parse", "prepare_attributes", "prepare_body"]

Scope = Literal["MessageAttributes", "MessageBody"]
_Rule = Callable[[FilterSubject], bool]

_LARGEST_BYTES = 256 * 1024
_MOST_KEYS = 5
_MOST_COMBINATIONS = 150


@dataclass(frozen=True, slots=True)
class FilterPolicy:
    """A compiled policy. `matches` takes a subject of its scope: see prepare_attributes,
    prepare_body."""

    scope: Scope
    matches: Callable[[FilterSubject], bool]


def parse(text: str, scope: Scope) -> FilterPolicy:
    """Parse a policy. Raises Malformed with AWS's text after "Invalid parameter: ".

    The second line of the text has the place of the value at fault (`filter_conditions.place`),
    unless the policy is very long. The policy `{}` matches everything. Of two equal keys in an
    object the last one counts, as in AWS's matcher (EventBridge ruler) and LocalStack.
    """
    policy = _read(text)
    try:
        return _compiled(policy, scope)
    except FilterPolicyRefused as refused:
        raise Malformed(f"{refused}{_place(text, scope, refused)}") from None


def _compiled(policy: dict[str, Any], scope: Scope) -> FilterPolicy:
    rules, _ = _Compiler(scope).rules(policy, "", depth=1, level=1) if policy else ([], 1)
    return FilterPolicy(scope, _all_of(rules))


def _place(text: str, scope: Scope, refused: FilterPolicyRefused) -> str:
    """Return the place of the refused value: the policy is read again, with places."""
    if refused.where is None:
        return ""
    try:
        placed = PlacedPolicy(text)
    except (NoJson, Unplaced):
        return ""
    try:
        _compiled(placed.value, scope)
    except FilterPolicyRefused as again:
        return placed.place_of(*again.where) if again.where else ""
    return ""


def stored(text: str | None, *, by_body: bool) -> FilterPolicy | None:
    """Return the policy of a subscription, which was checked when it was set; None: there is
    none."""
    return parse(text, "MessageBody" if by_body else "MessageAttributes") if text else None


def _read(text: str) -> dict[str, Any]:
    if len(text) > _LARGEST_BYTES or len(text.encode(errors="replace")) > _LARGEST_BYTES:
        refuse(f"Filter policy can not be larger than {_LARGEST_BYTES} bytes")
    try:
        policy = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        refuse(f"failed to parse JSON. {_fault(text, error)}")
    if not isinstance(policy, dict):
        refuse("Filter is not an object")
    return policy


def _fault(text: str, error: orjson.JSONDecodeError) -> str:
    """Return the place and the reason of a JSON error, in the words of AWS's parser."""
    try:
        PlacedPolicy(text)
    except NoJson as no_json:
        return str(no_json)
    except Unplaced:
        pass
    return f"{error.msg}{place(text, error.pos, REDACTED)}"


class _Compiler:
    """The rules of one policy. Each limit is checked early: a hostile policy costs no more than a
    valid one."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._paths: set[str] = set()

    def rules(
        self, members: dict[str, Any], prefix: str, *, depth: int, level: int
    ) -> tuple[list[_Rule], int]:
        """Return the rules of an object, which must all hold, and the number of its combinations.

        `prefix` and `depth` are those of its keys. `level` also counts `$or`: each level adds at
        least a combination, so the limit of combinations bounds the recursion.
        """
        if not members:
            refuse("Empty objects are not allowed", members)
        # "$or" is no key.
        if len(members) > _MOST_KEYS + 1:
            _refuse_keys()
        _check_combinations(level)
        rules: list[_Rule] = []
        combinations = 1
        for key, value in members.items():
            if key == "$or":
                found, count = self._alternatives(members, prefix, depth=depth, level=level)
            elif isinstance(value, dict):
                below = f"{prefix}{key}."
                found, count = self.rules(value, below, depth=depth + 1, level=level + 1)
                if self._scope == "MessageAttributes":
                    raise Malformed(
                        "Filter policy scope MessageAttributes does not support nested filter "
                        "policy"
                    )
            elif isinstance(value, list):
                count = len(value) * depth
                _check_combinations(count)
                found = [self._leaf(prefix + key, value)]
            else:
                refuse(f'"{named(key)}" must be an object or an array', members, key)
            rules += found
            combinations *= count
            _check_combinations(combinations)
        return rules, combinations

    def _alternatives(
        self, members: dict[str, Any], prefix: str, *, depth: int, level: int
    ) -> tuple[list[_Rule], int]:
        branches = members["$or"]
        if not isinstance(branches, list):
            refuse('"$or" must be an array', members, "$or")
        if not branches:
            refuse("Empty arrays are not allowed", branches)
        for index, branch in enumerate(branches):
            if not isinstance(branch, dict):
                text = 'Only JSON object is allowed in array of "$or" relationship.'
                refuse(text, branches, index)
        if len(branches) < 2:
            refuse('There must have at least 2 Objects in "$or" relationship.', branches)
        alternatives: list[_Rule] = []
        combinations = 0
        for branch in branches:
            rules, count = self.rules(branch, prefix, depth=depth, level=level + 1)
            alternatives.append(_all_of(rules))
            combinations += count
            _check_combinations(combinations)
        return [any_of(alternatives)], combinations

    def _leaf(self, path: str, conditions: list[Any]) -> _Rule:
        if not conditions:
            refuse("Empty arrays are not allowed", conditions)
        self._paths.add(path)
        if len(self._paths) > _MOST_KEYS:
            _refuse_keys()
        test = compile_conditions(conditions)
        return lambda subject: test(subject[path])


def _check_combinations(count: int) -> None:
    if count > _MOST_COMBINATIONS:
        refuse("Filter policy is too complex")


def _refuse_keys() -> None:
    refuse(f"Filter policy can not have more than {_MOST_KEYS} keys")


def _all_of(rules: list[_Rule]) -> _Rule:
    if not rules:
        return lambda subject: True
    if len(rules) == 1:
        return rules[0]
    if len(rules) == 2:
        first, second = rules
        return lambda subject: first(subject) and second(subject)

    def rule(subject: FilterSubject) -> bool:
        for each in rules:  # noqa: SIM110 all() with a generator takes twice the time
            if not each(subject):
                return False
        return True

    return rule
