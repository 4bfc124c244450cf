"""Policy documents, their statements and conditions, and decisions (docs/contract/policies.md 5).

A policy is compiled once and evaluated for each request. A deny in any policy wins. In the account
of the resource an allow in its policy or in one of the caller's is enough; across accounts both
must allow. A resource's policy that names an account leaves the decision to that account.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum, auto
from functools import partial
from operator import eq, ge, gt, le, lt
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from queuegate.protocol.malformed import Malformed
from queuegate.protocol.policy_patterns import (
    Context,
    Matcher,
    PolicyRequest,
    Principal,
    Syntax,
    account_arn,
    any_arn_of,
    any_of,
)

_MEMBER_NAMES = """
    Sid Effect Principal NotPrincipal Action NotAction Resource NotResource Condition
"""
_MEMBERS = frozenset(_MEMBER_NAMES.split())
_PRINCIPALS = ("AWS", "Service", "Federated", "CanonicalUser")
_ACCOUNT = re.compile(r"[0-9]{12}")
_AWS_PRINCIPAL = re.compile(
    r"\*|[0-9]{12}|arn:aws[a-z-]{0,20}:(iam|sts)::[0-9]{12}:[!-)+->@-~]{1,512}|[A-Z0-9]{16,128}"
)
"""`*`, an account, or the ARN or the id of a principal, without wildcards."""
_SERVICE = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")
_ACTION = re.compile(r"\*|[A-Za-z0-9*?-]+:[A-Za-z0-9*?]+")
_ANY_ACTION = Syntax(has_wildcards=True, has_variables=False)


class PolicyKind(IntEnum):
    """The owner of a policy. An integer, because it is a part of keys on the hot path."""

    RESOURCE = auto()
    """A policy of a resource: each statement has a Principal."""
    IDENTITY = auto()
    """A policy of an identity: no statement has a Principal, each has a Resource."""
    SESSION = auto()
    """A policy that bounds a session, written like that of an identity."""


class Reach(Enum):
    """The way in which a statement names a principal."""

    ACCOUNT = auto()
    """By its account only, which decides for its principals."""
    DIRECT = auto()


@dataclass(frozen=True, slots=True)
class _Principals:
    is_everybody: bool
    accounts: frozenset[str]
    arns: frozenset[str]
    services: frozenset[str]

    def reach(self, principal: Principal) -> Reach | None:
        """Return how they name a principal; None: they do not."""
        if self.is_everybody or principal.service in self.services:
            return Reach.DIRECT
        if not self.arns.isdisjoint(principal.arns):
            return Reach.DIRECT
        if principal.account_id in self.accounts:
            return Reach.DIRECT if principal.is_account else Reach.ACCOUNT
        return None

    def except_for(self, principal: Principal) -> bool:
        """Return True if they exclude a principal as NotPrincipal: all its names must be present,
        its account too."""
        if self.is_everybody:
            return True
        if principal.service:
            return principal.service in self.services
        called = {arn for arn in principal.arns if arn != account_arn(principal.account_id)}
        return principal.account_id in self.accounts and called <= self.arns


@dataclass(frozen=True, slots=True)
class Statement:
    """A compiled statement."""

    index: int
    sid: str
    is_deny: bool
    principals: _Principals | None
    """None in a policy of an identity, which is about its owner."""
    excepts_principals: bool
    action: Matcher
    excepts_actions: bool
    resource: Matcher | None
    """None: the resource of the policy itself."""
    excepts_resources: bool
    conditions: tuple[Condition, ...]

    def reach(self, request: PolicyRequest) -> Reach | None:
        """Return how the statement applies to a request; None: it does not."""
        reach = self._reach_of(request.principal)
        if reach is None or self.action(request.action.lower(), {}) == self.excepts_actions:
            return None
        if self.resource is not None:
            matches = self.resource(request.resource, request.context)
            if matches == self.excepts_resources:
                return None
        return reach if all(one.holds(request.context) for one in self.conditions) else None

    def _reach_of(self, principal: Principal) -> Reach | None:
        if self.principals is None:
            return Reach.DIRECT
        if self.excepts_principals:
            return None if self.principals.except_for(principal) else Reach.DIRECT
        return self.principals.reach(principal)


def compile_statement(
    members: Any, index: int, kind: PolicyKind, *, has_variables: bool
) -> Statement:
    """Compile a statement of a policy. Raises Malformed."""
    if not isinstance(members, dict):
        raise Malformed("a statement must be an object")
    if not _MEMBERS.issuperset(members):
        raise Malformed("a statement has a member that no statement has")
    effect, sid = members.get("Effect"), members.get("Sid", "")
    if effect not in ("Allow", "Deny"):
        raise Malformed("Effect must be Allow or Deny")
    if not isinstance(sid, str):
        raise Malformed("Sid must be a text")
    principals, excepts_principals = _principals(members, kind)
    if excepts_principals and effect == "Allow":
        raise Malformed("NotPrincipal needs the effect Deny")
    actions, excepts_actions = _one_of(members, "Action", texts)
    resources, excepts_resources = _resources(members, kind)
    if not all(_ACTION.fullmatch(action) for action in actions):
        raise Malformed("an action must be * or a service with an action")
    return Statement(
        index,
        sid,
        effect == "Deny",
        principals,
        excepts_principals,
        any_of([action.lower() for action in actions], _ANY_ACTION),
        excepts_actions,
        None
        if resources is None
        else any_arn_of(resources, has_variables=has_variables, is_resource=True),
        excepts_resources,
        compile_conditions(members.get("Condition", {}), has_variables=has_variables),
    )


def texts(value: Any, name: str, *, may_be_empty: bool = False) -> list[str]:
    """Return a text, or a list of at least one, as texts. Raises Malformed."""
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(one, str) and (one or may_be_empty) for one in values):
        raise Malformed(f"{name} must be a text or a list of texts")
    return values


def _one_of(
    members: Mapping[str, Any], name: str, read: Callable[[Any, str], _T]
) -> tuple[_T, bool]:
    """Return the value of a member or of its opposite, and True for the opposite. One of them is
    present."""
    opposite = f"Not{name}"
    if (name in members) == (opposite in members):
        raise Malformed(f"a statement needs either {name} or {opposite}")
    found = name if name in members else opposite
    return read(members[found], found), found == opposite


def _resources(members: Mapping[str, Any], kind: PolicyKind) -> tuple[list[str] | None, bool]:
    """Return the resources of a statement; None: a resource's policy means the resource itself. In
    a policy of a resource a text that is neither `*` nor begins with `arn:` matches nothing: SQS
    stores it (docs/contract/policies.md 5.1)."""
    if kind is PolicyKind.RESOURCE and "Resource" not in members and "NotResource" not in members:
        return None, False
    read = partial(texts, may_be_empty=kind is PolicyKind.RESOURCE)
    resources, is_opposite = _one_of(members, "Resource", read)
    if kind is PolicyKind.RESOURCE:
        return [one for one in resources if one == "*" or one.startswith("arn:")], is_opposite
    if not all(one == "*" or one.startswith(("arn:", "*:", "${")) for one in resources):
        raise Malformed("a resource must be * or an ARN")
    return resources, is_opposite


def _principals(members: Mapping[str, Any], kind: PolicyKind) -> tuple[_Principals | None, bool]:
    if kind is PolicyKind.IDENTITY:
        if "Principal" in members or "NotPrincipal" in members:
            raise Malformed("a policy of an identity has no Principal")
        return None, False
    return _one_of(members, "Principal", _read_principals)


def _read_principals(value: Any, _: str) -> _Principals:
    if value == "*":
        value = {"AWS": "*"}
    if not isinstance(value, dict) or not value:
        raise Malformed("Principal must be * or an object")
    named: set[str] = set()
    services: set[str] = set()
    for kind, given in value.items():
        if kind not in _PRINCIPALS:
            raise Malformed("a kind of principal is not known")
        found = texts(given, "Principal")
        if kind == "AWS":
            named.update(_checked(found, _AWS_PRINCIPAL.fullmatch))
        elif kind == "Service":
            services.update(_checked(found, _SERVICE.fullmatch))
    accounts = {account for one in named if (account := _account_of(one))}
    return _Principals(
        "*" in named,
        frozenset(accounts),
        frozenset(one for one in named if not _account_of(one)),
        frozenset(services),
    )


def _checked(values: list[str], is_good: Any) -> Iterator[str]:
    for value in values:
        if not is_good(value):
            raise Malformed("a principal is none")
        yield value


def _account_of(text: str) -> str:
    """Return the account that a principal is; empty: it is a member of one."""
    if _ACCOUNT.fullmatch(text):
        return text
    return text.split(":")[4] if text.startswith("arn:") and text.endswith(":root") else ""


_DOCUMENT_MEMBERS = frozenset({"Version", "Id", "Statement"})
_OLD, _NEW = "2008-10-17", "2012-10-17"


@dataclass(frozen=True, slots=True)
class Policy:
    """A document with its denying and its allowing statements."""

    denying: tuple[Statement, ...]
    allowing: tuple[Statement, ...]

    @property
    def statements(self) -> tuple[Statement, ...]:
        return self.denying + self.allowing

    def denies(self, request: PolicyRequest) -> Statement | None:
        """Return the first statement that denies the request."""
        return next((one for one in self.denying if one.reach(request)), None)

    def allows(self, request: PolicyRequest) -> tuple[Statement, Reach] | None:
        """Return the first statement that allows the request; statements that name the caller win
        over those that name its account."""
        by_account = None
        for one in self.allowing:
            reach = one.reach(request)
            if reach is Reach.DIRECT:
                return one, reach
            if reach is not None and by_account is None:
                by_account = one, reach
        return by_account


def parse(text: str | bytes, kind: PolicyKind) -> Policy:
    """Parse a policy. Raises Malformed with the fault, in words of our own."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Malformed("a policy must be JSON") from None
    return compile_policy(document, kind)


def compile_policy(document: Any, kind: PolicyKind) -> Policy:
    statements = tuple(_statements(document, kind))
    return Policy(
        tuple(one for one in statements if one.is_deny),
        tuple(one for one in statements if not one.is_deny),
    )


def _statements(document: Any, kind: PolicyKind) -> Iterator[Statement]:
    if not isinstance(document, dict) or not _DOCUMENT_MEMBERS.issuperset(document):
        raise Malformed("a policy must be an object of Version, Id and Statement")
    version = document.get("Version", _OLD)
    if version not in (_OLD, _NEW):
        raise Malformed(f"Version must be {_NEW} or {_OLD}")
    if not isinstance(document.get("Id", ""), str):
        raise Malformed("Id must be a text")
    statements = document.get("Statement")
    several = statements if isinstance(statements, list) else [statements]
    sids: set[str] = set()
    for index, members in enumerate(several):
        one = compile_statement(members, index, kind, has_variables=version == _NEW)
        if one.sid and one.sid in sids:
            raise Malformed("two statements have the same Sid")
        sids.add(one.sid)
        yield one


class Reason(Enum):
    """The reason for a decision."""

    ALLOWED = "allowed"
    DENIED = "explicit deny"
    NOT_ALLOWED = "implicit deny"


class Decision(NamedTuple):
    """A decision and the statement behind it."""

    reason: Reason
    kind: PolicyKind | None = None
    """The kind of policy that decided, or lacks a statement. None: the account's own right."""
    statement: Statement | None = None

    @property
    def is_allowed(self) -> bool:
        return self.reason is Reason.ALLOWED


def decide(
    request: PolicyRequest, *, resource: Policy | None, identities: Sequence[Policy] | None
) -> Decision:
    """Decide a request by the policy of its resource and those of its caller. ``identities`` None:
    the caller is an account itself, or has all rights of its account. A deny applies to these, too.
    Services and anonymous callers have no policies."""
    denied = _denial(request, resource, identities or ())
    if denied is not None:
        return denied
    by_resource = None if resource is None else resource.allows(request)
    by_identity = _by_identity(request, identities)
    if request.principal.account_id == request.owner_id:
        if by_identity is not None:
            return by_identity
        if by_resource is None or by_resource[1] is Reach.ACCOUNT:
            return Decision(Reason.NOT_ALLOWED, PolicyKind.IDENTITY)
        return Decision(Reason.ALLOWED, PolicyKind.RESOURCE, by_resource[0])
    if by_resource is None:
        return Decision(Reason.NOT_ALLOWED, PolicyKind.RESOURCE)
    if request.principal.account_id and by_identity is None:
        return Decision(Reason.NOT_ALLOWED, PolicyKind.IDENTITY)
    return Decision(Reason.ALLOWED, PolicyKind.RESOURCE, by_resource[0])


def _denial(
    request: PolicyRequest, resource: Policy | None, identities: Sequence[Policy]
) -> Decision | None:
    if resource is not None and (one := resource.denies(request)):
        return Decision(Reason.DENIED, PolicyKind.RESOURCE, one)
    for policy in identities:
        if one := policy.denies(request):
            return Decision(Reason.DENIED, PolicyKind.IDENTITY, one)
    return None


def _by_identity(request: PolicyRequest, identities: Sequence[Policy] | None) -> Decision | None:
    if not request.principal.account_id:
        return None
    if identities is None:
        return Decision(Reason.ALLOWED)
    for policy in identities:
        if found := policy.allows(request):
            return Decision(Reason.ALLOWED, PolicyKind.IDENTITY, found[0])
    return None


def missing_statement(request: PolicyRequest, kind: PolicyKind) -> dict[str, Any]:
    """Return the narrowest statement that a policy of that kind would need for a request."""
    statement: dict[str, Any] = {"Effect": "Allow"}
    principal = request.principal
    if kind is PolicyKind.RESOURCE:
        if principal.service:
            statement["Principal"] = {"Service": principal.service}
        elif principal.account_id:
            arns = principal.arns or (account_arn(principal.account_id),)
            statement["Principal"] = {"AWS": arns[0]}
        else:
            statement["Principal"] = "*"
    statement |= {"Action": request.action, "Resource": request.resource}
    sources = request.context.get("aws:sourcearn")
    if principal.service and sources:
        statement["Condition"] = {"ArnEquals": {"aws:SourceArn": sources[0]}}
    return statement


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
    except ValueError:
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
_NEGATED = {re.sub("^(String|Numeric|Date|Arn|(?=Ip))", r"\1Not", name): name for name in _POSITIVE}
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
