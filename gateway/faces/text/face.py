"""The text face: from a request to one of its methods, and what it says when that is refused.

Imported in the background, after the start or for its first request.
"""

from __future__ import annotations

import logging

import msgspec

from queuegate.gateway.faces.callers import Callers, Wants
from queuegate.gateway.faces.face import Face
from queuegate.gateway.faces.json.documenting import About, described
from queuegate.gateway.faces.json.endpoints import Answer, Call, allowed, asked
from queuegate.gateway.faces.json.refusals import status_of
from queuegate.gateway.faces.requests import Asked, Headers, Request, Response
from queuegate.gateway.faces.text import parameters
from queuegate.gateway.faces.text.messages import ENDPOINTS
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol.routing import Router
from queuegate.storage.errors import (
    DeduplicationIdUnfit,
    IdInvalid,
    InvalidMessageContents,
    MessageIncomplete,
    QueueDoesNotExist,
    Rejected,
    RequestTooLarge,
    Unavailable,
)

ABOUT = About(
    "Queuegate plain-text queue",
    "Queues in plain text: the payload is the body, what is known of it is in headers. A queue is "
    "made by its first message, which can be received over SQS, too, and the other way round.\n\n"
    "Every refusal is a line of text that says what to change.",
    {"messages": "Send, receive, delete.", "about": "This API."},
    "Not needed, unless the gateway has a key: that one, or one of `queuegate keys`.",
    str,
    needs_credentials=False,
    header="api-key",
    media_type="text/plain",
    always=(401, 403, 422, 503),
)

_log = logging.getLogger("queuegate.text")
_TEXT: tuple[bytes, bytes] = (b"content-type", b"text/plain")
_JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")
_UNPROCESSABLE = (400, 413)
_SIGN_IN = "This gateway wants its key: send it in the header api-key."
_MOST_SHOWN = 80


class TextFace(Face):
    """Answers every request to ``/queue``, and describes itself below it."""

    def __init__(self, engine: Engine, callers: Callers) -> None:
        self._engine = engine
        self._callers = callers
        everything = described(ENDPOINTS, "/queue", ABOUT)
        self._router = Router((one.method, one.path, one) for one in everything)

    def most_bytes(self, request: Request) -> int:
        """As long as a message may be, or as a request without one."""
        return LIMITS.message_bytes if request.method == "POST" else LIMITS.request_bytes

    def claimed(self, request: Request) -> str | None:
        """Return the account of the key in the head; empty: it is public."""
        endpoint = asked(request.method, self._router.find(request.raw_path))
        if request.method == "OPTIONS" or (endpoint is not None and endpoint.public):
            return ""
        return self._callers.claimed(request, {}, Wants.KEY)

    def may_wait(self, request: Request) -> bool:
        """Whether it is a long poll."""
        return request.method == "GET" and b"wait=" in request.query

    async def answer(self, request: Request) -> Response:
        """The response to any request."""
        try:
            response = await self._answer(request)
        except Rejected as refusal:
            request.refusal = refusal
            response = _rejected(refusal)
        except Unavailable as error:
            _log.log(error.log_level, "%s: %s", request.request_id, error)
            response = _unavailable(error)
        except Exception:  # noqa: BLE001 - the outermost handler: bugs become a 500 without detail
            _log.exception("%s %s failed", request.request_id, request.method)
            response = _refused(500, "We encountered an internal error. Please try again.")
        response.headers.append((b"x-request-id", request.request_id.encode()))
        # One of two.
        response.route = request.raw_path
        return response

    def turned_away(self, request: Request, refusal: Rejected | Unavailable) -> Response:
        """The refusal of a request whose body was not read to its end."""
        response = _refusal(refusal)
        if isinstance(refusal, RequestTooLarge | Unavailable):
            # What the client still sends is dropped: the connection cannot be used again.
            response.headers.append((b"connection", b"close"))
        return response

    async def _answer(self, request: Request) -> Response:
        found = self._router.find(request.raw_path)
        assert found is not None
        allow = [(b"allow", allowed(found.place).encode())]
        if request.method == "OPTIONS":
            return Response(204, allow, b"")
        endpoint = asked(request.method, found)
        is_public = endpoint is not None and endpoint.public
        if endpoint is not None:
            request.asked = Asked(f"text:{endpoint.name}", endpoint.right, None, endpoint.effect)
        try:
            caller: Caller = self._callers.caller(
                request, {}, may_be_anonymous=is_public, wants=Wants.KEY
            )
        except Rejected as refusal:
            request.refusal = refusal
            return _refused(401, _SIGN_IN)
        if endpoint is None:
            text = f"{request.method} is not possible here; {allowed(found.place)} are."
            response = _refused(405, text)
            response.headers += allow
            return response
        if self._engine.quotas.asks() and not is_public:
            await self._engine.quotas.admit(caller, len(request.body))
        given = parameters.read(endpoint.query, request.query)
        call = Call(self._engine, caller, request, None, given, request.body, endpoint.right)
        request.asked = request.asked and request.asked._replace(about=call)
        answer = await endpoint.handler(call)
        return _written(answer)


def _written(answer: Answer) -> Response:
    """The document is the one answer in JSON."""
    body = answer.content or b""
    headers: Headers = [_TEXT]
    if isinstance(body, dict):
        headers, body = [_JSON], msgspec.json.encode(body) + b"\n"
    for name, value in (answer.headers or {}).items():
        headers.append((name.encode(), value.encode()))
    return Response(answer.status, headers, body)


def _refusal(refusal: Rejected | Unavailable) -> Response:
    return _unavailable(refusal) if isinstance(refusal, Unavailable) else _rejected(refusal)


def _rejected(refusal: Rejected) -> Response:
    status = status_of(refusal)
    response = _refused(422 if status in _UNPROCESSABLE else status, _words(refusal))
    seconds = refusal.retry_after_seconds
    if seconds is not None:
        response.headers.append((b"retry-after", str(seconds).encode()))
    return response


def _words(refusal: Rejected) -> str:
    """What to change, in the words of this face."""
    if isinstance(refusal, MessageIncomplete):
        if refusal.what == "body":
            return "The payload is empty: send it as the body of the request."
        return "group-id is missing: messages of a group are received in order, one at a time."
    if isinstance(refusal, IdInvalid):
        name = refusal.what.replace("_", "-")
        return f"{name} can be 1 to 128 characters of text; FIFO queues take no spaces."
    if isinstance(refusal, DeduplicationIdUnfit):
        return "deduplication-id is for queues with groups, this is none: leave it out."
    if isinstance(refusal, InvalidMessageContents):
        return "The payload has a control character, U+FFFE or U+FFFF: XML, and so SQS, has none."
    if isinstance(refusal, QueueDoesNotExist):
        return f"There is no queue '{(refusal.queue_name or '')[:_MOST_SHOWN]}'."
    return str(refusal)


def _refused(status: int, text: str) -> Response:
    """One line; what it repeats of a request is shown harmless."""
    line = "".join([one if one.isprintable() else "?" for one in text])
    return Response(status, [_TEXT], f"{line}\n".encode(errors="replace"))


def _unavailable(error: Unavailable) -> Response:
    response = _refused(503, f"{error} Try again in a moment.")
    response.headers.append((b"retry-after", b"1"))
    return response
