"""What spans there are, what they are called and what they say: OpenTelemetry's semantic
conventions where they fit, ``queuegate.`` names for the rest."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from random import getrandbits, random
from time import perf_counter
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    set_span_in_context,
)
from opentelemetry.trace.span import format_span_id, format_trace_id

from queuegate.gateway.tracing.parents import Parent
from queuegate.storage.deliveries.deliveries import Claimed

CURRENT: ContextVar[Span | None] = ContextVar("queuegate_span", default=None)
"""The sampled span on whose behalf something is done."""

ABANDONED = 499
"""The status of a request whose client went away, as in the metrics."""

_SYSTEMS = {"sqs": "aws_sqs", "sns": "aws.sns"}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "PATCH"})
_NAMED_BY = (
    ("QueueUrl", "/"),
    ("TopicArn", ":"),
    ("TargetArn", ":"),
    ("QueueName", ""),
    ("Name", ""),
)
_is_name = re.compile(r"[A-Za-z0-9_.-]{1,256}").fullmatch
_NOWHERE = Context()
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Tracing:
    """Begins spans: none for what nobody samples.

    A trace that begins here is sampled by chance; one of a caller's if the caller says so.
    """

    def __init__(self, tracer: Tracer, rate: float) -> None:
        self._tracer = tracer
        self._rate = rate

    def request(self, parent: Parent | None, name: str, started: float) -> Span | None:
        """A request that came in at ``started``, of ``perf_counter``."""
        if parent is None:
            if random() >= self._rate:
                return None
            context = _NOWHERE
        elif parent.is_sampled:
            context = _below(parent)
        else:
            return None
        began = time.time_ns() - int((perf_counter() - started) * 1e9)
        return self._tracer.start_span(name, context, SpanKind.SERVER, start_time=began)

    def flush(self, lane: str, spans: Sequence[Span], entries: int) -> Running:
        """A flush with entries of these requests."""
        first, *others = dict.fromkeys(spans)
        span = self._tracer.start_span(
            f"flush {lane}",
            set_span_in_context(first, _NOWHERE),
            attributes={"queuegate.lane": lane, "queuegate.flush.entries": entries},
            links=[Link(other.get_span_context()) for other in others],
        )
        return Running(span)

    def delivery(self, claimed: Claimed) -> Attempt:
        """One attempt to deliver to a web hook."""
        span = None
        if random() < self._rate:
            span = self._tracer.start_span(
                "deliver", _NOWHERE, SpanKind.CLIENT, attributes=_of_attempt(claimed)
            )
        return Attempt(span)

    def fire(self, began: int) -> Span | None:
        """A schedule that came due, whose firing began at this nanosecond of the epoch."""
        if random() >= self._rate:
            return None
        return self._tracer.start_span("fire", _NOWHERE, SpanKind.PRODUCER, start_time=began)


class Noting:
    """Notes in the span of a request what came of a ``with``: the class of the exception."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is not None:
            self._span.set_attribute("error.type", kind.__name__)


class Running(Noting):
    """A span around a ``with``; an exception that leaves it is told by its name alone."""

    __slots__ = ()

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        super().__exit__(kind, _, __)
        if kind is not None:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class Attempt:
    """The span of an attempt, and what its request carries."""

    __slots__ = ("_span",)

    def __init__(self, span: Span | None) -> None:
        self._span = span

    @property
    def headers(self) -> dict[str, str]:
        """``traceparent``, also where the answer to "is it sampled" is no: then none of what the
        web hook calls is sampled by chance, either."""
        if self._span is None:
            # Never zero, which would not be valid.
            trace_id, span_id = getrandbits(128) | 1, getrandbits(64) | 1
            return {"traceparent": f"00-{format_trace_id(trace_id)}-{format_span_id(span_id)}-00"}
        context = self._span.get_span_context()
        return {
            "traceparent": f"00-{format_trace_id(context.trace_id)}"
            f"-{format_span_id(context.span_id)}-{context.trace_flags:02x}"
        }

    def ended(self, status: int | None, error: str | None) -> None:
        """The attempt is over; ``error`` None: delivered."""
        span = self._span
        if span is None:
            return
        if status is not None:
            span.set_attribute("http.response.status_code", status)
        if error is not None:
            span.set_attribute("error.type", str(status or "no_answer"))
            span.set_status(StatusCode.ERROR, error)
        span.end()


def _below(parent: Parent) -> Context:
    state = TraceState.from_header([parent.state]) if parent.state else None
    caller = SpanContext(parent.trace_id, parent.span_id, True, _SAMPLED, state)
    return set_span_in_context(NonRecordingSpan(caller), _NOWHERE)


def _of_attempt(claimed: Claimed) -> dict[str, Any]:
    attributes = {
        "messaging.system": _SYSTEMS["sns"],
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "send",
        "messaging.destination.name": claimed.topic_name,
        "messaging.message.id": str(claimed.message_id),
        "queuegate.subscription.id": str(claimed.subscription_id),
        "queuegate.delivery.kind": claimed.kind,
        "queuegate.delivery.attempt": claimed.attempt_count,
        "http.request.method": "POST",
    }
    try:
        parts = urlsplit(claimed.endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        return attributes
    if host:
        attributes["server.address"] = host
    if port:
        attributes["server.port"] = port
    return attributes


def describe(span: Span, service: str, action: str, members: Mapping[str, Any]) -> None:
    """Say which action of AWS's a request is, and what it is about."""
    span.update_name(f"{service}.{action}")
    if service in _SYSTEMS:
        span.set_attributes(_of_messaging(service, action, members))
        return
    attributes = {"rpc.system": "aws-api", "rpc.service": service, "rpc.method": action}
    name = members.get("Name")
    if service == "scheduler" and isinstance(name, str) and _is_name(name):
        is_group = "ScheduleGroup" in action
        attributes[f"queuegate.schedule.{'group' if is_group else 'name'}"] = name
    span.set_attributes(attributes)


def describe_native(span: Span, method: str, template: str, path: str) -> None:
    """Say which endpoint of the native API a request is for, and which queue or schedule."""
    span.update_name(request_name(method, template))
    span.set_attribute("http.route", template)
    segments = zip(template.split("/"), path.split("/"), strict=False)
    name = next((segment for part, segment in segments if part.startswith("{")), None)
    if name is None or not _is_name(name):
        return
    if template.startswith("/v1/queues/"):
        span.set_attribute("messaging.system", "queuegate")
        span.set_attribute("messaging.destination.name", name)
    elif template.startswith("/v1/schedules/"):
        span.set_attribute("queuegate.schedule.name", name)
    elif template.startswith("/v1/events/"):
        span.set_attribute("messaging.system", "queuegate")
        span.set_attribute("messaging.destination.name", name)


def _of_messaging(service: str, action: str, members: Mapping[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": _SYSTEMS[service],
        "messaging.operation.name": action,
    }
    kind = _operation_type(action)
    if kind is not None:
        attributes["messaging.operation.type"] = kind
    entries = members.get("Entries") or members.get("PublishBatchRequestEntries")
    if isinstance(entries, list):
        attributes["messaging.batch.message_count"] = len(entries)
    name = destination_of(members)
    if name is not None:
        attributes["messaging.destination.name"] = name
    return attributes


def _operation_type(action: str) -> str | None:
    if action.startswith(("SendMessage", "Publish")):
        return "send"
    if action == "ReceiveMessage":
        return "receive"
    if action.startswith(("DeleteMessage", "ChangeMessageVisibility")):
        return "settle"
    return None


def destination_of(members: Mapping[str, Any]) -> str | None:
    """The name of the queue or topic that a request is about; None: it has none that is valid."""
    for member, separator in _NAMED_BY:
        text = members.get(member)
        if isinstance(text, str):
            # The ARN of a platform's endpoint has a slash in this place, and is no name.
            name = text.rpartition(separator)[2] if separator else text
            return name if _is_name(name) else None
    return None


def request_name(method: str, route: str) -> str:
    """ "GET /readyz"; a method that is none of HTTP's is not repeated."""
    return f"{method} {route}" if method in _METHODS else f"HTTP {route}"


def note_route(span: Span, method: str, route: str) -> None:
    """Say which way a request came. A method that is none of HTTP's is not repeated."""
    is_known = method in _METHODS
    span.set_attribute("http.request.method", method if is_known else "_OTHER")
    span.set_attribute("http.route", route)


def note_id(span: Span, request_id: str) -> None:
    """Say under which id the client and the logs know a request."""
    span.set_attribute("queuegate.request_id", request_id)


def note_result(span: Span, result: Mapping[str, Any] | None) -> None:
    """Say which message went, or how many came."""
    if not result:
        return
    message_id = result.get("MessageId")
    if isinstance(message_id, str):
        span.set_attribute("messaging.message.id", message_id)
    messages = result.get("Messages")
    if isinstance(messages, list):
        span.set_attribute("messaging.batch.message_count", len(messages))


def answered(span: Span, status: int) -> None:
    """End a request. What is the client's own mistake is no error of ours."""
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(StatusCode.ERROR)
    span.end()
