"""Spans of requests on the fast path. The classes here take the place of the plain ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queuegate.gateway.http.fast_path import Exchange, FastPath, FastProtocol, protocol_class
from queuegate.gateway.http.request_heads import RequestHeads
from queuegate.gateway.http.short_way import Asking
from queuegate.gateway.tracing import parents, spans
from queuegate.gateway.tracing.spans import CURRENT

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from queuegate.gateway.faces.aws.aws_face import Members
    from queuegate.gateway.http.hot_routes import Route
    from queuegate.gateway.tracing.spans import Tracing


class TracedExchange(Exchange):
    """One request, which may be traced."""

    __slots__ = ("span",)

    span: Span | None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.span = None

    def start(self) -> None:
        """Run the operation in the name of this request."""
        span = self.span = self.protocol.begin(self)
        token = CURRENT.set(span)
        try:
            super().start()
        finally:
            CURRENT.reset(token)

    def done(self, result: object) -> None:
        """Write the answer; a span says how many messages came, or which one went."""
        if self.span is not None:
            if isinstance(result, list) and self.route.name == "ReceiveMessage":
                self.span.set_attribute("messaging.batch.message_count", len(result))
            message_id = getattr(result, "message_id", None)
            if isinstance(message_id, str):
                self.span.set_attribute("messaging.message.id", message_id)
        super().done(result)

    def failed(self, error: BaseException) -> None:
        """Write a refusal; a span has its class."""
        if self.span is not None:
            self.span.set_attribute("error.type", type(error).__name__)
        super().failed(error)


class TracedProtocol(FastProtocol):
    """One connection."""

    tracing: Tracing
    _incoming: dict[bytes, bytes]

    def begin(self, exchange: Exchange) -> Span | None:
        """The span of a request that was just taken."""
        traceparent = self._incoming.get(parents.TRACEPARENT)
        parent = None
        if traceparent is not None:
            state = self._incoming.get(parents.TRACESTATE, b"")
            parent = parents.parse(traceparent, state)
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

    def _abandon(self, exchange: Exchange | Asking) -> None:
        super()._abandon(exchange)
        assert isinstance(exchange, TracedExchange)
        if exchange.span is not None:
            spans.answered(exchange.span, spans.ABANDONED)

    def answered(self, exchange: Exchange, status: int) -> None:
        """The answer is written, and the span ends."""
        assert isinstance(exchange, TracedExchange)
        if exchange.span is not None:
            spans.answered(exchange.span, status)
        super().answered(exchange, status)


def traced_protocol_class(tracing: Tracing, fast_path: FastPath) -> type[FastProtocol]:
    """The protocol class of a process that makes traces; changes ``fast_path`` for it."""
    fast_path.heads = RequestHeads(parents.HEADERS | fast_path.origins.headers)
    fast_path.exchange = TracedExchange

    protocol = protocol_class(fast_path, TracedProtocol)
    assert issubclass(protocol, TracedProtocol)
    protocol.tracing = tracing
    return protocol
