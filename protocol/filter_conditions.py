"""Conditions of filter policies (docs/contract/sns.md 3.7): their ranges, their compiled tests, and
the places that refusals name.

Refusals have AWS's wording; a few that nobody has recorded only resemble it. AWS reads policies
with Jackson. A place is the column after the opening character of a text, an object or an array, or
after the last character of another value. After a key the parser has reached the value already.
Jackson also words the refusals of texts that are not JSON.
"""

from __future__ import annotations

import contextlib
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any, Final, NoReturn, TypeVar

import orjson

from queuegate.protocol.filter_subjects import OPAQUE, UNREADABLE, Found, token
from queuegate.protocol.malformed import Malformed

END: Final = object()
"""Key for the place of the bracket that closes an object or array."""

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


Range = tuple[float, float]
"""An interval with both ends included."""


def closed(lower: str, bottom: float, upper: str, top: float) -> Range:
    """Return the range between two bounds, `>` or `>=` and `<` or `<=`, of at most 10^9. No double
    and no whole number lies between such a bound and the next double."""
    if lower == ">":
        bottom = math.nextafter(bottom, math.inf)
    if upper == "<":
        top = math.nextafter(top, -math.inf)
    return bottom, top


def within(ranges: Iterable[Range]) -> Callable[[float], bool]:
    """Return a test whether a number is in one of the ranges, at least one. Ranges are joined
    first, so the test is cheap for any policy."""
    joined: list[Range] = []
    for bottom, top in sorted(ranges):
        if bottom > top:
            continue
        if joined and bottom <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(top, joined[-1][1])
        else:
            joined.append((bottom, top))
    if len(joined) == 1:
        [(only_bottom, only_top)] = joined
        return lambda number: only_bottom <= number <= only_top
    bottoms = [bottom for bottom, _ in joined]
    tops = [top for _, top in joined]

    def test(number: float) -> bool:
        index = bisect_right(bottoms, number) - 1
        return index >= 0 and number <= tops[index]

    return test


Test = Callable[[Found], bool]
_Asked = TypeVar("_Asked")

_LARGEST_NUMBER = 1_000_000_000
_LONGEST_NAME = 256
_LONGEST_ADDRESS = 45
_MASK_BITS = re.compile(r"-?[0-9]{1,9}")
# ipaddress also accepts a zone after the address.
_ADDRESS = re.compile(r"[0-9A-Fa-f:.]{2,45}")


def compile_conditions(conditions: list[Any]) -> Test:
    """Return a test whether a value at the key satisfies one of the conditions, at least one.
    Raises FilterPolicyRefused."""
    return _Conditions(conditions).test()


class FilterPolicyRefused(Malformed):
    """A policy that AWS's compiler refuses. `where` is an object or array of the policy and a key
    in it: the value at fault."""

    def __init__(self, reason: str, where: tuple[Any, Any] | None = None) -> None:
        super().__init__(f"FilterPolicy: {reason}")
        self.where = where


def refuse(reason: str, container: Any = None, key: Any = END) -> NoReturn:
    raise FilterPolicyRefused(reason, None if container is None else (container, key))


def named(text: str) -> str:
    """Quote a name of the policy for a refusal: shortened, without control characters."""
    text = text[:_LONGEST_NAME]
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "?" for each in text)


def any_of(tests: list[Callable[[_Asked], bool]]) -> Callable[[_Asked], bool]:
    """Return a test whether one of the tests, at least one, succeeds."""
    if len(tests) == 1:
        return tests[0]

    def test(asked: _Asked) -> bool:
        for each in tests:  # noqa: SIM110 any() with a generator takes twice the time
            if each(asked):
                return True
        return False

    return test


class _Conditions:
    """A collection of conditions that are tested at once, so that ten values cost as much as
    one."""

    def __init__(self, conditions: list[Any]) -> None:
        self._exact: set[Any] = set()
        self._folded: set[str] = set()
        self._prefixes: list[str] = []
        self._suffixes: list[str] = []
        self._ranges: list[Range] = []
        self._networks: dict[int, list[Range]] = {}
        self._excluded_prefixes: list[str] = []
        self._others: list[Test] = []
        for index, condition in enumerate(conditions):
            with _at(conditions, index):
                self._add(condition)

    def test(self) -> Test:
        tests: list[Test] = []
        if self._exact:
            tests.append(_one_of(frozenset(self._exact)))
        tests += self._others
        if self._prefixes:
            tests.append(_begins(tuple(self._prefixes)))
        if self._suffixes:
            tests.append(_ends(tuple(self._suffixes)))
        if self._folded:
            tests.append(_equals_ignoring_case(frozenset(self._folded)))
        if self._ranges:
            tests.append(_between(within(self._ranges)))
        if self._networks:
            tests.append(_in_networks(self._networks))
        if self._excluded_prefixes:
            tests.append(_anything_but_prefixes(self._excluded_prefixes))
        return any_of(tests)

    def _add(self, condition: Any) -> None:
        if isinstance(condition, dict):
            self._add_operator(condition)
        elif isinstance(condition, list):
            refuse("Match value must be String, number, true, false, or null")
        else:
            self._exact.add(_exact(condition))

    def _add_operator(self, condition: dict[str, Any]) -> None:
        if not condition:
            refuse("Empty objects are not allowed", condition)
        operator, operand = next(iter(condition.items()))
        with _at(condition, operator):
            self._add_operation(operator, operand)
        _only_one_key(condition)

    def _add_operation(self, operator: str, operand: Any) -> None:
        if operator == "prefix":
            self._prefixes.append(_text("prefix", operand))
        elif operator == "suffix":
            self._suffixes.append(_text("suffix", operand))
        elif operator == "equals-ignore-case":
            self._folded.add(_text(operator, operand).casefold())
        elif operator == "numeric":
            self._add_numeric(operand)
        elif operator == "cidr":
            size, network = _network(operand)
            self._networks.setdefault(size, []).append(network)
        elif operator == "anything-but" and isinstance(operand, dict):
            self._excluded_prefixes.append(_excluded_prefix(operand))
        elif operator in _OTHERS:
            self._others.append(_OTHERS[operator](operand))
        else:
            refuse(f"Unrecognized match type {named(operator)}")

    def _add_numeric(self, terms: Any) -> None:
        if not isinstance(terms, list):
            refuse("Value of numeric must be an array.")
        operator = _term(terms, 0)
        if not isinstance(operator, str):
            refuse(f"Invalid member in numeric match: {_shown(terms, 0)}", *_nth(terms, 0))
        if operator not in ("=", "<", "<=", ">", ">="):
            refuse(f"Unrecognized numeric range operator: {named(operator)}", terms, 0)
        value = _operand(terms, 1, "equals" if operator == "=" else operator)
        if operator in (">", ">=") and len(terms) > 2:
            upper, top = _upper_bound(terms, value)
            self._ranges.append(closed(operator, value, upper, top))
            return
        if len(terms) > 2:
            refuse("Too many elements in numeric expression", terms, 2)
        if operator == "=":
            self._exact.add(value)
        elif operator in (">", ">="):
            self._ranges.append(closed(operator, value, "<=", float("inf")))
        else:
            self._ranges.append(closed(">=", float("-inf"), operator, value))


@contextlib.contextmanager
def _at(container: Any, key: Any) -> Iterator[None]:
    """Name the place of refusals that have none."""
    try:
        yield
    except FilterPolicyRefused as refused:
        refused.where = refused.where or (container, key)
        raise


def _nth(terms: list[Any], index: int) -> tuple[list[Any], Any]:
    return terms, index if index < len(terms) else END


def _text(operator: str, operand: Any) -> str:
    if not isinstance(operand, str):
        refuse(f"{operator} match pattern must be a string")
    return operand


def _only_one_key(condition: dict[str, Any]) -> None:
    if len(condition) > 1:
        refuse("Only one key allowed in match expression", condition, list(condition)[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _exact(value: Any) -> Any:
    """Return the token of a scalar of the policy. More than 5 decimals are accepted and not
    compared."""
    if _is_number(value) and not -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER:
        refuse("Value must be between -1.0E9 and 1.0E9, inclusive")
    return token(value)


def _term(terms: list[Any], index: int) -> Any:
    return terms[index] if index < len(terms) else None


def _shown(terms: list[Any], index: int) -> str:
    """Return a term as AWS's parser names it: the end of the array is `]`."""
    if index >= len(terms):
        return "]"
    term = terms[index]
    if isinstance(term, list):
        return "["
    if isinstance(term, dict):
        return "{"
    return named(term) if isinstance(term, str) else orjson.dumps(term).decode()


def _operand(terms: list[Any], index: int, operator: str) -> float:
    value = _term(terms, index)
    if not _is_number(value):
        refuse(f"Value of {operator} must be numeric", *_nth(terms, index))
    with _at(terms, index):
        return float(_exact(value))


def _upper_bound(terms: list[Any], bottom: float) -> tuple[str, float]:
    operator = terms[2]
    if not isinstance(operator, str):
        refuse(f"Bad value in numeric range: {_shown(terms, 2)}", terms, 2)
    if operator not in ("<", "<="):
        refuse(f"Bad numeric range operator: {named(operator)}", terms, 2)
    top = _operand(terms, 3, operator)
    if top <= bottom:
        refuse("Bottom must be less than top", terms, 3)
    if len(terms) > 4:
        refuse("Too many terms in numeric range expression", terms, 4)
    return operator, top


def _between(is_within: Callable[[float], bool]) -> Test:
    def test(found: Found) -> bool:
        for value in found:
            kind = type(value)
            if (kind is float or kind is int) and is_within(value):
                return True
        return False

    return test


def _one_of(values: frozenset[Any]) -> Test:
    is_disjoint = values.isdisjoint
    return lambda found: not is_disjoint(found)


def _begins(prefixes: tuple[str, ...]) -> Test:
    def test(found: Found) -> bool:
        for value in found:  # noqa: SIM110
            if type(value) is str and value.startswith(prefixes):
                return True
        return False

    return test


def _ends(suffixes: tuple[str, ...]) -> Test:
    def test(found: Found) -> bool:
        for value in found:  # noqa: SIM110
            if type(value) is str and value.endswith(suffixes):
                return True
        return False

    return test


def _equals_ignoring_case(folded: frozenset[str]) -> Test:
    # Folding never shortens a text, so long bodies need no folding.
    longest = max(map(len, folded))

    def test(found: Found) -> bool:
        for value in found:
            if type(value) is str and len(value) <= longest and value.casefold() in folded:
                return True
        return False

    return test


def _exists(operand: Any) -> Test:
    if not isinstance(operand, bool):
        refuse("exists match pattern must be either true or false.")
    if operand:
        return lambda found: bool(found) and found is not UNREADABLE
    return lambda found: not found


def _anything_but(operand: Any) -> Test:
    values = operand if isinstance(operand, list) else [operand]
    if not values:
        refuse("Empty arrays are not allowed", values)
    if not all(isinstance(value, str) or _is_number(value) for value in values):
        refuse("Inside anything but list, start|null|boolean is not supported.")
    if len({isinstance(value, str) for value in values}) > 1:
        refuse(
            "Inside anything but list, either all values are number or string, "
            "mixed type is not supported"
        )
    has_all_of = frozenset({OPAQUE, *map(_exact, values)}).issuperset
    return lambda found: not has_all_of(found)


def _excluded_prefix(operand: dict[str, Any]) -> str:
    if not operand:
        refuse("Anything-But expression name not found", operand)
    operator, prefix = next(iter(operand.items()))
    with _at(operand, operator):
        if operator != "prefix":
            refuse(f"Unsupported anything-but pattern: {named(operator)}")
        excluded = _text("prefix", prefix)
        if not excluded:
            refuse("Null prefix/suffix not allowed")
    _only_one_key(operand)
    return excluded


def _anything_but_prefixes(prefixes: list[str]) -> Test:
    """Return a test whether a value begins with none of the prefixes, at least one."""
    longest = max(prefixes, key=len)
    if not all(map(longest.startswith, prefixes)):
        # No text begins with all prefixes.
        return lambda found: not _NOTHING_ELSE.issuperset(found)

    def test(found: Found) -> bool:
        for value in found:
            if not value.startswith(longest) if type(value) is str else value is not OPAQUE:
                return True
        return False

    return test


def _network(operand: Any) -> tuple[int, Range]:
    """Return the bits of the address family, 32 or 128, and the addresses of the network."""
    # AWS's text has "prefix" here, too.
    address, _, bits = _text("prefix", operand).partition("/")
    if not bits or "/" in bits:
        refuse("Malformed CIDR, one '/' required")
    if _MASK_BITS.fullmatch(bits) is None:
        refuse("Malformed CIDR, mask bits must be an integer")
    if bits.startswith("-"):
        refuse("Malformed CIDR, mask bits must not be negative")
    parsed = _address(address)
    if parsed is None:
        refuse(f"Nonstandard IP address: {named(address)}")
    size, number = parsed
    if int(bits) > size:
        refuse(f"Malformed CIDR, mask bits must not be more than {size}")
    host_bits = size - int(bits)
    first = number >> host_bits << host_bits
    return size, (first, first + (1 << host_bits) - 1)


def _in_networks(networks: dict[int, list[Range]]) -> Test:
    tests = {size: within(ranges) for size, ranges in networks.items()}

    def test(found: Found) -> bool:
        for value in found:
            if type(value) is str and len(value) <= _LONGEST_ADDRESS:
                parsed = _address(value)
                if parsed is not None:
                    size, number = parsed
                    if size in tests and tests[size](number):
                        return True
        return False

    return test


# A message may hold tens of thousands of addresses, and each policy of its topic reads them.
@lru_cache(maxsize=32_768)
def _address(text: str) -> tuple[int, int] | None:
    """Return the bits of the address family, 32 or 128, and the address; None: the text is no
    address."""
    if _ADDRESS.fullmatch(text) is None:
        return None
    try:
        return (128, int(IPv6Address(text))) if ":" in text else (32, int(IPv4Address(text)))
    except ValueError:
        return None


_NOTHING_ELSE: frozenset[Any] = frozenset({OPAQUE})
_OTHERS: dict[str, Callable[[Any], Test]] = {
    "exists": _exists,
    "anything-but": _anything_but,
}
