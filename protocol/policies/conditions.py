"""Conditions of statements: all operators must hold, for all keys, with any of their values."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from operator import eq, ge, gt, le, lt
from typing import Any, Final, NamedTuple, TypeVar

from queuegate.protocol.malformed import Malformed
from queuegate.protocol.policies.patterns import Context, Matcher, Syntax, any_arn_of, any_of

_T = TypeVar("_T")
_Compiler = Callable[[Sequence[str], bool], Matcher]
"""Compiles the values of a policy, with a flag for variables."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?")
_SECONDS = re.compile(r"[0-9]{1,12}")
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})(?:-([0-9]{2})"
    r"(?:T([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)(Z|[+-][0-9]{2}:?[0-9]{2})?)?)?"
)
_FINEST = 26
"""Characters of an instant down to the microsecond."""


class Operator(NamedTuple):
    """A condition operator."""

    compile: _Compiler
    is_negated: bool = False
    """The condition holds if no value matches, and if the key is absent."""


def _equals(values: Sequence[str], has_variables: bool) -> Matcher:
    return any_of(values, Syntax(has_wildcards=False, has_variables=has_variables))


def _is_like(values: Sequence[str], has_variables: bool) -> Matcher:
    return any_of(values, Syntax(has_wildcards=True, has_variables=has_variables))


def _equals_in_any_case(values: Sequence[str], has_variables: bool) -> Matcher:
    matches = _equals([value.lower() for value in values], has_variables)

    def any_case(text: str, context: Context) -> bool:
        # Values of variables are compared without case, too.
        lowered = {key: [one.lower() for one in several] for key, several in context.items()}
        return matches(text.lower(), lowered)

    return any_case


def _arns(values: Sequence[str], has_variables: bool) -> Matcher:
    return any_arn_of(values, has_variables=has_variables, is_resource=False)


def _parsed_by(
    parse: Callable[[str], _T | None], what: str, compare: Callable[[_T, _T], Any] = eq
) -> _Compiler:
    """Return a compiler for values that are parsed before comparison. Unreadable values of a
    request match nothing."""

    def compiled(values: Sequence[str], _: bool) -> Matcher:
        wanted = [*_read(values, parse, what)]

        def matches(text: str, _: Context) -> bool:
            has = parse(text)
            return has is not None and any(compare(has, one) for one in wanted)

        return matches

    return compiled


def _read(values: Iterable[str], parse: Callable[[str], _T | None], what: str) -> Iterable[_T]:
    for value in values:
        one = parse(value)
        if one is None:
            raise Malformed(f"a condition needs {what}")
        yield one


def _number(text: str) -> Decimal | None:
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _instant(text: str) -> datetime | None:
    """Parse ISO 8601 as the W3C has it, from the month on, or seconds since 1970. The default zone
    is UTC."""
    try:
        if _SECONDS.fullmatch(text):
            return datetime.fromtimestamp(int(text), UTC)
        found = _INSTANT.fullmatch(text)
        if found is None:
            return None
        year, month, day, time, zone = found.groups()
        date = f"{year}-{month}-{day or '01'}T{time or '00:00'}"[:_FINEST]
        return datetime.fromisoformat(date + (zone or "Z").replace("Z", "+00:00"))
    except (ValueError, OverflowError):
        return None


def truth(text: str) -> bool | None:
    """Parse `true` or `false` in any case; None: neither."""
    return {"true": True, "false": False}.get(text.lower())


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None


class _Addresses(NamedTuple):
    """One address, or a range of them."""

    version: int
    first: int
    last: int


def _addresses(text: str) -> _Addresses | None:
    """Parse an address, or a range in CIDR notation."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    first = int(network.network_address)
    return _Addresses(network.version, first, first + network.num_addresses - 1)


def _is_within(has: _Addresses, wanted: _Addresses) -> bool:
    same = has.version == wanted.version
    return same and wanted.first <= has.first and has.last <= wanted.last


_NUMBERS = "a number"
_INSTANTS = "a date in ISO 8601"
_POSITIVE: Mapping[str, _Compiler] = {
    "StringEquals": _equals,
    "StringEqualsIgnoreCase": _equals_in_any_case,
    "StringLike": _is_like,
    "NumericEquals": _parsed_by(_number, _NUMBERS),
    "DateEquals": _parsed_by(_instant, _INSTANTS),
    "IpAddress": _parsed_by(_addresses, "an address or a range of addresses", _is_within),
    "ArnEquals": _arns,
    "ArnLike": _arns,
}
_NEGATED = {
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
    "NumericNotEquals": "NumericEquals",
    "DateNotEquals": "DateEquals",
    "NotIpAddress": "IpAddress",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
}
_ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "LessThan": lt,
    "LessThanEquals": le,
    "GreaterThan": gt,
    "GreaterThanEquals": ge,
}
OPERATORS: Mapping[str, Operator] = {
    **{name: Operator(compiler) for name, compiler in _POSITIVE.items()},
    **{name: Operator(_POSITIVE[opposite], True) for name, opposite in _NEGATED.items()},
    **{f"Numeric{n}": Operator(_parsed_by(_number, _NUMBERS, c)) for n, c in _ORDERS.items()},
    **{f"Date{n}": Operator(_parsed_by(_instant, _INSTANTS, c)) for n, c in _ORDERS.items()},
    "Bool": Operator(_parsed_by(truth, "true or false")),
    "BinaryEquals": Operator(_parsed_by(_bytes, "base64")),
}
"""All operators but Null, which tests the presence of a key."""


_ALL: Final = "ForAllValues"
_ANY: Final = "ForAnyValue"
_IF_EXISTS: Final = "IfExists"


class Condition(NamedTuple):
    """One key with an operator."""

    key: str
    matches: Matcher
    is_negated: bool
    wants_all: bool
    """All values of a request must hold, not only one."""
    when_absent: bool
    """The result for a request without a value under the key."""

    def holds(self, context: Context) -> bool:
        """Return True if the request satisfies the condition."""
        values = context.get(self.key)
        if not values:
            return self.when_absent
        verdicts = (self.matches(value, context) != self.is_negated for value in values)
        return all(verdicts) if self.wants_all else any(verdicts)


def compile_conditions(block: Any, *, has_variables: bool) -> tuple[Condition, ...]:
    """Return the conditions of a statement, which must all hold. Raises Malformed."""
    if not isinstance(block, dict):
        raise Malformed("Condition must be an object")
    return tuple(_conditions(block, has_variables=has_variables))


def _conditions(block: Mapping[str, Any], *, has_variables: bool) -> Iterator[Condition]:
    for name, tests in block.items():
        if not isinstance(tests, dict):
            raise Malformed("a condition operator needs an object of keys")
        for key, given in tests.items():
            values = [_scalar(value) for value in (given if isinstance(given, list) else [given])]
            if name == "Null":
                yield _null(key.lower(), values)
            else:
                yield _condition(name, key.lower(), values, has_variables=has_variables)


def _scalar(value: Any) -> str:
    """Return the text of a number or boolean in a policy."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise Malformed("a value of a condition must be a text, a number or a boolean")


def _condition(name: str, key: str, values: list[str], *, has_variables: bool) -> Condition:
    quantifier, colon, rest = name.rpartition(":")
    if colon and quantifier not in (_ALL, _ANY):
        raise Malformed("a condition operator is not known")
    operator = OPERATORS.get(rest.removesuffix(_IF_EXISTS))
    if operator is None:
        raise Malformed("a condition operator is not known")
    if quantifier:
        wants_all = when_absent = quantifier == _ALL
    else:
        wants_all = when_absent = operator.is_negated
    return Condition(
        key,
        operator.compile(values, has_variables),
        operator.is_negated,
        wants_all,
        when_absent or rest.endswith(_IF_EXISTS),
    )


def _null(key: str, values: list[str]) -> Condition:
    """Return conditions of Null: true for a key that must be absent, false for one that must be
    present."""
    wanted = {truth(value) for value in values}
    if None in wanted:
        raise Malformed("a condition needs true or false")
    is_there = False in wanted
    return Condition(key, lambda _, __: is_there, False, False, True in wanted)
