"""The fast path: answers a complete ``POST`` to ``/`` or a queue from one read.

It takes only requests that it recognises completely. Decoding, operations and encoding are those of
the AWS face (``hot_routes.py``). No task, no future and no ``Request`` is created. All others take
the ordinary way, with the same answer (``http_connection.py``): other actions and faces, partial or
chunked bodies, pipelining, headers that change how a message is read or whether, and hosts not yet
admitted. Measured in tests/bench/README.md.
"""

from __future__ import annotations

import re
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from queuegate.gateway.faces.aws.aws_face import AwsFace, Members
from queuegate.gateway.faces.interface import CallerAuthenticator
from queuegate.gateway.http import hot_routes
from queuegate.gateway.http.admission import Admission
from queuegate.gateway.http.app import ABANDONED, App, Auditor, PendingRequest, log_access
from queuegate.gateway.http.hot_routes import Exchange, HotRequest, Route
from queuegate.gateway.http.http_connection import HttpConnection
from queuegate.gateway.http.message_parsing import RequestHeads
from queuegate.gateway.operations.access.caller import Caller
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
        """The application, whose faces answer all other requests."""
        self.auditor: Auditor | None = None
        """Receives refusals; None: nothing is audited."""
        self.tracing: Tracing | None = None
        """Starts the spans of requests; None: traces are off."""
        self.hosts = admission.hosts
        self.links_url = links_url
        seconds: dict[str, Histogram] = {}
        # Without routes no request uses the fast path.
        self.by_target = hot_routes.routes_by_target(seconds) if is_open else {}
        self.by_action = hot_routes.routes_by_action(seconds) if is_open else {}
        self._routes = self.by_target, self.by_action
        for name, histogram in seconds.items():
            self.series.request_seconds[("POST", "/", name)] = histogram

    def close(self, is_closed: bool) -> None:
        """Leave all requests to the faces, where faults on purpose are, or no longer."""
        self.by_target, self.by_action = ({}, {}) if is_closed else self._routes

    def serve(self, app: App, tracing: Tracing | None) -> None:
        """Serve an application, with traces or without. Call before the first connection."""
        self.app = app
        self.engine.on_faults = self.close
        self.close(self.engine.faults is not None)
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
        # The face decodes long forms in steps, and yields to the event loop between them.
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
        "faces": fast_path.app,
        "heads": fast_path.heads,
        "traffic": fast_path.traffic,
        "origins": fast_path.origins,
    }
    return type("Protocol", (FastProtocol,), bound)


class FastProtocol(HttpConnection):
    """An HTTP connection with a fast path."""

    shared: FastPath
    _exchange: Exchange | PendingRequest | None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._admitting: object = None
        """The task in which an exchange waits for its rate limit."""
        self._head = b""

    def data_received(self, data: bytes) -> None:
        """Answer a complete common request. Leave all others to ``HttpConnection``."""
        if self._exchange is not None or self._held or self._takes_no_more:
            self._hold(data)
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        if (
            self._body is None
            and not self._head_begun
            and self.flow.write_paused is False
            and data.startswith(_POST)
            and self._take(data)
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

    def _abandon(self, exchange: Exchange | PendingRequest) -> None:
        self._exchange = None
        if isinstance(exchange, Exchange):
            self.shared.series.active_requests -= 1
            if exchange.span is not None:
                exchange.span.end(ABANDONED)
        if exchange.receiving is not None:
            exchange.receiving.cancel()

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
            exchange.context = exchange.context.traced(span.trace_header)
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
            self._render_defaults()
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

    def _render_defaults(self) -> None:
        """Render the head of successes, too."""
        super()._render_defaults()
        self._head = STATUS_LINE[200] + self._common_lines

    def answered(self, exchange: Exchange, status: int) -> None:
        """Log the written answer and wait for the next request."""
        if exchange.span is not None:
            exchange.span.end(status)
        if self.shared.access_log:
            origin = self.origin(exchange.headers.items())
            log_access(exchange.facts(), "POST", status, exchange.started, origin)
        self.shared.series.active_requests -= 1
        self._be_idle()
