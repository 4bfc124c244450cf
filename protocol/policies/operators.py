"""Condition operators: what a value of a request is compared with, and how."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from operator import eq, ge, gt, le, lt
from typing import Any, NamedTuple, TypeVar

from queuegate.protocol.errors import Malformed
from queuegate.protocol.policies.patterns import Matcher, Syntax, any_arn_of, any_of
from queuegate.protocol.policies.requests import Context

_T = TypeVar("_T")
_Compiler = Callable[[Sequence[str], bool], Matcher]
"""Of the values in a policy, and whether these have variables."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?")
_SECONDS = re.compile(r"[0-9]{1,12}")
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})(?:-([0-9]{2})"
    r"(?:T([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)(Z|[+-][0-9]{2}:?[0-9]{2})?)?)?"
)
_FINEST = 26
"""Characters of an instant down to the microsecond."""


class Operator(NamedTuple):
    """One operator of conditions."""

    compile: _Compiler
    is_negated: bool = False
    """It holds where no value matches, and where the key is not there."""


def _equals(values: Sequence[str], has_variables: bool) -> Matcher:
    return any_of(values, Syntax(has_wildcards=False, has_variables=has_variables))


def _is_like(values: Sequence[str], has_variables: bool) -> Matcher:
    return any_of(values, Syntax(has_wildcards=True, has_variables=has_variables))


def _equals_in_any_case(values: Sequence[str], has_variables: bool) -> Matcher:
    matches = _equals([value.lower() for value in values], has_variables)

    def any_case(text: str, context: Context) -> bool:
        # The values of variables are compared without their case, too.
        lowered = {key: [one.lower() for one in several] for key, several in context.items()}
        return matches(text.lower(), lowered)

    return any_case


def _arns(values: Sequence[str], has_variables: bool) -> Matcher:
    return any_arn_of(values, has_variables=has_variables, is_resource=False)


def _parsed_by(
    parse: Callable[[str], _T | None], what: str, compare: Callable[[_T, _T], Any] = eq
) -> _Compiler:
    """Values that are read before they are compared. What a request has and cannot be read matches
    nothing."""

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
    """ISO 8601 as the W3C has it, from the month on, or seconds since 1970. UTC unless it says."""
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
    """`true` or `false`, in any case; None: neither."""
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
    """Of an address, or of a range in the notation of CIDR."""
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
"""All but Null, which asks whether a key is there."""
