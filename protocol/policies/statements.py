"""Statements of policies: whom, what and where one is about, and under which conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from queuegate.protocol.errors import Malformed
from queuegate.protocol.policies.conditions import Condition, compile_conditions
from queuegate.protocol.policies.patterns import Matcher, Syntax, any_arn_of, any_of
from queuegate.protocol.policies.requests import Principal, Request, account_arn

_MEMBERS = frozenset(
    {
        "Sid",
        "Effect",
        "Principal",
        "NotPrincipal",
        "Action",
        "NotAction",
        "Resource",
        "NotResource",
        "Condition",
    }
)
_PRINCIPALS = ("AWS", "Service", "Federated", "CanonicalUser")
_ACCOUNT = re.compile(r"[0-9]{12}")
_NAMED = re.compile(r"arn:aws[a-z-]{0,20}:(iam|sts)::[0-9]{12}:[!-)+->@-~]{1,512}|[A-Z0-9]{16,128}")
"""An ARN of somebody, or the id of one; wildcards stand for no part of it."""
_SERVICE = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")
_ACTION = re.compile(r"\*|[A-Za-z0-9*?-]+:[A-Za-z0-9*?]+")
_ANY_ACTION = Syntax(has_wildcards=True, has_variables=False)


class Kind(Enum):
    """What a policy hangs on."""

    RESOURCE = auto()
    """It says who: each statement has a Principal."""
    IDENTITY = auto()
    """It is that one's: no statement has a Principal, each has a Resource."""
    SESSION = auto()
    """It bounds a session, and is written like that of an identity."""


class Reach(Enum):
    """How a statement means somebody."""

    ACCOUNT = auto()
    """By the account only, which decides for its own."""
    DIRECT = auto()


@dataclass(frozen=True, slots=True)
class _Principals:
    is_everybody: bool
    accounts: frozenset[str]
    arns: frozenset[str]
    services: frozenset[str]

    def reach(self, principal: Principal) -> Reach | None:
        """How they mean somebody; None: not at all."""
        if self.is_everybody or principal.service in self.services:
            return Reach.DIRECT
        if not self.arns.isdisjoint(principal.arns):
            return Reach.DIRECT
        if principal.account_id in self.accounts:
            return Reach.DIRECT if principal.is_account else Reach.ACCOUNT
        return None

    def except_for(self, principal: Principal) -> bool:
        """Whether they leave somebody out as a NotPrincipal: everything that one is called has to
        be there, its account too."""
        if self.is_everybody:
            return True
        if principal.service:
            return principal.service in self.services
        called = {arn for arn in principal.arns if arn != account_arn(principal.account_id)}
        return principal.account_id in self.accounts and called <= self.arns


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, ready to be asked."""

    index: int
    """Which of its policy it is, from 0 on."""
    sid: str
    is_deny: bool
    principals: _Principals | None
    """None: of an identity policy, which is about whoever has it."""
    excepts_principals: bool
    action: Matcher
    excepts_actions: bool
    resource: Matcher | None
    """None: the one that the policy hangs on."""
    excepts_resources: bool
    conditions: tuple[Condition, ...]

    def reach(self, request: Request) -> Reach | None:
        """How the statement is about a request; None: it is not."""
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


def compile_statement(members: Any, index: int, kind: Kind, *, has_variables: bool) -> Statement:
    """A statement of a policy. Raises Malformed."""
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
    actions, excepts_actions = _one_of(members, "Action")
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


def texts(value: Any, name: str) -> list[str]:
    """A text, or a list of them with one at least. Raises Malformed."""
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(one, str) and one for one in values):
        raise Malformed(f"{name} must be a text or a list of texts")
    return values


def _one_of(members: Mapping[str, Any], name: str) -> tuple[list[str], bool]:
    """The texts of a member or of its opposite, and whether it is that: one of them is there."""
    opposite = f"Not{name}"
    if (name in members) == (opposite in members):
        raise Malformed(f"a statement needs either {name} or {opposite}")
    found = name if name in members else opposite
    return texts(members[found], found), found == opposite


def _resources(members: Mapping[str, Any], kind: Kind) -> tuple[list[str] | None, bool]:
    """Return the resources of a statement; None where a policy of a resource does not say which:
    its own.

    In a policy of a resource a text that is neither `*` nor begins with `arn:` matches nothing: SQS
    stores it (docs/contract/policies.md 5.1).
    """
    if kind is Kind.RESOURCE and "Resource" not in members and "NotResource" not in members:
        return None, False
    resources, is_opposite = _one_of(members, "Resource")
    if kind is Kind.RESOURCE:
        return [one for one in resources if one == "*" or one.startswith("arn:")], is_opposite
    if not all(one == "*" or one.startswith(("arn:", "*:", "${")) for one in resources):
        raise Malformed("a resource must be * or an ARN")
    return resources, is_opposite


def _principals(members: Mapping[str, Any], kind: Kind) -> tuple[_Principals | None, bool]:
    if kind is Kind.IDENTITY:
        if "Principal" in members or "NotPrincipal" in members:
            raise Malformed("a policy of an identity has no Principal")
        return None, False
    if ("Principal" in members) == ("NotPrincipal" in members):
        raise Malformed("a statement needs either Principal or NotPrincipal")
    excepts = "NotPrincipal" in members
    return _read_principals(members["NotPrincipal" if excepts else "Principal"]), excepts


def _read_principals(value: Any) -> _Principals:
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
            named.update(_checked(found, _is_aws))
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


def _is_aws(text: str) -> bool:
    return text == "*" or bool(_ACCOUNT.fullmatch(text) or _NAMED.fullmatch(text))


def _account_of(text: str) -> str:
    """The account that a principal is; empty: it is somebody of one."""
    if _ACCOUNT.fullmatch(text):
        return text
    return text.split(":")[4] if text.startswith("arn:") and text.endswith(":root") else ""
