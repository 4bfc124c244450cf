"""The ASGI application: handles requests of all faces, from admission to the access log.

It checks the source of a request (``Admission``), selects the face by the path, and counts, limits
and logs. The faces parse and answer. Common sends, receives, deletes and publishes do not come
here: ``fast_path.py`` answers them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping, MutableMapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from queuegate.gateway.faces.interface import (
    REQUEST,
    AsgiFace,
    ConnectionHandler,
    Face,
    Headers,
    Mount,
    Receive,
    Request,
    Response,
    Scope,
    Send,
)
from queuegate.gateway.http.admission import Admission
from queuegate.gateway.http.auditing import Auditor
from queuegate.gateway.http.connections import CONNECTION, PREPARED
from queuegate.gateway.http.wrong_signatures import WrongSignatures
from queuegate.gateway.log_lines import RateLimitedLogger
from queuegate.gateway.operations.access.caller import RequestOrigin
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.gateway.operations.runtime.traffic import Reading, unverified
from queuegate.gateway.operations.telemetry.series import Series
from queuegate.protocol.service_detection import has_form
from queuegate.storage.storage_errors import (
    AccessDenied,
    Denied,
    Rejected,
    RequestTooLarge,
    Unavailable,
)

_log = logging.getLogger("queuegate.http")

ABANDONED = 499
"""The counted status of a request whose client disconnected before the answer."""
_MOST_OF_STRANGERS = 65_536
"""Limit for reading a form whose head cannot authenticate."""
_refused = RateLimitedLogger(10.0)
_PROXIED = "x-forwarded-proto"

Result = TypeVar("Result")


class Options(NamedTuple):
    """Options of the application. A URL of None is the URL that the request was sent to."""

    base_url: str | None
    """Base of queue URLs in answers."""
    links_url: str | None
    """Base of links in messages."""
    max_body_bytes: int
    access_log: bool
    signature_delay_seconds: float = 1.0
    """The longest delay of an answer to a wrong signature."""


class App:
    """Serves the faces. The first mount that matches a path serves the request."""

    def __init__(
        self,
        entrances: Sequence[Mount],
        series: Series,
        admission: Admission,
        options: Options,
    ) -> None:
        self._entrances = entrances
        self._admission = admission
        self._base_url = options.base_url
        self._links_url = options.links_url
        self.max_body_bytes = options.max_body_bytes
        self._access_log = options.access_log
        self._series = series
        self.wrong_signatures = WrongSignatures(options.signature_delay_seconds)
        self._origins = admission.peers
        self._has_warned_of_proxies = False
        self.auditor: Auditor | None = None
        """Receives each answered request; None: nothing is audited."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["raw_path"].decode("latin-1")
        await self._enter(self.entrance(path, scope), path, scope, receive, send)

    def entrance(self, path: str, scope: Scope) -> Mount:
        """Return the first mount for a path. The last mount matches all paths."""
        for entrance in self._entrances:
            if entrance.is_for(path, scope):
                return entrance
        raise AssertionError(path)

    async def _enter(
        self, entrance: Mount, path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        verdict = self._admission.judge(scope, entrance.may_navigate)
        if verdict.reason:
            # The page sees only that it was refused, so the log gives its author the reason.
            _refused.warn(_log, "refused: %s", verdict.reason)
        if verdict.headers is not None:
            send = _with_headers(send, verdict.headers)
            if verdict.is_preflight:
                await _send(send, Response(204, [], b""), b"", scope)
                return
        started = perf_counter()
        face = entrance.face or await entrance.open()
        request = self.request(scope, path, started)
        answer = _Answer(send, entrance.label(path))
        request.reading = Reading(self._series.traffic, unverified(request.origin.address))
        reader = Reader(receive, request.reading, self.max_body_bytes)
        if not entrance.is_operators:
            self._series.active_requests += 1
        try:
            if isinstance(face, AsgiFace):
                await self._hand_over(face, request, scope, reader, answer, verdict.reason)
            else:
                response = await self._ask(face, request, scope, reader, verdict.reason)
                await self._write(request, response, scope, receive, answer)
        except _Disconnected:
            _log.debug("%s: the client went away", request.request_id)
        finally:
            reader.reading.end()
            if not entrance.is_operators:
                self._series.active_requests -= 1
            self.count(entrance, request, answer.route, answer.action, answer.status)

    async def _ask(
        self, face: Face, request: Request, scope: Scope, reader: Reader, reason: str
    ) -> Response:
        """Return the response of a face. With a reason, refuse the request with its body unread."""
        if PREPARED in scope:
            response: Response = scope[PREPARED]
            return response
        try:
            if reason:
                raise _not_from_there(reason)
            most = face.most_bytes(request)
            if most is not None:
                reader.most = min(reader.most, most)
            reader.check_announced(scope)
            account_id = face.claimed(request)
            if account_id is None:
                return await self._refuse_stranger(face, request, scope, reader)
            if account_id:
                reader.reading.belong_to(unverified(request.origin.address, account_id))
            request.body = await reader.body()
        except (Rejected, Unavailable) as refusal:
            request.refusal = refusal
            return face.turned_away(request, refusal)
        if face.may_wait(request):
            response = await _unless_disconnected(face.answer(request), scope, reader.receive)
        else:
            response = await face.answer(request)
        await self._delay(request, response, scope, reader)
        return response

    async def _delay(
        self, request: Request, response: Response, scope: Scope, reader: Reader
    ) -> None:
        """Delay the answer to a wrong signature."""
        seconds = self.wrong_signatures.hold(request, response)
        if seconds:
            reader.reading.end()
            try:
                await _unless_disconnected(asyncio.sleep(seconds), scope, reader.receive)
            finally:
                self.wrong_signatures.release()

    async def _refuse_stranger(
        self, face: Face, request: Request, scope: Scope, reader: Reader
    ) -> Response:
        """Return the refusal of a request that cannot authenticate. Its body cannot change that, so
        read only the part of a form that tells the action."""
        connection = scope.get(CONNECTION)
        if connection is None or connection.has_read_all():
            request.body = await reader.body()
            return await face.answer(request)
        is_form = has_form(request.method, request.headers, b"?")
        request.body, request.is_cut = await reader.beginning() if is_form else (b"", True)
        response = await face.answer(request)
        if request.is_cut:
            response.headers.append((b"connection", b"close"))
            connection.drop_little()
        return response

    async def _write(
        self,
        request: Request,
        response: Response,
        scope: Scope,
        receive: Receive,
        answer: _Answer,
    ) -> None:
        answer.action = response.action
        answer.route = response.route or answer.route
        answer.status = response.status
        body = response.body
        if CONNECTION in scope and request.caller is not None:
            scope[CONNECTION].account_id = request.caller.account_id
        if isinstance(body, bytes):
            if self._series.on_answer is not None:
                self._series.on_answer(request.caller, len(body))
            await _send(answer.send, response, body, scope)
        elif isinstance(body, ConnectionHandler):
            await _give_connection(answer.send, response, body, scope)
        else:
            await _unless_disconnected(_send(answer.send, response, body, scope), scope, receive)

    async def _hand_over(
        self,
        face: AsgiFace,
        request: Request,
        scope: Scope,
        reader: Reader,
        answer: _Answer,
        reason: str,
    ) -> None:
        """Let an ASGI face answer. Refuse before the answer has started."""
        answer.status = 500

        async def delayed(message: MutableMapping[str, Any]) -> None:
            if request.refusal is not None and not answer.has_begun:
                response = Response(message["status"], message["headers"], b"")
                await self._delay(request, response, scope, reader)
            await answer(message)

        try:
            if reason:
                raise _not_from_there(reason)
            await face.app({**scope, REQUEST: request}, reader, delayed)
        except (Rejected, Unavailable) as refusal:
            if answer.has_begun:
                raise
            request.refusal = refusal
            refused = face.turned_away(request, refusal)
            await self._write(request, refused, scope, reader.receive, answer)

    def request(
        self,
        scope: Scope,
        raw_path: str,
        started: float,
        headers: Mapping[str, str] | None = None,
    ) -> Request:
        """Return the request of a head. ``headers`` are the scope's headers as text."""
        if headers is None:
            headers = {name.decode("latin-1"): v.decode("latin-1") for name, v in scope["headers"]}
        origin = self._origins.of(scope["client"], scope["scheme"], scope["headers"])
        if not self._has_warned_of_proxies and _PROXIED in headers:
            self._warn_of_proxy(scope["client"])
        base_url = self._base_url or _url_asked(origin, scope, headers)
        return Request(
            scope["method"],
            scope["path"],
            scope["query_string"],
            headers,
            b"",
            base_url,
            base_url if self._links_url is None else self._links_url,
            new_id(),
            started,
            raw_path,
            origin,
            scope["headers"],
        )

    def _warn_of_proxy(self, client: tuple[str, int] | None) -> None:
        """Warn once that proxy headers are ignored: a proxy in front probably sets them."""
        if not self._origins.is_trusted(client):
            self._has_warned_of_proxies = True
            _log.warning(
                "X-Forwarded-Proto from %s is ignored, and so is what else says for whom it asks: "
                "if this is a proxy of yours, set QUEUEGATE_TRUSTED_PROXIES",
                client[0] if client else "a client",
            )

    def count(
        self, entrance: Mount, request: Request, route: str, action: str, status: int
    ) -> None:
        """Count the finished request in metrics, and log it."""
        method = request.method
        self._series.answered(method, route, action, status, request.started)
        if self.auditor is not None:
            self.auditor.answered(request, route, status)
        if self._access_log and not entrance.is_operators:
            # On "/" one path serves all actions; elsewhere the route names the operation.
            asked = action if route == "/" else route
            log_access(request.request_id, method, asked, status, request.started, request.origin)


def _url_asked(origin: RequestOrigin, scope: Scope, headers: Mapping[str, str]) -> str:
    """Return scheme, host and port by which the client reached the gateway."""
    host = origin.host or headers.get("host")
    if not host:
        host = "{}:{}".format(*(scope.get("server") or ("localhost", 0)))
    return f"{origin.scheme}://{host}"


def _not_from_there(reason: str) -> AccessDenied:
    refusal = AccessDenied(reason)
    refusal.denied = Denied("origin")
    return refusal


class _Disconnected(Exception):
    """The client disconnected before its answer."""


class Reader:
    """Reads a request. Its bytes count until ``reading`` ends."""

    __slots__ = ("most", "reading", "receive")

    def __init__(self, receive: Receive, reading: Reading, most: int) -> None:
        self.receive = receive
        self.reading = reading
        self.most = most
        """Longest body in bytes."""

    async def __call__(self) -> MutableMapping[str, Any]:
        """Return the next message. Raise RequestTooLarge or Unavailable over a limit."""
        return self._counted(await self.receive())

    def _counted(self, message: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if message["type"] != "http.request":
            return message
        if not self.reading.add(len(message.get("body", b""))):
            raise Unavailable("Too many bytes of requests and answers are under way.")
        if self.reading.size_bytes > self.most:
            raise self._too_large()
        return message

    def check_announced(self, scope: Scope) -> None:
        """Raise RequestTooLarge before reading if Content-Length is over the limit."""
        announced = next((v for name, v in scope["headers"] if name == b"content-length"), b"0")
        if int(announced) > self.most:
            raise self._too_large()

    async def beginning(self) -> tuple[bytes, bool]:
        """Return the first parameters of a form, at most 64 KiB, and True if more follow."""
        found = b""
        while len(found) <= _MOST_OF_STRANGERS:
            message = self._counted(await self.receive())
            if message["type"] == "http.disconnect":
                raise _Disconnected
            found += message.get("body", b"")
            if not message.get("more_body"):
                return found, False
        return found[:_MOST_OF_STRANGERS].rpartition(b"&")[0], True

    async def body(self) -> bytes:
        """Return the whole body."""
        parts = []
        while True:
            message = self._counted(await self.receive())
            if message["type"] == "http.disconnect":
                raise _Disconnected
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(
            f"The request body is larger than the {self.most} bytes that this endpoint takes."
        )


class _Answer:
    """The counted facts of an answer, and the ``send`` of ASGI faces."""

    __slots__ = ("action", "has_begun", "route", "send", "status")

    def __init__(self, send: Send, route: str) -> None:
        self.send = send
        self.route = route
        self.action = ""
        self.status = ABANDONED
        self.has_begun = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        """Send a message of an ASGI face."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.has_begun = True
        await self.send(message)


async def _unless_disconnected(work: Awaitable[Result], scope: Scope, receive: Receive) -> Result:
    """Return the result. Cancel the work if the client disconnects first."""
    if CONNECTION in scope:
        scope[CONNECTION].wait()
    doing = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((doing, watch), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done() and watch.result()["type"] == "http.disconnect":
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
            raise _Disconnected
        return await doing
    finally:
        watch.cancel()
        doing.cancel()


def _with_headers(send: Send, more: Headers) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending


async def _give_connection(
    send: Send, response: Response, handler: ConnectionHandler, scope: Scope
) -> None:
    """Write the head of the answer and give the connection to its handler."""
    connection = scope[CONNECTION]
    connection.leave_unframed()
    head = {"type": "http.response.start", "status": response.status, "headers": response.headers}
    await send(head)
    connection.take_over(handler)


async def _send(
    send: Send, response: Response, body: bytes | AsyncIterator[bytes], scope: Scope
) -> None:
    headers = response.headers
    if response.status != 204 and isinstance(body, bytes):
        headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    is_to_head = scope["method"] == "HEAD"
    if not isinstance(body, bytes):
        if not is_to_head:
            async for part in body:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": b"" if is_to_head else body})


def log_access(
    request_id: str, method: str, action: str, status: int, started: float, origin: RequestOrigin
) -> None:
    """Write one line of the access log, with the duration in milliseconds."""
    _log.info(
        "request",
        extra={
            "request_id": request_id,
            "method": method,
            "action": action,
            "status": status,
            "address": origin.address,
            "duration_ms": round((perf_counter() - started) * 1000, 3),
        },
    )
