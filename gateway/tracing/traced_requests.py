"""Spans of requests: inline requests on the fast path, and ASGI requests of every face."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from queuegate.gateway.http.app import App
from queuegate.gateway.http.fast_path import FastPath, FastProtocol, InlineRequest, protocol_class
from queuegate.gateway.http.hot_routes import Exchange
from queuegate.gateway.http.message_parsing import RequestHeads
from queuegate.gateway.tracing import spans
from queuegate.gateway.tracing.spans import CURRENT, ErrorNote, parent_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from queuegate.gateway.faces.aws.aws_face import AwsCall, Binding, Members
    from queuegate.gateway.faces.interface import (
        Face,
        Mount,
        Receive,
        Request,
        Response,
        Scope,
        Send,
    )
    from queuegate.gateway.http.app import BodyReader
    from queuegate.gateway.http.hot_routes import Route
    from queuegate.gateway.tracing.spans import Tracing


class TracedExchange(Exchange):
    """An inline request that may be traced."""

    __slots__ = ("span",)

    span: Span | None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.span = None

    def start(self) -> None:
        """Run the operation with the span of this request."""
        span = self.span = self.protocol.begin(self)
        with spans.as_current(span):
            super().start()

    def done(self, result: object) -> None:
        """Write the response; note the messages of the result in the span."""
        if self.span is not None:
            if isinstance(result, list) and self.route.name == "ReceiveMessage":
                self.span.set_attribute("messaging.batch.message_count", len(result))
            message_id = getattr(result, "message_id", None)
            if isinstance(message_id, str):
                self.span.set_attribute("messaging.message.id", message_id)
        super().done(result)

    def failed(self, error: BaseException) -> None:
        """Write a refusal; note its class in the span."""
        if self.span is not None:
            self.span.set_attribute("error.type", type(error).__name__)
        super().failed(error)


class TracedProtocol(FastProtocol):
    """A connection whose requests may be traced."""

    tracing: Tracing
    _incoming: dict[bytes, bytes]

    def begin(self, exchange: Exchange) -> Span | None:
        """Start the span of a request, if it is sampled."""
        traceparent = self._incoming.get(spans.TRACEPARENT)
        parent = None
        if traceparent is not None:
            state = self._incoming.get(spans.TRACESTATE, b"")
            parent = spans.parse_traceparent(traceparent, state)
        span = self.tracing.request(parent, "POST /", exchange.started)
        if span is not None:
            route = exchange.route
            spans.describe(span, route.wire.service.name, route.name, exchange.members)
            spans.note_route(span, "POST", "/")
            spans.note_id(span, exchange.request_id)
        return span

    def _start(
        self,
        route: Route,
        headers: dict[bytes, bytes],
        members: Members,
        started: float,
        data: bytes,
        body: bytes,
    ) -> bool:
        self._incoming = headers
        return super()._start(route, headers, members, started, data, body)

    def _abandon(self, exchange: Exchange | InlineRequest) -> None:
        super()._abandon(exchange)
        assert isinstance(exchange, TracedExchange)
        if exchange.span is not None:
            spans.answered(exchange.span, spans.ABANDONED)

    def answered(self, exchange: Exchange, status: int) -> None:
        """End the span after the response."""
        assert isinstance(exchange, TracedExchange)
        if exchange.span is not None:
            spans.answered(exchange.span, status)
        super().answered(exchange, status)


def traced_protocol_class(tracing: Tracing, fast_path: FastPath) -> type[FastProtocol]:
    """Return the protocol class of a process with traces, and prepare ``fast_path`` for it."""
    fast_path.heads = RequestHeads(spans.TRACE_HEADERS | fast_path.origins.headers)
    fast_path.exchange = TracedExchange

    protocol = protocol_class(fast_path, TracedProtocol)
    assert issubclass(protocol, TracedProtocol)
    protocol.tracing = tracing
    return protocol


_BROKEN = 500
_REQUEST_IDS = (b"x-amzn-requestid", b"x-request-id")


class TracedApp(App):
    """The ASGI app with a span around each sampled request."""

    def __init__(self, tracing: Tracing, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._tracing = tracing

    async def _enter(
        self, mount: Mount, path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        parent = parent_of(scope["headers"])
        # The label, not the path, which may contain secrets.
        method, route = scope["method"], mount.label(path).rstrip("/") or "/"
        span = self._tracing.request(parent, spans.request_name(method, route), perf_counter())
        # Replaces a span that this task inherited.
        CURRENT.set(span)
        if span is None:
            await super()._enter(mount, path, scope, receive, send)
            return
        spans.note_route(span, method, route)
        status = spans.ABANDONED

        async def watching(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                for name, value in message["headers"]:
                    if name in _REQUEST_IDS:
                        spans.note_id(span, value.decode("latin-1"))
            await send(message)

        try:
            with ErrorNote(span):
                await super()._enter(mount, path, scope, receive, watching)
        except BaseException:
            status = _BROKEN
            raise
        finally:
            spans.answered(span, status)

    async def _ask(
        self, face: Face, request: Request, scope: Scope, reader: BodyReader, reason: str
    ) -> Response:
        """Note the path template of the response in the span."""
        response = await super()._ask(face, request, scope, reader, reason)
        span = CURRENT.get()
        if span is not None and response.route:
            spans.describe_native(span, request.method, response.route, request.raw_path)
        return response


def traced_bindings(bindings: Mapping[str, Mapping[str, Binding]]) -> dict[str, dict[str, Binding]]:
    """Wrap the bindings of each service, so that they describe requests in their spans."""
    return {
        service: {name: _traced(binding) for name, binding in actions.items()}
        for service, actions in bindings.items()
    }


def _traced(binding: Binding) -> Binding:
    async def traced(call: AwsCall) -> Members | None:
        span = CURRENT.get()
        if span is None:
            return await binding(call)
        detected = call.detected
        members = call.members
        if detected.path_queue is not None and not members.get("QueueUrl"):
            members = {**members, "QueueUrl": detected.path_queue.name}
        spans.describe(span, detected.service, detected.action or "", members)
        with ErrorNote(span):
            result = await binding(call)
        spans.note_result(span, result)
        return result

    return traced
