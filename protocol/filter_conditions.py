"""The conditions of one key of a filter policy (docs/contract/sns.md 3.7), compiled to one test.

Refusals have AWS's wording; a few, for what nobody has recorded, only resemble it.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NoReturn, TypeVar

import orjson

from queuegate.protocol.errors import Malformed
from queuegate.protocol.filter_places import END
from queuegate.protocol.filter_ranges import Range, closed, within
from queuegate.protocol.filter_subjects import OPAQUE, UNREADABLE, Found, token

Test = Callable[[Found], bool]
_Asked = TypeVar("_Asked")

_LARGEST_NUMBER = 1_000_000_000
_LONGEST_NAME = 256
_LONGEST_ADDRESS = 45
_MASK_BITS = re.compile(r"-?[0-9]{1,9}")
# ipaddress would also take a zone after the address.
_ADDRESS = re.compile(r"[0-9A-Fa-f:.]{2,45}")


def compile_conditions(conditions: list[Any]) -> Test:
    """Whether what a message has at the key satisfies one of the conditions, at least one.

    Raises PolicyRefused.
    """
    return _Conditions(conditions).test()


class PolicyRefused(Malformed):
    """A policy that AWS's compiler refuses.

    `where` is an object or array of the policy and a key of it: the value that is at fault.
    """

    def __init__(self, reason: str, where: tuple[Any, Any] | None = None) -> None:
        super().__init__(f"FilterPolicy: {reason}")
        self.where = where


def refuse(reason: str, container: Any = None, key: Any = END) -> NoReturn:
    raise PolicyRefused(reason, None if container is None else (container, key))


def named(text: str) -> str:
    """A name of the policy as a refusal quotes it: not too long, and without control characters."""
    text = text[:_LONGEST_NAME]
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "?" for each in text)


def any_of(tests: list[Callable[[_Asked], bool]]) -> Callable[[_Asked], bool]:
    """Whether one of the tests, at least one, says yes."""
    if len(tests) == 1:
        return tests[0]

    def test(asked: _Asked) -> bool:
        for each in tests:  # noqa: SIM110 any() with a generator takes twice the time
            if each(asked):
                return True
        return False

    return test


class _Conditions:
    """Collects what can be tested at once, so that ten values cost as much as one."""

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
    except PolicyRefused as refused:
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
    """What stands for a scalar of the policy. More than 5 decimals are taken, and not compared."""
    if _is_number(value) and not -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER:
        refuse("Value must be between -1.0E9 and 1.0E9, inclusive")
    return token(value)


def _term(terms: list[Any], index: int) -> Any:
    return terms[index] if index < len(terms) else None


def _shown(terms: list[Any], index: int) -> str:
    """A term as AWS's parser names it: the end of the array is `]`."""
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
    # Folding never shortens a text, so that long bodies need not be folded.
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
    """Whether a value does not begin with one of them, at least one."""
    longest = max(prefixes, key=len)
    if not all(map(longest.startswith, prefixes)):
        # No text begins with all of them.
        return lambda found: not _NOTHING_ELSE.issuperset(found)

    def test(found: Found) -> bool:
        for value in found:
            if not value.startswith(longest) if type(value) is str else value is not OPAQUE:
                return True
        return False

    return test


def _network(operand: Any) -> tuple[int, Range]:
    """Bits of an address of its kind, 32 or 128, and the addresses of the network."""
    # AWS says prefix here, too.
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


# A message may be of tens of thousands of addresses, and each policy of its topic asks for them.
@lru_cache(maxsize=32_768)
def _address(text: str) -> tuple[int, int] | None:
    """Bits of an address of its kind, 32 or 128, and the address; None if the text is none."""
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
