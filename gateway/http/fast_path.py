"""The fast path: answers a complete ``POST`` to ``/`` or a queue from one read, without ASGI.

It takes only requests that it recognises completely. Decoding, operations and encoding are those of
the ASGI path (``hot_routes.py``). No task and no future is created.

Nearly all other requests are inline: a request from one read goes to its face without ASGI, in one
task or none. Unusual requests use ASGI, with the same answer: partial or chunked bodies,
pipelining, headers that change how a message is read or whether (``RequestHeads.common``), hosts
not yet admitted, faces not yet loaded, pages, bodies above a limit. ``http_connection.py`` reads
them. Measured in tests/bench/README.md.

A connection is in one of these states:

| State | Condition | Received data | Ends with |
| --- | --- | --- | --- |
| idle | none of the others | is answered or read | a request, or the keep-alive timeout |
| fast request | ``_exchange`` | is held | ``done`` or ``failed`` of the exchange |
| inline request | ``_exchange``, an ``InlineRequest`` | is held | the answer of its task |
| reading | ``_head_begun``, ``_body`` | belongs to the request | its last byte |
| ASGI request | ``_unanswered`` | is held | the answer of uvicorn's cycle |
| behind | ``_held`` | is held, too | the answer to the request before |

``_closing`` closes the connection after a fast, inline or ASGI request. A disconnect ends each
state: the exchange is abandoned, its received messages are released, and its reply is discarded.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from queuegate.gateway.faces.aws.aws_face import AwsFace, Members
from queuegate.gateway.faces.interface import (
    CallerAuthenticator,
    Face,
    Headers,
    Mount,
    Request,
    Response,
    Scope,
    Work,
)
from queuegate.gateway.http import hot_routes
from queuegate.gateway.http.admission import Admission
from queuegate.gateway.http.app import ABANDONED, WITHOUT_LENGTH, App, Auditor, log_access
from queuegate.gateway.http.hot_routes import Exchange, HotRequest, Route
from queuegate.gateway.http.http_connection import HttpConnection
from queuegate.gateway.http.message_parsing import CommonHeaders, RequestHeads
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.traffic import Reading
from queuegate.gateway.operations.telemetry.series import Histogram
from queuegate.protocol import query_wire
from queuegate.protocol.malformed import Malformed

if TYPE_CHECKING:
    from contextvars import Context

    from queuegate.gateway.tracing.spans import Tracing

_POST = b"POST /"
_START = b"POST / HTTP/1.1\r\n"
_QUEUE_START = re.compile(
    rb"POST /(?:queue/[a-z0-9-]{1,64}/)?[0-9]{12}/[\w-]{1,75}(?:\.fifo)? HTTP/1.1\r\n", re.ASCII
).match
_LONGEST_HEAD = 16_384
_LENGTH_DIGITS = 10
_JSON = b"application/x-amz-json"
_FORM = b"application/x-www-form-urlencoded"
_ACTION = b"Action="
_RECEIVE = "ReceiveMessage"

_SHORT_BYTES = 16_384
"""Shorter bodies count for no fair share."""


class FastPath:
    """State that all connections of a process share."""

    def __init__(
        self,
        aws: AwsFace,
        callers: CallerAuthenticator,
        admission: Admission,
        *,
        access_log: bool,
        links_url: str | None = None,
        is_open: bool = True,
    ) -> None:
        self.engine = aws.engine
        self.series = aws.engine.series
        self.traffic = aws.engine.series.traffic
        self.quotas = aws.engine.quotas
        self.callers = callers
        self.access_log = access_log
        self.origins = admission.peers
        self._needed = admission.peers.headers | callers.reads
        self.heads = RequestHeads(self._needed)
        self.app: App | None = None
        """The application whose faces answer inline; None: all other requests use ASGI."""
        self.auditor: Auditor | None = None
        """Receives refusals; None: nothing is audited."""
        self.tracing: Tracing | None = None
        """Starts the spans of requests; None: traces are off."""
        self.admission = admission
        self.hosts = admission.hosts
        self.links_url = links_url
        seconds: dict[str, Histogram] = {}
        # Without routes no request uses the fast path.
        self.by_target = hot_routes.routes_by_target(seconds) if is_open else {}
        self.by_action = hot_routes.routes_by_action(seconds) if is_open else {}
        self._left: tuple[App | None, dict[bytes, Route], dict[bytes, Route]] | None = None
        """The application and the routes while all requests are left to ASGI; None: in use."""
        for name, histogram in seconds.items():
            self.series.request_seconds[("POST", "/", name)] = histogram

    def leave_to_asgi(self, leaves_all: bool) -> None:
        """Leave all requests to ASGI, where faults on purpose are, or no longer."""
        if leaves_all and self._left is None:
            self._left = self.app, self.by_target, self.by_action
            self.app, self.by_target, self.by_action = None, {}, {}
        elif not leaves_all and self._left is not None:
            self.app, self.by_target, self.by_action = self._left
            self._left = None

    def serve(self, app: App, tracing: Tracing | None) -> None:
        """Serve an application, with traces or without. Call before the first connection."""
        self.app = app
        self.engine.on_faults = self.leave_to_asgi
        self.leave_to_asgi(self.engine.faults is not None)
        if tracing is not None:
            self.tracing = app.tracing = tracing
            self.heads = RequestHeads(self._needed | tracing.headers)

    def decoded(self, headers: dict[bytes, bytes], body: bytes) -> tuple[Route, Members] | None:
        """Return the route and members of a hot action; None: another action. Raises Malformed."""
        target = headers.get(b"x-amz-target")
        content_type = headers.get(b"content-type", b"")
        if target is not None:
            route = self.by_target.get(target)
            if route is None or len(body) > route.most_bytes or not content_type.startswith(_JSON):
                return None
            return route, route.wire.decode(route.action, body)
        # Forms that start otherwise are rare.
        # The ASGI path decodes long forms in steps, and yields to the event loop between them.
        if not content_type.startswith(_FORM) or not body.startswith(_ACTION):
            return None
        route = self.by_action.get(body[len(_ACTION) : body.find(b"&")])
        if route is None or len(body) > min(route.most_bytes, query_wire.LONG_FORM):
            return None
        params = query_wire.parse_form(body)
        if params.get("Version") not in route.wire.service.versions:
            return None
        return route, route.wire.decode(route.action, params)


def protocol_class(fast_path: FastPath) -> type[FastProtocol]:
    """Return the protocol class of this process, for uvicorn's ``http`` setting."""
    bound = {
        "shared": fast_path,
        "heads": fast_path.heads,
        "traffic": fast_path.traffic,
        "origins": fast_path.origins,
    }
    return type("Protocol", (FastProtocol,), bound)


class FastProtocol(HttpConnection):
    """An HTTP connection with a fast path."""

    shared: FastPath
    _exchange: Exchange | InlineRequest | None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._admitting: object = None
        """The task in which an exchange waits for its rate limit."""
        self._active_at = 0.0
        self._defaults: object = None
        self._common_lines = b""
        self._head = b""

    def data_received(self, data: bytes) -> None:
        """Answer a complete common request. Leave all others to ``HttpConnection``."""
        if self._exchange is not None or self._held or self._unanswered:
            self._hold(data)
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        if (
            self._body is None
            and not self._head_begun
            and not self._closing
            and self.flow.write_paused is False
            and ((data.startswith(_POST) and self._take(data)) or self._ask(data))
        ):
            return
        super()._read(data)

    def share(self) -> str:
        """Return the fair share of the account that asked, or of its address."""
        caller = hot_routes.caller_of(self._exchange)
        return super().share() if caller is None else caller.account_id

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the messages that were leased for this client."""
        exchange = self._exchange
        if exchange is not None:
            self._abandon(exchange)
        super().connection_lost(exc)

    def _abandon(self, exchange: Exchange | InlineRequest) -> None:
        self._exchange = None
        if isinstance(exchange, Exchange) and exchange.span is not None:
            exchange.span.end(ABANDONED)
        self.shared.series.active_requests -= 1
        if exchange.receiving is not None:
            exchange.receiving.cancel()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection. One timer serves many fast requests."""
        self.timeout_keep_alive_task = None
        if self._exchange is not None or self._active_at:
            left = self._active_at + self.timeout_keep_alive - self.loop.time()
            if self._exchange is not None or left > 0.0:
                self._arm(max(left, 1.0))
                return
        super().timeout_keep_alive_handler()

    def _arm(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def _take(self, data: bytes) -> bool:
        """Return True if the request was taken."""
        started = perf_counter()
        begin = len(_START)
        if not data.startswith(_START):
            line = _QUEUE_START(data)
            if line is None:
                return False
            begin = line.end()
        end = data.find(b"\r\n\r\n")
        if not 0 < end <= _LONGEST_HEAD:
            return False
        shared = self.shared
        headers = shared.heads.read(data[begin:end])
        if headers is None or headers[b"host"] not in shared.hosts:
            return False
        length = headers.get(b"content-length", b"")
        if (
            not length.isdigit()
            or len(length) > _LENGTH_DIGITS
            or int(length) != len(data) - end - 4
        ):
            return False
        body = data[end + 4 :]
        try:
            found = shared.decoded(headers, body)
        except Malformed:
            return False
        if found is None:
            return False
        route, members = found
        return self._start(route, headers, members, started, data, body)

    def _start(
        self,
        route: Route,
        headers: dict[bytes, bytes],
        members: Members,
        started: float,
        data: bytes,
        body: bytes,
    ) -> bool:
        shared = self.shared
        path = data[len(_POST) - 1 : data.find(b" ", len(_POST))]
        caller = shared.callers.fast_caller(headers, route.service, path, body)
        if caller is None:
            return False
        asked = HotRequest(shared.engine, caller, route, headers, data, shared.links_url, self)
        context = route.find(asked, members)
        if context is None:
            policies = shared.engine.policies
            if policies is None or not policies.asks_for_origins:
                return False
            caller = replace(caller, origin=self.origin(headers.items()))
            context = route.find(asked._replace(caller=caller), members)
            if context is None:
                return False
        quotas = shared.quotas
        is_asked = quotas.limits_requests or shared.traffic.is_tight
        is_limited = is_asked and not quotas.passes(caller, len(body))
        if is_limited and route.name == _RECEIVE:
            # The client may disconnect during the wait, and must not lease messages then.
            return False
        exchange = Exchange(self, route, context, members, started)
        exchange.headers = headers
        self._exchange = exchange
        self._reading_since = 0.0
        shared.series.active_requests += 1
        work_context = None
        if shared.tracing is not None:
            work_context = self._traced(shared.tracing, exchange)
        if is_limited:
            admitting = self._admit(exchange, caller, len(body))
            self._admitting = self.loop.create_task(admitting, context=work_context)
        elif work_context is None:
            exchange.start()
        else:
            work_context.run(exchange.start)
        return True

    def _traced(self, tracing: Tracing, exchange: Exchange) -> Context:
        """Start the span of the exchange. Return the context of its work."""
        span = exchange.span = tracing.request(exchange.headers.items(), exchange.started)
        if span is not None:
            route = exchange.route
            span.note_request("POST", "/", exchange.request_id)
            span.describe(route.wire.service.name, route.name, exchange.members)
        return tracing.context(span)

    async def _admit(self, exchange: Exchange, caller: Caller, size_bytes: int) -> None:
        """Start the exchange once the caller's rate limit in the database admits it."""
        try:
            await self.shared.quotas.admit(caller, size_bytes)
        except Exception as error:  # noqa: BLE001 - the outermost handler of this path
            exchange.failed(error)
            return
        if self._exchange is exchange:
            exchange.start()

    def is_answering(self, exchange: Exchange) -> bool:
        """Return True if the client of the exchange is still connected."""
        return self._exchange is exchange

    def fast_answer(self, exchange: Exchange, body: bytes, rest: int = 0) -> None:
        """Write a success. The caller writes the ``rest`` of the body, so many bytes."""
        if self._exchange is not exchange:
            return
        if self._defaults is not self.server_state.default_headers:
            self._render_head()
        self.transport.write(
            b"%bcontent-type: %b\r\nx-amzn-RequestId: %b\r\ncontent-length: %d\r\n%b\r\n%b"
            % (
                self._head,
                exchange.route.wire.content_type,
                exchange.request_id.encode(),
                len(body) + rest,
                b"connection: close\r\n" if self._closing else b"",
                body,
            )
        )
        if not rest:
            self.answered(exchange, 200)

    def fast_refusal(
        self, exchange: Exchange, status: int, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> None:
        """Write a refusal."""
        if self._exchange is not exchange:
            return
        request_id = (b"x-amzn-RequestId", exchange.request_id.encode())
        self._write_answer(status, [*headers, request_id], body, len(body))
        self.answered(exchange, status)

    def _render_head(self) -> None:
        """Render the headers that all answers of this second share."""
        defaults = self._defaults = self.server_state.default_headers
        self._common_lines = b"".join([b"%b: %b\r\n" % header for header in defaults])
        self._head = STATUS_LINE[200] + self._common_lines

    def answered(self, exchange: Exchange, status: int) -> None:
        """Log the written answer and wait for the next request."""
        if exchange.span is not None:
            exchange.span.end(status)
        if self.shared.access_log:
            origin = self.origin(exchange.headers.items())
            log_access(exchange.facts(), "POST", status, exchange.started, origin)
        self._be_idle()

    def _be_idle(self) -> None:
        """Wait for the next request after a written answer."""
        self._exchange = None
        self.shared.series.active_requests -= 1
        self.server_state.total_requests += 1
        if self._closing:
            self.transport.close()
            return
        self._active_at = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._arm(self.timeout_keep_alive)
        if self._held:
            # Not within the answer to the request before: a long pipeline would recurse.
            self.loop.call_soon(self._release_held)

    def _ask(self, data: bytes) -> bool:
        """Return True if the request was taken as an inline request."""
        shared = self.shared
        end = data.find(b"\r\n\r\n")
        if shared.app is None or not 0 < end <= _LONGEST_HEAD:
            return False
        head = shared.heads.common(data[:end])
        if head is None:
            return False
        method, _, lines = head
        if lines.length != len(data) - end - 4 or not shared.admission.allows(method, lines.host):
            return False
        inline = inline_request_for(self, shared.app, head, data[end + 4 :])
        if inline is None:
            return False
        self._exchange = inline
        self._reading_since = 0.0
        shared.series.active_requests += 1
        inline.start(data)
        return True

    def inline_answer(self, inline: InlineRequest, response: Response, body: bytes) -> None:
        """Write a complete answer, if its client is still connected."""
        if self._exchange is not inline:
            return
        length = None if response.status in WITHOUT_LENGTH else len(body)
        shown = b"" if inline.request.method == "HEAD" else body
        self._write_answer(response.status, response.headers, shown, length)
        self._be_idle()

    def _write_answer(self, status: int, headers: Headers, body: bytes, length: int | None) -> None:
        """Write a complete answer. ``length``: its Content-Length, if it has one."""
        if self._defaults is not self.server_state.default_headers:
            self._render_head()
        parts = [STATUS_LINE[status], self._common_lines]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if length is not None:
            parts.append(b"content-length: %d\r\n" % length)
        if self._closing:
            parts.append(b"connection: close\r\n")
        parts += (b"\r\n", body)
        self.transport.write(b"".join(parts))

    def continue_with_asgi(self, inline: InlineRequest, response: Response) -> None:
        """Continue with ASGI, for an answer in parts or one that takes the connection over."""
        if self._exchange is not inline:
            return
        self._exchange = None
        self.shared.series.active_requests -= 1
        self._prepared = inline.request, response
        super()._read(inline.data)
        caller = inline.request.caller
        self.account_id = "" if caller is None else caller.account_id
        if self._closing:
            self.shutdown()


class InlineRequest:
    """An inline request, from its bytes to its answer. Has the interface of ``Exchange``."""

    __slots__ = (
        "_app",
        "_face",
        "_is_held",
        "_is_over",
        "_mount",
        "_protocol",
        "_reading",
        "_work",
        "data",
        "receiving",
        "request",
    )

    def __init__(
        self,
        protocol: FastProtocol,
        app: App,
        opened: tuple[Mount, Face],
        request: Request,
        reading: Reading,
    ) -> None:
        self._protocol = protocol
        self._app = app
        self._mount, self._face = opened
        self._reading = reading
        self._work: Work | None = None
        self._is_over = False
        self._is_held = False
        self.request = request
        self.data = b""
        """The complete request, in case its answer needs ASGI."""
        self.receiving: InlineRequest | None = None
        """To cancel when the client disconnects; None: the work completes without a client."""

    def start(self, data: bytes) -> None:
        """Pass the request to the face."""
        self.data = data
        tracing = self._protocol.shared.tracing
        context = None if tracing is None else tracing.context(self.request.span)
        try_start = partial(self._face.try_start, self.request, self._answer)
        begun = try_start() if context is None else context.run(try_start)
        if begun is True:
            return
        self._work = begun or self._protocol.loop.create_task(self._run(), context=context)
        if self._face.may_wait(self.request):
            self.receiving = self

    def cancel(self) -> None:
        """Cancel the work of the face: the client has disconnected."""
        assert self._work is not None
        self._work.cancel()
        self._give_up()

    async def _run(self) -> None:
        try:
            response = await self._face.answer(self.request)
        except BaseException:
            self._give_up()
            raise
        self._answer(response)

    def _answer(self, response: Response) -> None:
        if not isinstance(response.body, bytes):
            self._reading.end()
            self._protocol.continue_with_asgi(self, response)
            return
        seconds = self._app.signature_delays.hold(self.request, response)
        if seconds:
            self._reading.end()
            self.data, self.receiving, self._is_held = b"", self, True
            self._work = self._protocol.loop.call_later(seconds, self._write, response)
        else:
            self._write(response)

    def _write(self, response: Response) -> None:
        assert isinstance(response.body, bytes)
        if self._protocol.shared.series.on_answer is not None:
            self._protocol.shared.series.on_answer(self.request.caller, len(response.body))
        self._protocol.inline_answer(self, response, response.body)
        self._end(response)

    def _give_up(self) -> None:
        """Close without an answer, after a disconnect or an error."""
        self._protocol.transport.close()
        self._end(None)

    def _end(self, response: Response | None) -> None:
        if not self._is_over:
            self._is_over = True
            if self._is_held:
                self._app.signature_delays.release()
            self._reading.end()
            self._app.count(self._mount, self.request, response)


def inline_request_for(
    protocol: FastProtocol, app: App, head: tuple[bytes, bytes, CommonHeaders], body: bytes
) -> InlineRequest | None:
    """Return an inline request if its face can answer inline; None: use ASGI."""
    method, target, lines = head
    path, _, query = target.partition(b"?")
    scope: Scope = {
        "type": "http",
        "method": method.decode(),
        "scheme": protocol.scheme,
        "server": protocol.server,
        "client": protocol.client,
        "raw_path": path,
        "query_string": query,
        "headers": lines.headers,
    }
    raw_path = path.decode("latin-1")
    scope["path"] = unquote(raw_path) if "%" in raw_path else raw_path
    mount = app.mount_of(raw_path, scope)
    face = mount.face
    if face is None or mount.is_operators:
        return None
    request = app.request(scope, raw_path, perf_counter(), lines.named)
    most = face.most_bytes(request)
    if len(body) > (app.max_body_bytes if most is None else min(app.max_body_bytes, most)):
        return None
    reading = Reading(protocol.traffic)
    if len(body) > _SHORT_BYTES:
        reading = request.reading = Reading(protocol.traffic, protocol.address_share())
    if not reading.add(len(body)):
        reading.end()
        return None
    request.body = body
    return InlineRequest(protocol, app, (mount, face), request, reading)
