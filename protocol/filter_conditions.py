"""Conditions of filter policies (docs/contract/sns.md 3.7), and the attributes or the body of a
message that they test, by path.

A subject is prepared once for a message and shared by all policies of a topic. Each path is
searched at its first use, and `subject[path]` is a `Found`. Reading a body is linear in its size,
for any nesting and any policies. Refusals have AWS's wording; a few are not recorded and only
resemble it.
"""

from __future__ import annotations

import contextlib
import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, NoReturn, TypeVar

import orjson

from queuegate.protocol.malformed import Malformed
from queuegate.protocol.names import is_number

# The scalars at one path. Texts, numbers and None stand for themselves; true and false must not
# equal 1 and 0 and have values of their own. The set is empty if there is nothing at the path.
Found = frozenset[Any]

TRUE: Final = object()
FALSE: Final = object()
# This value equals no scalar, so it satisfies nothing but `exists`.
OPAQUE: Final = object()

ABSENT: Final[Found] = frozenset()
PRESENT: Final[Found] = frozenset({OPAQUE})
# Neither absent nor present: what a body without paths has everywhere. Known by identity.
UNREADABLE: Final[Found] = frozenset({OPAQUE})

_DECIMALS = 5
_NOT_PLAIN = frozenset({bool, float, list, dict})
# Fewer items are sooner looked at one by one.
_FEW = 8
# A longer path is compared with the keys that are there: to cut it at every dot, again in every
# object, could take quadratic time.
_MOST_DOTS = 16
_MOST_CHARACTERS = 256


class FilterSubject(dict[str, Found]):
    """The values that the paths of policies find. Look paths up with `subject[path]` only."""

    __slots__ = ()

    def __missing__(self, path: str) -> Found:
        found = self[path] = self._find(path)
        return found

    def _find(self, path: str) -> Found:
        raise NotImplementedError


def prepare_attributes(values: Mapping[str, Mapping[str, Any]]) -> FilterSubject:
    """Prepare message attributes in wire form, `{name: {"DataType", "StringValue"|"BinaryValue"}}`.
    Unreadable values (Binary, an invalid Number, a String.Array that is neither a JSON array nor a
    number) are present, and match nothing else."""
    return _Attributes(values)


def prepare_body(text: str) -> FilterSubject:
    """Prepare the body of a message. No policy with a key matches a body that is no JSON object."""
    return _Body(text)


def token(scalar: Any) -> Any:
    """Return the token of a JSON scalar in `Found`. Numbers are compared to five decimals."""
    if type(scalar) is float:
        return round(scalar, _DECIMALS)
    if scalar is True:
        return TRUE
    return FALSE if scalar is False else scalar


class _Attributes(FilterSubject):
    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        self._values = values

    def _find(self, path: str) -> Found:
        attribute = self._values.get(path)
        return ABSENT if attribute is None else _found_in_attribute(attribute)


def _found_in_attribute(attribute: Mapping[str, Any]) -> Found:
    value = attribute.get("StringValue")
    data_type = attribute.get("DataType")
    if not isinstance(value, str) or not isinstance(data_type, str):
        return PRESENT
    if data_type == "String.Array":
        return _found_in_array(value)
    base_type = data_type.partition(".")[0]
    if base_type == "String":
        return frozenset((value,))
    # A double tells apart all numbers that a policy may have: 10 digits and 5 decimals.
    if base_type == "Number" and is_number(value):
        return frozenset((token(float(value)),))
    return PRESENT


def _found_in_array(text: str) -> Found:
    """Read a String.Array. An empty array is present, unlike one in a body. A number alone counts
    as an array of one: LocalStack does so, and no recording decides (docs/contract/sns.md 3.7)."""
    try:
        array = orjson.loads(text)
    except orjson.JSONDecodeError:
        return PRESENT
    if type(array) in (int, float):
        array = [array]
    return (_spread(array)[0] or PRESENT) if isinstance(array, list) else PRESENT


class _Body(FilterSubject):
    __slots__ = ("_is_read", "_root", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._is_read = False
        self._root: _Level | None = None

    def _find(self, path: str) -> Found:
        if not self._is_read:
            self._read()
        if self._root is None:
            return UNREADABLE
        if "." not in path:
            return self._root.below(path)[0]
        return _find_dotted(self._root, path)

    def _read(self) -> None:
        self._is_read = True
        try:
            body = orjson.loads(self._text)
        except orjson.JSONDecodeError:
            return
        if isinstance(body, dict):
            self._root = _Level([body])


class _Level:
    """The objects of a body at one path; more than one if an array leads there. Objects are merged,
    so each part of a body is walked once for all paths and policies. Two keys may therefore match
    in different elements of an array: docs/contract/sns.md 3.7 leaves that open, and LocalStack
    does the same."""

    __slots__ = ("_known", "_members", "_objects")

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        self._objects = objects
        self._members: dict[str, Any] | None = None
        self._known: dict[str, tuple[Found, _Level | None]] = {}

    def members(self) -> dict[str, Any]:
        if self._members is None:
            self._members = _merged(self._objects)
        return self._members

    def below(self, key: str) -> tuple[Found, _Level | None]:
        """Return the scalars at a key, and the objects there."""
        known = self._known.get(key)
        if known is not None:
            return known
        members = self.members()
        if key not in members:
            return ABSENT, None
        found, objects = _spread(members[key])
        known = self._known[key] = found, _Level(objects) if objects else None
        return known

    def heads(self, path: str, start: int) -> Iterator[str]:
        """Return the keys that the path, from `start` on, is or passes."""
        members = self.members()
        cut = path.find(".", start)
        while cut >= 0:
            if (key := path[start:cut]) in members:
                yield key
            cut = path.find(".", cut + 1)
        if (key := path[start:]) in members:
            yield key

    def heads_of_long(self, path: str, start: int) -> Iterator[str]:
        """Do the same in time proportional to the number of keys."""
        end = len(path)
        for key in self.members():
            after = start + len(key)
            if path.startswith(key, start) and (after == end or path[after] == "."):
                yield key


def _find_dotted(root: _Level, path: str) -> Found:
    """Find a path in a body whose keys may contain dots."""
    is_long = len(path) > _MOST_CHARACTERS or path.count(".") > _MOST_DOTS
    heads = _Level.heads_of_long if is_long else _Level.heads
    parts: list[Found] = []
    pending = [(root, 0)]
    while pending:
        level, start = pending.pop()
        for key in heads(level, path, start):
            found, objects = level.below(key)
            after = start + len(key)
            if after == len(path):
                parts.append(found)
            elif objects is not None:
                pending.append((objects, after + 1))
    return ABSENT.union(*parts)


def _merged(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge objects into one: several values of a key become an array."""
    if len(objects) == 1:
        return objects[0]
    members: defaultdict[str, list[Any]] = defaultdict(list)
    for each in objects:
        for key, value in each.items():
            members[key].append(value)
    return members


def _spread(value: Any) -> tuple[Found, list[dict[str, Any]]]:
    """Return the scalars and objects of a value, out of arrays on any level. Empty ones vanish."""
    if not isinstance(value, list):
        if isinstance(value, dict):
            return ABSENT, [value]
        return frozenset((token(value),)), []
    scalars: set[Any] = set()
    objects: list[dict[str, Any]] = []
    arrays = [value]
    while arrays:
        array = arrays.pop()
        if len(array) > _FEW and _NOT_PLAIN.isdisjoint(map(type, array)):
            scalars.update(array)
            continue
        for item in array:
            if isinstance(item, dict):
                objects.append(item)
            elif isinstance(item, list):
                if item:
                    arrays.append(item)
            else:
                scalars.add(token(item))
    return frozenset(scalars), objects


END: Final = object()
"""Key for the place of the bracket that closes an object or array."""

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
        self._excluded: list[str] = []
        self._others: list[Test] = []
        for index, condition in enumerate(conditions):
            with _at(conditions, index):
                self._add(condition)

    def test(self) -> Test:
        return any_of(
            [
                *([_one_of(frozenset(self._exact))] if self._exact else ()),
                *self._others,
                *([_edges(str.startswith, self._prefixes)] if self._prefixes else ()),
                *([_edges(str.endswith, self._suffixes)] if self._suffixes else ()),
                *([_equals_ignoring_case(frozenset(self._folded))] if self._folded else ()),
                *([_between(within(self._ranges))] if self._ranges else ()),
                *([_in_networks(self._networks)] if self._networks else ()),
                *([_anything_but_prefixes(self._excluded)] if self._excluded else ()),
            ]
        )

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
            self._excluded.append(_excluded_prefix(operand))
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


def _edges(fits: Callable[[str, tuple[str, ...]], bool], texts: list[str]) -> Test:
    edges = tuple(texts)

    def test(found: Found) -> bool:
        for value in found:  # noqa: SIM110
            if type(value) is str and fits(value, edges):
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
_OTHERS: dict[str, Callable[[Any], Test]] = {"exists": _exists, "anything-but": _anything_but}
