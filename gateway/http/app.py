"""The composition root: every route, what each needs, and the raw ASGI callable in front.

The AWS face and its fast path never meet Starlette; whatever else is asked goes through its router.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from gateway.faces.aws.face import AwsFace, Request, Response, most_bytes
from gateway.http.admission import Admission
from gateway.http.connections import WAITS
from gateway.http.request_heads import url_asked
from gateway.operations.identifiers import new_id
from gateway.operations.traffic import Reading
from gateway.pages.paths import is_front_page, is_page, page_label
from gateway.process.log_lines import Seldom
from storage.errors import AccessDenied, Rejected, RequestTooLarge, Unavailable

_log = logging.getLogger("queuegate.http")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

_ABANDONED = 499
_refused = Seldom(10.0)
_NATIVE = "/v1/"


class Options(NamedTuple):
    """What a gateway is told. A URL that is None is where the request was sent."""

    base_url: str | None
    """Where whoever asks for a queue's URL reaches us."""
    links_url: str | None
    """Where whoever gets a message does."""
    max_body_bytes: int
    access_log: bool


class Rest(Protocol):
    """The native API (``gateway.faces.rest.api.RestFace``). ``Request.path`` is the raw path, and
    ``Response.action`` the template of it."""

    def may_wait(self, request: Request) -> bool: ...

    async def answer(self, request: Request) -> Response: ...

    def turned_away(self, request: Request, refusal: Rejected | Unavailable) -> Response: ...


class App:
    """Looks at who asks (``Admission``), then at the path: operations' pages to their router,
    ``/v1`` to the native API, everything else to AWS."""

    def __init__(
        self,
        aws: AwsFace,
        make_pages: Callable[[], Asgi],
        make_rest: Callable[[], Rest],
        admission: Admission,
        options: Options,
    ) -> None:
        self._aws = aws
        self._make_pages = make_pages
        self._pages: Asgi | None = None
        self._make_rest = make_rest
        self._rest: Rest | None = None
        self._admission = admission
        self._base_url = options.base_url
        self._links_url = options.links_url
        self._max_body_bytes = options.max_body_bytes
        self._access_log = options.access_log
        self._series = aws.engine.series

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        verdict = self._admission.judge(scope)
        if verdict.reason:
            # A page sees no more than that it was refused: its author looks here.
            _refused.warn(_log, "refused: %s", verdict.reason)
        if verdict.headers is not None:
            send = _with_headers(send, verdict.headers)
            if verdict.is_preflight:
                await _send(send, Response(204, [], b""), False)
                return
        # As it came: what a proxy in front lets through by its path must not be a page for us.
        path = scope["raw_path"].decode("latin-1")
        if is_page(path) or is_front_page(scope):
            if verdict.reason:
                await self._turn_away_from_page(scope, send, verdict.reason)
            else:
                await self._answer_page(scope, receive, send)
        elif path.startswith(_NATIVE):
            await self._answer_rest(scope, receive, send, verdict.reason)
        else:
            await self._answer_aws(scope, receive, send, verdict.reason)

    async def _turn_away_from_page(self, scope: Scope, send: Send, reason: str) -> None:
        started = perf_counter()
        headers = [(b"content-type", b"application/json")]
        body = json.dumps({"error": reason}).encode() + b"\n"
        await _send(send, Response(403, headers, body), scope["method"] == "HEAD")
        self._series.answered(scope["method"], _label(scope), "", 403, started)

    async def _answer_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        status = 500

        async def watching(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        if self._pages is None:
            # Not at start: a gateway that is up in half a second loads no router first.
            made = await asyncio.to_thread(self._make_pages)
            self._pages = self._pages or made
        try:
            await self._pages(scope, receive, watching)
        finally:
            self._series.answered(scope["method"], _label(scope), "", status, started)

    async def _answer_aws(self, scope: Scope, receive: Receive, send: Send, reason: str) -> None:
        request_id = new_id()
        started = perf_counter()
        self._series.active_requests += 1
        status, action = _ABANDONED, ""
        reading = Reading(self._series.traffic)
        try:
            most = min(self._max_body_bytes, most_bytes(_named_action(scope)))
            body = AccessDenied(reason) if reason else await _body(scope, receive, reading, most)
            content = body if isinstance(body, bytes) else b""
            request = self._request(scope, content, request_id, started)
            if not isinstance(body, bytes):
                response = self._aws.turned_away(request, body)
            else:
                answer = self._aws.answer(request)
                if _may_wait(request):
                    response = await _unless_gone(answer, scope, receive)
                else:
                    response = await answer
            status, action = response.status, response.action
            await _send(send, response, scope["method"] == "HEAD")
        except _Gone:
            _log.debug("%s: the client went away", request_id)
        finally:
            reading.end()
            self._series.active_requests -= 1
            self._series.answered(scope["method"], "/", action, status, started)
            if self._access_log:
                log_access(request_id, scope["method"], action, status, started)

    async def _answer_rest(self, scope: Scope, receive: Receive, send: Send, reason: str) -> None:
        rest = self._rest
        if rest is None:
            # Not at start, like the pages; and what it imports takes a tenth of a second, in which
            # nobody else shall wait.
            made = await asyncio.to_thread(self._make_rest)
            rest = self._rest = self._rest or made
        request_id = new_id()
        started = perf_counter()
        self._series.active_requests += 1
        status, template = _ABANDONED, _NATIVE
        reading = Reading(self._series.traffic)
        try:
            most = self._max_body_bytes
            body = AccessDenied(reason) if reason else await _body(scope, receive, reading, most)
            content = body if isinstance(body, bytes) else b""
            request = self._request(scope, content, request_id, started)
            request.path = scope["raw_path"].decode("latin-1")
            if not isinstance(body, bytes):
                response = rest.turned_away(request, body)
            elif rest.may_wait(request):
                response = await _unless_gone(rest.answer(request), scope, receive)
            else:
                response = await rest.answer(request)
            status, template = response.status, response.action
            await _send(send, response, scope["method"] == "HEAD")
        except _Gone:
            _log.debug("%s: the client went away", request_id)
        finally:
            reading.end()
            self._series.active_requests -= 1
            self._series.answered(scope["method"], template, "", status, started)
            if self._access_log:
                log_access(request_id, scope["method"], template, status, started)

    def _refusal(self, reason: str) -> Rejected:
        """Of a request whose body was not read."""
        if reason:
            return AccessDenied(reason)
        return RequestTooLarge(
            f"The request body is larger than the {self._max_body_bytes} bytes that this endpoint "
            "takes."
        )

    def _request(self, scope: Scope, body: bytes, request_id: str, started: float) -> Request:
        headers = {name.decode("latin-1"): v.decode("latin-1") for name, v in scope["headers"]}
        base_url = self._base_url or url_asked(scope, headers)
        links_url = base_url if self._links_url is None else self._links_url
        return Request(
            scope["method"],
            scope["path"],
            scope["query_string"],
            headers,
            body,
            base_url,
            links_url,
            request_id,
            started,
            scope["raw_path"],
        )


async def _body(
    scope: Scope, receive: Receive, reading: Reading, most: int
) -> bytes | RequestTooLarge | Unavailable:
    """The whole body, or why it was not read to its end: what says that it will be too large is
    not begun."""
    too_large = RequestTooLarge(
        f"The request body is larger than the {most} bytes that this endpoint takes."
    )
    announced = next((v for name, v in scope["headers"] if name == b"content-length"), b"0")
    if int(announced) > most:
        return too_large
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        part = message.get("body", b"")
        if not reading.add(len(part)):
            return Unavailable("Too many bytes of requests and answers are under way.")
        if reading.size_bytes > most:
            return too_large
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _named_action(scope: Scope) -> str | None:
    """The action of X-Amz-Target; None where only the body tells."""
    for name, value in scope["headers"]:
        if name == b"x-amz-target":
            action: bytes = value.rpartition(b".")[2]
            return action.decode("latin-1")
    return None


class _Gone(Exception):
    """The client closed the connection before its answer."""


def _may_wait(request: Request) -> bool:
    """Whether the request may be a long poll: watching its client costs two tasks."""
    target = request.headers.get("x-amz-target")
    if target is not None:
        return target.endswith("ReceiveMessage")
    if b"ReceiveMessage" in request.query:
        return True
    # Nor is a long poll long: an action of another name need not be searched for it.
    return len(request.body) <= most_bytes("ReceiveMessage") and b"ReceiveMessage" in request.body


async def _unless_gone(answer: Awaitable[Response], scope: Scope, receive: Receive) -> Response:
    """The response, unless the client goes away first: then the work is cancelled."""
    if WAITS in scope:
        scope[WAITS]()
    work = asyncio.ensure_future(answer)
    watch = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and watch.result()["type"] == "http.disconnect":
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise _Gone
        return await work
    finally:
        watch.cancel()
        work.cancel()


def _with_headers(send: Send, more: list[tuple[bytes, bytes]]) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending


def _label(scope: Scope) -> str:
    return page_label(scope["raw_path"].decode("latin-1"))


async def _send(send: Send, response: Response, head_only: bool) -> None:
    headers = response.headers
    if response.status != 204:
        headers = [*headers, (b"content-length", str(len(response.body)).encode())]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head_only else response.body})


def log_access(request_id: str, method: str, action: str, status: int, started: float) -> None:
    """One line of the access log; the duration is in milliseconds."""
    _log.info(
        "request",
        extra={
            "request_id": request_id,
            "method": method,
            "action": action,
            "status": status,
            "duration_ms": round((perf_counter() - started) * 1000, 3),
        },
    )
