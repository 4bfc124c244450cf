"""The ASGI application: handles requests of all faces, from admission to the access log.

It checks the source of a request (``Admission``), selects the face by the path, and counts, limits
and logs. The faces parse and answer. Common sends, receives, deletes and publishes do not come
here: ``fast_path.py`` answers them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    MutableMapping,
    Sequence,
)
from ipaddress import IPv6Address
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

from queuegate.gateway.faces.interface import (
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
from queuegate.gateway.faces.request_facts import facts_of
from queuegate.gateway.http.admission import Admission
from queuegate.gateway.http.authentication import presented_key
from queuegate.gateway.http.http_connection import CONNECTION, PREPARED
from queuegate.gateway.log_lines import RateLimitedLogger
from queuegate.gateway.operations.access.authorization import Effect, effect_of
from queuegate.gateway.operations.access.caller import RequestOrigin
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.gateway.operations.runtime.traffic import Reading, unverified
from queuegate.gateway.operations.telemetry.series import Series
from queuegate.protocol.service_detection import has_form
from queuegate.storage.storage_errors import (
    AccessDenied,
    Denied,
    IncompleteSignature,
    InvalidSignature,
    Kind,
    Rejected,
    RequestTooLarge,
    Unavailable,
    UnrecognizedClient,
)

if TYPE_CHECKING:
    from queuegate.gateway.audit_lines import Audit
    from queuegate.gateway.faces.interface import RequestedOperation
    from queuegate.gateway.http.hot_routes import Exchange
    from queuegate.gateway.http.http_connection import HttpConnection
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.tracing.spans import Tracing


_log = logging.getLogger("queuegate.http")

ABANDONED = 499
"""The counted status of a request whose client disconnected before the answer."""
_MOST_OF_STRANGERS = 65_536
"""Limit for reading a form whose head cannot authenticate."""
WITHOUT_LENGTH = (204, 304)
"""Statuses of answers without a body."""
_refused = RateLimitedLogger(10.0)
_PROXIED = "x-forwarded-proto"

Result = TypeVar("Result")

_FREE: Final = 5
"""Answers that an address gets at once after a pause."""
_SECONDS_EACH: Final = 0.1
_MOST_ADDRESSES: Final = 10_000
_MOST_HELD: Final = 1_000
"""Limit of answers delayed at the same time. Further ones are sent at once and close their
connection."""

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


class AppOptions(NamedTuple):
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
        self, mounts: Sequence[Mount], series: Series, admission: Admission, options: AppOptions
    ) -> None:
        self._mounts = mounts
        self._admission = admission
        self._base_url = options.base_url
        self._links_url = options.links_url
        self.max_body_bytes = options.max_body_bytes
        self._access_log = options.access_log
        self._series = series
        self.signature_delays = SignatureDelays(options.signature_delay_seconds)
        self._origins = admission.peers
        self._has_warned_of_proxies = False
        self.tracing: Tracing | None = None
        """Starts the spans of requests; None: traces are off."""
        self.auditor: Auditor | None = None
        """Receives each answered request; None: nothing is audited."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["raw_path"].decode("latin-1")
        await self._enter(self.mount_of(path, scope), path, scope, receive, send)

    def mount_of(self, path: str, scope: Scope) -> Mount:
        """Return the first mount for a path. The last mount matches all paths."""
        for mount in self._mounts:
            if mount.is_for(path, scope):
                return mount
        raise AssertionError(path)

    async def _enter(
        self, mount: Mount, path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        verdict = self._admission.judge(scope, mount.may_navigate)
        if verdict.reason:
            # The page sees only that it was refused, so the log gives its author the reason.
            _refused.warn(_log, "refused: %s", verdict.reason)
        if verdict.is_preflight:
            await _send(send, Response(204, verdict.headers or [], b""), b"", scope)
            return
        started = perf_counter()
        face = mount.face or await mount.open()
        request = self._entered(scope, path, started)
        response: Response | None = None
        request.reading = Reading(self._series.traffic, unverified(request.origin.address))
        reader = BodyReader(receive, request.reading, self.max_body_bytes)
        if not mount.is_operators:
            self._series.active_requests += 1
        try:
            response = await self._ask(face, request, scope, reader, verdict.reason)
            response.headers += verdict.headers or ()
            await self._write(request, response, scope, receive, send)
        except _Disconnected:
            _log.debug("%s: the client went away", request.request_id, extra=facts_of(request))
        finally:
            reader.reading.end()
            if not mount.is_operators:
                self._series.active_requests -= 1
            self.count(mount, request, response)

    def _entered(self, scope: Scope, path: str, started: float) -> Request:
        """Return the request, and trace the work of this task as its work."""
        request = scope[PREPARED][0] if PREPARED in scope else self.request(scope, path, started)
        if self.tracing is not None:
            self.tracing.enter(request.span)
        return request

    async def _ask(
        self, face: Face, request: Request, scope: Scope, reader: BodyReader, reason: str
    ) -> Response:
        """Return the response of a face. With a reason, refuse the request with its body unread."""
        if PREPARED in scope:
            response: Response = scope[PREPARED][1]
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
        self, request: Request, response: Response, scope: Scope, reader: BodyReader
    ) -> None:
        """Delay the answer to a wrong signature."""
        seconds = self.signature_delays.hold(request, response)
        if seconds:
            reader.reading.end()
            try:
                await _unless_disconnected(asyncio.sleep(seconds), scope, reader.receive)
            finally:
                self.signature_delays.release()

    async def _refuse_stranger(
        self, face: Face, request: Request, scope: Scope, reader: BodyReader
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
            connection.limit_dropped_bytes()
        return response

    async def _write(
        self, request: Request, response: Response, scope: Scope, receive: Receive, send: Send
    ) -> None:
        body = response.body
        if CONNECTION in scope and request.caller is not None:
            scope[CONNECTION].account_id = request.caller.account_id
        if request.ending:
            await _break_off(request.ending, response, scope[CONNECTION], send)
        if isinstance(body, bytes):
            if self._series.on_answer is not None:
                self._series.on_answer(request.caller, len(body))
            await _send(send, response, body, scope)
        elif isinstance(body, ConnectionHandler):
            connection = scope[CONNECTION]
            connection.leave_unframed()
            await send(_head(response.status, response.headers))
            connection.take_over(body)
        else:
            await _unless_disconnected(_send(send, response, body, scope), scope, receive)

    def request(
        self, scope: Scope, raw_path: str, started: float, headers: Mapping[str, str] | None = None
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
            scope["client"],
            span=None if self.tracing is None else self.tracing.request(scope["headers"], started),
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

    def count(self, mount: Mount, request: Request, response: Response | None) -> None:
        """Count the finished request in metrics, and log it. None: its client disconnected."""
        method, status, action, route = request.method, ABANDONED, "", ""
        if response is not None:
            status, action, route = response.status, response.action, response.route
        route = route or mount.label(request.raw_path)
        self._series.answered(method, route, action, status, request.started)
        if request.span is not None:
            request.span.answered(request, route, status)
        if self.auditor is not None:
            self.auditor.answered(request, route, status)
        if self._access_log and not mount.is_operators:
            # On "/" one path serves all actions; elsewhere the route names the operation.
            facts = facts_of(request) | {"action": action if route == "/" else route}
            log_access(facts, method, status, request.started, request.origin)


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


class BodyReader:
    """Reads a request. Its bytes count until ``reading`` ends."""

    __slots__ = ("most", "reading", "receive")

    def __init__(self, receive: Receive, reading: Reading, most: int) -> None:
        self.receive = receive
        self.reading = reading
        self.most = most
        """Longest body in bytes."""

    async def _next(self) -> MutableMapping[str, Any]:
        """Return the next part. Raise RequestTooLarge or Unavailable over a limit."""
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise _Disconnected
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
            message = await self._next()
            found += message.get("body", b"")
            if not message.get("more_body"):
                return found, False
        return found[:_MOST_OF_STRANGERS].rpartition(b"&")[0], True

    async def body(self) -> bytes:
        """Return the whole body."""
        parts = []
        while True:
            message = await self._next()
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(
            f"The request body is larger than the {self.most} bytes that this endpoint takes."
        )


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


def _head(status: int, headers: Headers) -> MutableMapping[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


async def _send(
    send: Send, response: Response, body: bytes | AsyncIterator[bytes], scope: Scope
) -> None:
    headers = response.headers
    if response.status not in WITHOUT_LENGTH and isinstance(body, bytes):
        headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send(_head(response.status, headers))
    is_to_head = scope["method"] == "HEAD"
    if not isinstance(body, bytes):
        if not is_to_head:
            async for part in body:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": b"" if is_to_head else body})


async def _break_off(
    ending: str, response: Response, connection: HttpConnection, send: Send
) -> NoReturn:
    """End the connection in place of the answer, or within it: a fault on purpose."""
    body = response.body
    if isinstance(body, ConnectionHandler):
        body.lost()
    elif ending == "truncate" and isinstance(body, bytes):
        length = (b"content-length", b"%d" % (len(body) + 1))
        await send(_head(response.status, [*response.headers, length]))
        part = body[: len(body) // 2]
        await send({"type": "http.response.body", "body": part, "more_body": True})
    connection.break_off(is_reset=ending == "drop", is_half=ending == "half_close")
    raise _Disconnected


def log_access(
    facts: dict[str, object], method: str, status: int, started: float, origin: RequestOrigin
) -> None:
    """Write one line of the access log, with the duration in milliseconds."""
    _log.info(
        "request",
        extra={
            **facts,
            "method": method,
            "status": status,
            "address": origin.address,
            "duration_ms": round((perf_counter() - started) * 1000, 3),
        },
    )


class SignatureDelays:
    """Counts wrong signatures by address and computes the delays of their answers."""

    def __init__(self, longest_seconds: float, now: Callable[[], float] = monotonic) -> None:
        self._longest_seconds = longest_seconds
        self._now = now
        self._paid_at: OrderedDict[str, float] = OrderedDict()
        """By address, the time at which its count is zero again, least recently used first."""
        self._held = 0

    def hold(self, request: Request, response: Response) -> float:
        """Return the seconds by which to delay an answer; 0: no delay.

        After a delay, call ``release``.
        """
        refusal = request.refusal
        if refusal is None or not isinstance(refusal, (InvalidSignature, UnrecognizedClient)):
            return 0.0
        now, whose = self._now(), _network(request.origin.address)
        paid_at = max(self._paid_at.pop(whose, now), now) + _SECONDS_EACH
        seconds = min(paid_at - now - _FREE * _SECONDS_EACH, self._longest_seconds)
        self._paid_at[whose] = min(paid_at, now + _FREE * _SECONDS_EACH + self._longest_seconds)
        if len(self._paid_at) > _MOST_ADDRESSES:
            self._paid_at.popitem(last=False)
        if seconds <= 0:
            return 0.0
        if self._held >= _MOST_HELD:
            response.headers.append((b"connection", b"close"))
            return 0.0
        self._held += 1
        # A delayed answer no longer needs the body.
        request.body = b""
        return seconds

    def release(self) -> None:
        """End a delay."""
        self._held -= 1


def _network(address: str) -> str:
    """Return the address; of IPv6 the first half, since one client may have all of a /64."""
    return IPv6Address(address).exploded[:19] if ":" in address else address


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
    shown = _SHOWN.match(presented_key(headers, {}))
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
