"""/_admin/outbox and /_admin/sms/opted-out: stored outgoing messages, and opted-out numbers.

These pages show messages, so they need credentials like the API itself. They show the caller's
account unless the request names another account.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import TYPE_CHECKING, Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from queuegate.gateway.faces.aws.sns.sns_sms import checked_number
from queuegate.gateway.faces.interface import REQUEST
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.topics import mobile
from queuegate.gateway.pages.answers import json_answer
from queuegate.protocol.names import invalid_characters
from queuegate.protocol.scheduler_shapes import SERVICES, UNIVERSAL
from queuegate.storage.storage_errors import (
    AccessDenied,
    Rejected,
    Unavailable,
    UnrecognizedClient,
)
from queuegate.storage.topics.stored_outbox import OutboxFilter, OutboxMessage

if TYPE_CHECKING:
    from queuegate.gateway.faces.interface import CallerAuthenticator
    from queuegate.gateway.operations.runtime.engine import Engine

_TWELVE_DIGITS = re.compile(r"[0-9]{12}")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
_FILTERS = ("account", "region", "protocol", "destination", "topic_arn", "kind")
_PAGING = ("after_id", "limit")
_CHOICES = {
    "kind": ("Invocation", "Notification", "SubscriptionConfirmation", "VerificationCode"),
    "protocol": tuple(sorted({"application", "email", "email-json", "sms", UNIVERSAL, *SERVICES})),
}
_MOST_MESSAGES = 1_000
_DEFAULT_MESSAGES = 100
_PRESIGNED = "x-amz-"
_SIGN_IN = (
    "This page shows messages and needs credentials, any that the API takes: for example curl "
    "--aws-sigv4 aws:amz:us-east-1:sns --user ACCESSKEY:SECRET, or the Authorization header of any "
    "signed request."
)


class _BadRequest(Exception):
    """A request that cannot be served. The text names valid input."""


def _error(text: str, status: int) -> Response:
    return json_answer({"error": text}, status)


Handler = Callable[[Request, Caller], Awaitable[Response]]


class _Pages:
    def __init__(self, engine: Engine, callers: CallerAuthenticator) -> None:
        self._engine = engine
        self._callers = callers

    def page(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Wrap the handler: authenticate the caller, and turn errors into responses."""

        async def answer(request: Request) -> Response:
            try:
                params = dict(request.query_params)
                caller = self._callers.caller(request.scope[REQUEST], params)
                return await handler(request, caller)
            except AccessDenied as refusal:
                request.scope[REQUEST].refusal = refusal
                return _error(_SIGN_IN, 403)
            except UnrecognizedClient as refusal:
                request.scope[REQUEST].refusal = refusal
                return _error(str(refusal), 403)
            except (_BadRequest, Rejected) as bad:
                return _error(str(bad), 400)
            except Unavailable as error:
                response = _error(str(error), 503)
                response.headers["retry-after"] = "1"
                return response

        return answer

    async def show(self, request: Request, caller: Caller) -> Response:
        """Answer GET /_admin/outbox."""
        params = _params(request, (*_FILTERS, *_PAGING))
        after_id = _number(params, "after_id", 0, (0, 10**18))
        limit = _number(params, "limit", _DEFAULT_MESSAGES, (1, _MOST_MESSAGES))
        wanted = _filter(params, caller)
        found, next_id = await mobile.list_outbox(
            self._engine, wanted, after_id=after_id, limit=limit
        )
        return json_answer({"messages": [_message(one) for one in found], "next": next_id})

    async def clear(self, request: Request, caller: Caller) -> Response:
        """Answer DELETE /_admin/outbox."""
        wanted = _filter(_params(request, _FILTERS), caller)
        return json_answer({"deleted": await mobile.clear_outbox(self._engine, wanted)})

    async def list_or_clear(self, request: Request, caller: Caller) -> Response:
        """Answer /_admin/outbox by method."""
        answer = self.clear if request.method == "DELETE" else self.show
        return await answer(request, caller)

    async def find(self, request: Request, caller: Caller) -> Response:
        """Answer GET /_admin/outbox/<id>."""
        text = request.path_params["outbox_id"]
        if _WHOLE_NUMBER.fullmatch(text) is None:
            raise _BadRequest("The path ends in the id of a message, a whole number.")
        account_id = _filter(_params(request, ("account",)), caller).account_id
        message = await mobile.find_in_outbox(self._engine, account_id, int(text))
        if message is None:
            return _error(f"The outbox of account {account_id} has no message of this id.", 404)
        return json_answer(_message(message))

    async def opted_out(self, request: Request, caller: Caller) -> Response:
        """Answer PUT and DELETE /_admin/sms/opted-out/<number> for the caller's account."""
        _params(request, ())
        number = checked_number(request.path_params["number"])
        is_opted_out = request.method == "PUT"
        change = mobile.opt_out if is_opted_out else mobile.opt_in
        await change(self._engine, caller, number)
        return json_answer(
            {
                "account": caller.account_id,
                "region": caller.region,
                "phone_number": number,
                "opted_out": is_opted_out,
            }
        )


def _params(request: Request, allowed: tuple[str, ...]) -> dict[str, str]:
    """Return the parameters except those of a signature. Refuse unknown and repeated ones."""
    params: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name.lower().startswith(_PRESIGNED):
            continue
        if name not in allowed:
            names = ", ".join(allowed) or "none"
            raise _BadRequest(f"A parameter is not known here. Those that are: {names}.")
        if name in params:
            raise _BadRequest(f"{name} is given twice.")
        if not value or invalid_characters(value):
            raise _BadRequest(f"{name} is empty or has characters that no message has there.")
        params[name] = value
    return params


def _number(params: dict[str, str], name: str, default: int, bounds: tuple[int, int]) -> int:
    text = params.pop(name, None)
    if text is None:
        return default
    low, high = bounds
    if _WHOLE_NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise _BadRequest(f"{name} is a whole number from {low} to {high}.")
    return int(text)


def _filter(params: dict[str, str], caller: Caller) -> OutboxFilter:
    account_id = params.get("account", caller.account_id)
    if _TWELVE_DIGITS.fullmatch(account_id) is None:
        raise _BadRequest("account is the 12 digits of an account.")
    for name, choices in _CHOICES.items():
        if name in params and params[name] not in choices:
            raise _BadRequest(f"{name} is one of {', '.join(choices)}.")
    return OutboxFilter(account_id, *(params.get(name) for name in _FILTERS[1:]))


def _message(message: OutboxMessage) -> dict[str, Any]:
    created_at = message.created_at.astimezone(UTC).isoformat(timespec="milliseconds")
    attributes = message.attributes
    return {
        "id": message.outbox_id,
        "account": message.account_id,
        "region": message.region,
        "protocol": message.protocol,
        "destination": message.destination,
        "kind": message.kind,
        "topic_arn": message.topic_arn,
        "subscription_arn": message.subscription_arn,
        "message_id": str(message.message_id),
        "subject": message.subject,
        "body": message.body,
        "attributes": None if attributes is None else orjson.loads(attributes),
        "created_at": created_at,
    }


def outbox_routes(engine: Engine, callers: CallerAuthenticator) -> list[Route]:
    """Return the routes of these pages."""
    pages = _Pages(engine, callers)
    listing, one, number = (
        pages.page(handler) for handler in (pages.list_or_clear, pages.find, pages.opted_out)
    )
    return [
        Route("/_admin/outbox", listing, methods=["GET", "DELETE"]),
        Route("/_admin/outbox/{outbox_id}", one, methods=["GET"]),
        Route("/_admin/sms/opted-out/{number}", number, methods=["PUT", "DELETE"]),
    ]
