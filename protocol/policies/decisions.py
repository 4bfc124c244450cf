"""What policies decide, and which statement would be needed where they refuse.

What is denied anywhere is denied. In the account of the resource it is enough that its policy, or
one of the caller's, allows; across accounts both have to. A resource's policy that means an account
leaves the decision to that account.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from queuegate.protocol.policies.documents import Policy
from queuegate.protocol.policies.requests import Request, account_arn
from queuegate.protocol.policies.statements import Kind, Reach, Statement


class Reason(Enum):
    """Why it was decided so."""

    ALLOWED = "allowed"
    DENIED = "explicit deny"
    NOT_ALLOWED = "implicit deny"


class Decision(NamedTuple):
    """Whether a request is allowed, and by what."""

    reason: Reason
    kind: Kind | None = None
    """Which kind of policy decided, or lacks a statement. None: the account's own right did."""
    statement: Statement | None = None
    """The statement that allows or denies."""

    @property
    def is_allowed(self) -> bool:
        return self.reason is Reason.ALLOWED


def decide(
    request: Request, *, resource: Policy | None, identities: Sequence[Policy] | None
) -> Decision:
    """Whether a request is allowed by the policy of its resource and those of its caller.

    ``identities``: None of an account itself, and of a caller that has all rights of its account:
    what is denied is denied to these, too. Services and anonymous callers have none.
    """
    denied = _denial(request, resource, identities or ())
    if denied is not None:
        return denied
    by_resource = None if resource is None else resource.allows(request)
    by_identity = _by_identity(request, identities)
    if request.principal.account_id == request.owner_id:
        if by_identity is not None:
            return by_identity
        if by_resource is None or by_resource[1] is Reach.ACCOUNT:
            return Decision(Reason.NOT_ALLOWED, Kind.IDENTITY)
        return Decision(Reason.ALLOWED, Kind.RESOURCE, by_resource[0])
    if by_resource is None:
        return Decision(Reason.NOT_ALLOWED, Kind.RESOURCE)
    if request.principal.account_id and by_identity is None:
        return Decision(Reason.NOT_ALLOWED, Kind.IDENTITY)
    return Decision(Reason.ALLOWED, Kind.RESOURCE, by_resource[0])


def _denial(
    request: Request, resource: Policy | None, identities: Sequence[Policy]
) -> Decision | None:
    if resource is not None and (one := resource.denies(request)):
        return Decision(Reason.DENIED, Kind.RESOURCE, one)
    for policy in identities:
        if one := policy.denies(request):
            return Decision(Reason.DENIED, Kind.IDENTITY, one)
    return None


def _by_identity(request: Request, identities: Sequence[Policy] | None) -> Decision | None:
    if not request.principal.account_id:
        return None
    if identities is None:
        return Decision(Reason.ALLOWED)
    for policy in identities:
        if found := policy.allows(request):
            return Decision(Reason.ALLOWED, Kind.IDENTITY, found[0])
    return None


def missing_statement(request: Request, kind: Kind) -> dict[str, Any]:
    """The statement that a policy of that kind would need for a request, as narrow as it can be."""
    statement: dict[str, Any] = {"Effect": "Allow"}
    principal = request.principal
    if kind is Kind.RESOURCE:
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
