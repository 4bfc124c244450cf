"""Requests of all faces, from admission to the access log.

``App`` checks the source of a request (``Admission``), selects the face by the path, and counts,
limits and logs. The faces parse and answer. ``http_connection.py`` reads and writes the messages;
another ASGI server can do so, too, since ``App`` is an ASGI application. Common sends, receives,
deletes and publishes do not come here: ``fast_path.py`` answers them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from ipaddress import IPv6Address
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from queuegate.gateway.faces.interface import (
    ConnectionHandler,
    Face,
    Mount,
    Request,
    Response,
    Work,
)
from queuegate.gateway.faces.request_facts import facts_of
from queuegate.gateway.http.admission import Admission, Verdict
from queuegate.gateway.http.authentication import presented_key
from queuegate.gateway.http.message_parsing import HeaderFields, RequestHead
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
    Overloaded,
    Rejected,
    RequestTooLarge,
    Unavailable,
    UnrecognizedClient,
)

if TYPE_CHECKING:
    from queuegate.gateway.audit_lines import Audit
    from queuegate.gateway.faces.interface import RequestedOperation
    from queuegate.gateway.http.hot_routes import Exchange
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.tracing.spans import Tracing


_log = logging.getLogger("queuegate.http")

ABANDONED = 499
"""The counted status of a request whose client disconnected before the answer."""
_MOST_OF_STRANGERS = 65_536
"""Limit for reading a form whose head cannot authenticate."""
WITHOUT_LENGTH = (204, 304)
"""Statuses of answers without a body."""
_refused = RateLimitedLogger(60.0)
_PROXIED = "x-forwarded-proto"

Address = tuple[str, int] | None
Scope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]

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

_NO_CONNECTION = b"Push needs Queuegate's own server: this one cannot give a connection away.\n"


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
    """Serves the faces. The first mount that matches a request serves it."""

    def __init__(
        self, mounts: Sequence[Mount], series: Series, admission: Admission, options: AppOptions
    ) -> None:
        self._mounts = mounts
        self._admission = admission
        self._base_url = options.base_url
        self._links_url = options.links_url
        self.max_body_bytes = options.max_body_bytes
        self._access_log = options.access_log
        self.series = series
        self.signature_delays = SignatureDelays(options.signature_delay_seconds)
        self._origins = admission.peers
        self._has_warned_of_proxies = False
        self.tracing: Tracing | None = None
        """Starts the spans of requests; None: traces are off."""
        self.auditor: Auditor | None = None
        """Receives each answered request; None: nothing is audited."""

    def receive(
        self, head: RequestHead, client: Address, scheme: str, server: Any, *, is_short: bool
    ) -> PendingRequest:
        """Return the request of a head, and start its span. ``client`` and ``server`` are the ends
        of its connection.

        ``is_short``: its whole body is there and short, so its bytes count for no fair share.
        """
        request = self._request(head, client, scheme, server)
        for mount in self._mounts:
            # The last one matches all paths.
            if mount.is_for(request):
                break
        verdict = self._admission.judge(request, mount.may_navigate)
        if verdict.reason:
            # The page sees only that it was refused, so the log gives its author the reason.
            _refused.warn(_log, "refused: %s", verdict.reason)
        return PendingRequest(self, head, request, mount, verdict, is_short)

    def _request(self, head: RequestHead, client: Address, scheme: str, server: Any) -> Request:
        started = perf_counter()
        path, _, query = head.target.partition(b"?")
        raw_path = path.decode("latin-1")
        raw, headers = head.fields.raw, head.fields.named
        origin = self._origins.of(client, scheme, raw)
        if not self._has_warned_of_proxies and _PROXIED in headers:
            self._warn_of_proxy(client)
        base_url = self._base_url or _url_asked(origin, server, headers)
        span = None if self.tracing is None else self.tracing.request(raw, started)
        if span is not None:
            # What is sent in this span says so.
            headers = {"x-amzn-trace-id": span.trace_header, **headers}
        return Request(
            head.method,
            unquote(raw_path) if "%" in raw_path else raw_path,
            query,
            headers,
            b"",
            base_url,
            base_url if self._links_url is None else self._links_url,
            new_id(),
            started,
            raw_path,
            origin,
            raw,
            client,
            span=span,
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
        self.series.answered(method, route, action, status, request.started)
        if request.span is not None:
            request.span.answered(request, route, status)
        if self.auditor is not None:
            self.auditor.answered(request, route, status)
        if self._access_log and not mount.is_operators:
            # On "/" one path serves all actions; elsewhere the route names the operation.
            facts = facts_of(request) | {"action": action if route == "/" else route}
            log_access(facts, method, status, request.started, request.origin)

    async def __call__(self, scope: Scope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Answer one request of another ASGI server, which frames the messages."""
        raw = list(scope["headers"])
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
        head = RequestHead(
            scope["method"],
            b"%b?%b" % (scope["raw_path"], scope["query_string"]),
            HeaderFields(raw, named, None, int(named.get("content-length", 0)), closes=False),
        )
        ends = scope["client"], scope["scheme"], scope.get("server")
        pending = self.receive(head, *ends, is_short=False)
        if self.tracing is not None:
            self.tracing.enter(pending.request.span)
        try:
            await pending.mount.open()
            is_read = pending.check_head() or pending.check_account()
            while not is_read:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                is_last = not message.get("more_body")
                is_read = pending.take(message.get("body", b""), is_last=is_last)
            answering = asyncio.ensure_future(_send(pending, send))
            watch = asyncio.ensure_future(receive())
            try:
                await asyncio.wait((answering, watch), return_when=asyncio.FIRST_COMPLETED)
                if answering.done():
                    answering.result()
            finally:
                watch.cancel()
                answering.cancel()
        finally:
            pending.end()


async def _send(pending: PendingRequest, send: AsgiSend) -> None:
    """Send the answer of a request to another ASGI server."""
    response = pending.response or await pending.face.answer(pending.request)
    body = response.body
    if isinstance(body, ConnectionHandler):
        body.lost()
        body = _NO_CONNECTION
        response = Response(501, [(b"content-type", b"text/plain; charset=utf-8")], body)
    await asyncio.sleep(pending.hold(response))
    pending.complete(response)
    headers = response.headers
    if isinstance(body, bytes) and response.status not in WITHOUT_LENGTH:
        headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if not isinstance(body, bytes):
        if pending.request.method != "HEAD":
            async for part in body:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": body})


class PendingRequest:
    """A request other than those of the fast path, from its head to its answer.

    First comes ``check_head``, then ``check_account`` unless the whole body is there, then ``take``
    for each part of the body. Each returns True when the request can be answered: by its
    ``response`` if it has one, otherwise by its face. ``end`` comes last.
    """

    work: Work | None = None
    receiving: PendingRequest | None = None
    """To cancel when the client disconnects; None: the work completes without a client."""
    _content: bytearray | None = None
    """The parts of the body, if there are several."""
    _is_stranger = _is_delayed = _is_ended = _is_last = False

    def __init__(
        self,
        app: App,
        head: RequestHead,
        request: Request,
        mount: Mount,
        verdict: Verdict,
        is_short: bool,
    ) -> None:
        self._app = app
        self.head = head
        self.request = request
        self.mount = mount
        self._verdict = verdict
        self._most = app.max_body_bytes
        self.response = Response(204, [], b"") if verdict.is_preflight else None
        """The answer to count; before ``complete`` only one that needs no face."""
        if is_short:
            self._reading = Reading(app.series.traffic)
        else:
            share = unverified(request.origin.address)
            self._reading = request.reading = Reading(app.series.traffic, share)
        if not mount.is_operators:
            app.series.active_requests += 1

    @property
    def face(self) -> Face:
        """Return the face, which is open."""
        face = self.mount.face
        assert face is not None
        return face

    @property
    def expects_continue(self) -> bool:
        """Return True if the client waits for ``100 Continue`` before it sends the body."""
        expected = self.head.fields.named.get("expect", "")
        return self.head.version == "1.1" and expected.lower() == "100-continue"

    def check_head(self) -> bool:
        """Refuse what the head alone forbids: its origin, or the length of its body."""
        if self.response is not None:
            return True
        if self._verdict.reason:
            refusal = AccessDenied(self._verdict.reason)
            refusal.denied = Denied("origin")
            return self._turn_away(refusal)
        most = self.face.most_bytes(self.request)
        if most is not None:
            self._most = min(self._most, most)
        is_too_large = (self.head.fields.length or 0) > self._most
        return is_too_large and self._turn_away(RequestTooLarge(self._most))

    def check_account(self) -> bool:
        """Count the body for the account that the head claims.

        A head that cannot authenticate needs only the part of a form that tells the action.
        """
        request = self.request
        try:
            account_id = self.face.claimed(request)
        except (Rejected, Unavailable) as refusal:
            return self._turn_away(refusal)
        if account_id:
            self._reading.belong_to(unverified(request.origin.address, account_id))
        self._is_stranger = account_id is None
        request.is_cut = self._is_stranger and not has_form(request.method, request.headers, b"?")
        return request.is_cut

    def take(self, content: bytes, *, is_last: bool) -> bool:
        """Take a part of the body."""
        if self._content is not None:
            self._content += content
        elif not is_last:
            self._content = bytearray(content)
        if not self._reading.add(len(content)):
            refusal = Overloaded("Too many bytes of requests and answers are under way.")
            return self._turn_away(refusal)
        if self._reading.size_bytes > self._most:
            return self._turn_away(RequestTooLarge(self._most))
        if is_last:
            self.request.body = content if self._content is None else bytes(self._content)
            self._content = None
        elif self._is_stranger and self._reading.size_bytes > _MOST_OF_STRANGERS:
            assert self._content is not None
            form = bytes(self._content[:_MOST_OF_STRANGERS])
            self.request.body, self.request.is_cut = form.rpartition(b"&")[0], True
        return is_last or self.request.is_cut

    def _turn_away(self, refusal: Rejected | Unavailable) -> bool:
        self.request.refusal = refusal
        if isinstance(refusal, Overloaded):
            self._app.series.traffic.refused(str(refusal))
        # The rest of the body is dropped, so the connection cannot be used again.
        self._is_last = isinstance(refusal, RequestTooLarge | Unavailable)
        self.response = self.face.turned_away(self.request, refusal)
        return True

    def hold(self, response: Response) -> float:
        """Return the seconds by which to delay the answer to a wrong signature."""
        seconds = self._app.signature_delays.hold(self.request, response)
        if seconds:
            self._is_delayed = True
            self._reading.end()
        return seconds

    def complete(self, response: Response) -> None:
        """Add the headers of the connection to an answer, which is sent next."""
        request, body = self.request, response.body
        self.response = response
        response.headers += self._verdict.headers or ()
        if request.is_cut or self._is_last:
            response.headers.append((b"connection", b"close"))
        if isinstance(body, bytes) and self._app.series.on_answer is not None:
            self._app.series.on_answer(request.caller, len(body))

    def cancel(self) -> None:
        """Cancel the work of the face: the client has disconnected."""
        if self.work is not None:
            self.work.cancel()
        self.end()

    def end(self) -> None:
        """Count and log the request, after its answer or after a disconnect."""
        if self._is_ended:
            return
        self._is_ended = True
        # Free the request now: tasks and cancelled requests are reference cycles.
        self.work = self.receiving = None
        if self._is_delayed:
            self._app.signature_delays.release()
        self._reading.end()
        if not self.mount.is_operators:
            self._app.series.active_requests -= 1
        if not self._verdict.is_preflight:
            self._app.count(self.mount, self.request, self.response)


def _url_asked(origin: RequestOrigin, server: Any, headers: Mapping[str, str]) -> str:
    """Return scheme, host and port by which the client reached the gateway."""
    host = origin.host or headers.get("host") or "{}:{}".format(*(server or ("localhost", 0)))
    return f"{origin.scheme}://{host}"


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
