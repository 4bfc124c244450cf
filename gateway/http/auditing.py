"""Audit of answered requests: refused calls, and administrative changes.

The application passes each answered request of every face. The effect of its right
(``authorization``) decides. No action of the fast path is administrative, so the fast path passes
only refusals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from queuegate.gateway.http.auth import shown_key
from queuegate.gateway.operations.access.authorization import Effect, effect_of
from queuegate.storage.storage_errors import (
    IncompleteSignature,
    InvalidSignature,
    Kind,
    Rejected,
    UnrecognizedClient,
)

if TYPE_CHECKING:
    from queuegate.gateway.audit_lines import Audit
    from queuegate.gateway.faces.interface import Request, RequestedOperation
    from queuegate.gateway.http.fast_path import Exchange
    from queuegate.gateway.operations.access.caller import Caller

_SAFE = ("GET", "HEAD", "OPTIONS")
_REFUSED = (401, 403, 429)
_REDIRECTED = 300
_UNCHANGED = range(_REDIRECTED, 499)
"""Statuses without a change. After an error or a disconnect (499) a change is possible."""
_CREDENTIAL = re.compile(r"Credential=([^/,\s]{1,128})/")
_PRESIGNED = re.compile(rb"X-Amz-Credential=([^/&%\s]{1,128})(?:/|%2[Ff])")
_SHOWN = re.compile(r"qg_([0-9]{1,18})_")
_MEMBERS = (
    "QueueUrl",
    "QueueName",
    "TopicArn",
    "TargetArn",
    "SubscriptionArn",
    "ResourceArn",
    "PlatformApplicationArn",
    "EndpointArn",
    "SourceArn",
    "Name",
)
"""Members of AWS actions that name the resource; the first present one counts."""
_FIELDS = ("name", "queue_name", "queue", "channel", "log")
"""Fields of bodies and queries of other faces that name the resource. Otherwise the path does."""


def reason_of(refusal: BaseException | None, caller: Caller | None) -> str:
    """Return the reason of a refusal in one word; empty: the call is not audited."""
    if isinstance(refusal, IncompleteSignature | InvalidSignature | UnrecognizedClient):
        return "authentication"
    if not isinstance(refusal, Rejected):
        return ""
    if refusal.denied is not None:
        return refusal.denied.by
    if refusal.kind is Kind.THROTTLED:
        return "quota"
    if refusal.kind is not Kind.FORBIDDEN:
        return ""
    return "authentication" if caller is None or caller.is_anonymous else "right"


class Auditor:
    """Writes answered requests to the audit log."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def answered(self, request: Request, route: str, status: int) -> None:
        """Audit an answered request. ``route`` is a path template."""
        refusal = request.refusal
        reason = reason_of(refusal, request.caller)
        if not reason and refusal is None and status in _REFUSED:
            reason = "refused"
        if reason:
            self._audit.refused(self._facts(request, route, status, reason), request.request_id)
        elif _is_change(request, status):
            self._audit.changed(self._facts(request, route, status), request.request_id)

    def refused_at_once(self, exchange: Exchange, refusal: BaseException, status: int) -> None:
        """Audit a request that the fast path refused."""
        caller = exchange.context.caller
        reason = reason_of(refusal, caller)
        if reason:
            route = exchange.route
            facts = {
                **_who(caller),
                "operation": f"{route.service}:{route.name}",
                "resource": exchange.context.arn,
                "address": exchange.protocol.origin(exchange.headers.items()).address,
                "reason": reason,
                "statement": "",
                "status": status,
            }
            self._audit.refused(facts, exchange.request_id)

    def _facts(
        self, request: Request, route: str, status: int, reason: str = ""
    ) -> dict[str, object]:
        asked, refusal = request.asked, request.refusal
        denied = refusal.denied if isinstance(refusal, Rejected) else None
        return {
            **(_claimed(request) if request.caller is None else _who(request.caller)),
            "operation": f"{request.method} {route}" if asked is None else asked.operation,
            "resource": (denied and denied.resource) or _resource(request, asked),
            "address": request.origin.address,
            "reason": reason,
            "statement": denied.statement if denied else "",
            "status": status,
        }


def _is_change(request: Request, status: int) -> bool:
    asked = request.asked
    if asked is None:
        # Pages, and requests without a declared operation.
        return status < _REDIRECTED and request.method not in _SAFE
    if not asked.right or status in _UNCHANGED:
        return False
    return (asked.effect or effect_of(asked.right)) is Effect.ADMINISTRATIVE


def _who(caller: Caller) -> dict[str, object]:
    producer = caller.producer
    is_ours = producer is not None and producer.name
    return {
        "account": caller.account_id,
        "access_key": caller.access_key,
        "key": producer.producer_id if producer is not None and is_ours else "",
        "is_anonymous": caller.is_anonymous or None,
    }


def _claimed(request: Request) -> dict[str, object]:
    """Return the unverified key that a refused caller claims."""
    headers = request.headers
    found = _CREDENTIAL.search(headers.get("authorization", "")[:1024])
    signed = _PRESIGNED.search(request.query) if found is None else None
    shown = _SHOWN.match(shown_key(headers, {}))
    access_key = found[1] if found else signed[1].decode("latin-1") if signed else ""
    return {"claimed_access_key": access_key, "claimed_key": shown[1] if shown else ""}


def _resource(request: Request, asked: RequestedOperation | None) -> str:
    about = None if asked is None else asked.about
    members = getattr(about, "members", None)
    if members is not None:
        return _first(members.get(name) for name in _MEMBERS) or request.raw_path.strip("/")
    for part in (getattr(about, "body", None), getattr(about, "query", None)):
        named = _first(getattr(part, name, None) for name in _FIELDS)
        if named:
            return named
    return "" if request.raw_path == "/" else request.raw_path


def _first(values: Iterable[object]) -> str:
    return next((value for value in values if isinstance(value, str) and value), "")
