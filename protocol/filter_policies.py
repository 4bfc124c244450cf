"""Filter policies of SNS subscriptions (docs/contract/sns.md 3.7): `parse` once, then
`policy.matches(prepare_attributes(attributes))` for each message.

AWS reads policies with Jackson, which words the refusals of texts that are not JSON. A place is the
column after the opening character of a text, an object or an array, or after the last character of
another value. After a key the parser has reached the value already.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any, Final, Literal, NoReturn

import orjson

from queuegate.protocol.filter_conditions import (
    END,
    FilterPolicyRefused,
    FilterSubject,
    any_of,
    compile_conditions,
    named,
    prepare_attributes,
    prepare_body,
    refuse,
)
from queuegate.protocol.malformed import Malformed

__all__ = ["FilterPolicy", "FilterSubject", "Scope", "parse", "prepare_attributes", "prepare_body"]

Scope = Literal["MessageAttributes", "MessageBody"]
_Rule = Callable[[FilterSubject], bool]

_LARGEST_BYTES = 256 * 1024
_MOST_KEYS = 5
_MOST_COMBINATIONS = 150

REDACTED: Final = "REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled)"
_MOST_SHOWN = 500
_MOST_TOKENS = 2_000
_DEEPEST = 100
_VALUES = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[\w$]+")
_WORDS = {"true": True, "false": False, "null": None}


class NoJson(Exception):
    """A text that is not JSON; `str(error)` is Jackson's sentence and the place."""


class Unplaced(Exception):
    """A text too long or too deep for places."""


def place(text: str, offset: int, source: str | None = None) -> str:
    """Return the second line of a refusal: the source and the column after `offset` characters.
    `source` None: the policy itself, of which 500 characters are shown."""
    if source is None:
        shown = "".join(
            each if each.isprintable() or each == "\n" else "?" for each in text[:_MOST_SHOWN]
        )
        left = len(text) - len(shown)
        source = f'(String)"{shown}"' + (f"[truncated {left} chars]" if left else "")
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    return f"\n at [Source: {source}; line: {line}, column: {column}]"


class PlacedPolicy:
    """A policy with the place of each of its values. Raises NoJson and Unplaced."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._left = _MOST_TOKENS
        self._offsets: dict[tuple[int, Any], int] = {}
        self.value = self._value(0, None)[0]

    def place_of(self, container: Any, key: Any) -> str:
        """Return the second line of a refusal of the value at that key of the container."""
        return place(self._text, self._offsets.get((id(container), key), 1))

    def _value(self, depth: int, owner: int | None) -> tuple[Any, int]:
        """Read a value; return it and the offset that is its place."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise Unplaced
        text, start = self._text, self._skip(owner)
        character = text[start]
        if character == '"':
            return self._string(), start + 1
        if character in "{[":
            self._at = start + 1
            return (self._object if character == "{" else self._array)(depth, start), start + 1
        if number := _NUMBER.match(text, start):
            self._at = number.end()
            return float(number[0]), self._at
        word = _WORD.match(text, start)
        if word is None:
            self._unexpected(f"expected a valid value {_VALUES}")
        self._at = word.end()
        if word[0] not in _WORDS:
            self._refuse(f"Unrecognized token '{word[0][:256]}': was expecting {_VALUES}", self._at)
        return _WORDS[word[0]], self._at

    def _object(self, depth: int, start: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._has_next(found, "}", "Object", start):
            if self._text[self._at] != '"':
                self._unexpected("was expecting double-quote to start field name")
            key = self._string()
            if self._text[self._skip(start)] != ":":
                self._unexpected("was expecting a colon to separate field name and value")
            self._at += 1
            found[key], self._offsets[id(found), key] = self._value(depth + 1, start)
        return found

    def _array(self, depth: int, start: int) -> list[Any]:
        found: list[Any] = []
        while self._has_next(found, "]", "Array", start):
            value, self._offsets[id(found), len(found)] = self._value(depth + 1, start)
            found.append(value)
        return found

    def _has_next(self, found: Any, closing: str, kind: str, start: int) -> bool:
        """Read the separator of entries; return False after the closing bracket."""
        character = self._text[self._skip(start)]
        if character == closing:
            self._at += 1
            self._offsets[id(found), END] = self._at
            return False
        if found:
            if character != ",":
                self._unexpected(f"was expecting comma to separate {kind} entries")
            self._at += 1
            self._skip(start)
        return True

    def _string(self) -> str:
        try:
            value, self._at = scanstring(self._text, self._at + 1, True)
        except JSONDecodeError as error:
            if error.msg.startswith("Unterminated"):
                closing = "Unexpected end-of-input: was expecting closing quote for a string value"
                self._refuse(closing, len(self._text))
            character = self._text[error.pos : error.pos + 1]
            if error.msg.startswith("Invalid control"):
                self._refuse(
                    f"Illegal unquoted character ((CTRL-CHAR, code {ord(character)})): has to be "
                    "escaped using backslash to be included in string value",
                    error.pos + 1,
                )
            self._refuse(
                f"Unrecognized character escape {_quoted(self._text[error.pos + 1 :][:1])}",
                error.pos + 2,
            )
        return str(value)

    def _skip(self, owner: int | None) -> int:
        """Move to the next character that is no space, and return its offset. At the end of the
        text, the refusal names the start of the object or array `owner`."""
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        if self._at == len(self._text):
            if owner is None:
                self._refuse("No content to map due to end-of-input", self._at)
            began = place(self._text, owner, REDACTED).removeprefix("\n at ")
            what = "Object" if self._text[owner] == "{" else "Array"
            self._refuse(
                f"Unexpected end-of-input: expected close marker for {what} (start marker at "
                f"{began})",
                self._at,
            )
        return self._at

    def _unexpected(self, wanted: str) -> NoReturn:
        self._refuse(f"Unexpected character ({_quoted(self._text[self._at])}): {wanted}", self._at)

    def _refuse(self, sentence: str, offset: int) -> NoReturn:
        raise NoJson(sentence + place(self._text, offset, REDACTED))


def _quoted(character: str) -> str:
    """Quote a character as Jackson does, with its code."""
    code = ord(character) if character else 0
    if character.isprintable():
        return f"'{character}' (code {code})"
    return f"(CTRL-CHAR, code {code})"


@dataclass(frozen=True, slots=True)
class FilterPolicy:
    """A compiled policy. `matches` takes a subject of its scope: see prepare_attributes,
    prepare_body."""

    scope: Scope
    matches: Callable[[FilterSubject], bool]
    text: str


def parse(text: str, scope: Scope) -> FilterPolicy:
    """Parse a policy. Raises Malformed with AWS's text after "Invalid parameter: ". The second line
    of the text has the place of the value at fault (`filter_conditions.place`), unless the policy
    is very long. The policy `{}` matches everything. Of two equal keys in an object the last one
    counts, as in AWS's matcher (EventBridge ruler) and LocalStack."""
    policy = _read(text)
    try:
        return _compiled(policy, scope, text)
    except FilterPolicyRefused as refused:
        raise Malformed(f"{refused}{_place(text, scope, refused)}") from None


def _compiled(policy: dict[str, Any], scope: Scope, text: str) -> FilterPolicy:
    rules, _ = _Compiler(scope).rules(policy, "", depth=1, level=1) if policy else ([], 1)
    return FilterPolicy(scope, _all_of(rules), text)


def _place(text: str, scope: Scope, refused: FilterPolicyRefused) -> str:
    """Return the place of the refused value: the policy is read again, with places."""
    if refused.where is None:
        return ""
    try:
        placed = PlacedPolicy(text)
    except (NoJson, Unplaced):
        return ""
    try:
        _compiled(placed.value, scope, text)
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
        least a combination, so the limit of combinations bounds the recursion."""
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
