"""Spans: their names and attributes, after OpenTelemetry's semantic conventions where they fit.

Other attributes begin with ``queuegate.``. Requests name their parent by W3C Trace Context,
sections 2.2 and 4.3.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextvars import Context as WorkContext
from contextvars import ContextVar
from datetime import UTC, datetime
from random import getrandbits, random
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
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

from queuegate.storage.schedule_fires import Dispatched, Fire
from queuegate.storage.storage_errors import Unavailable
from queuegate.storage.topics.web_hook_deliveries import ClaimedDelivery

if TYPE_CHECKING:
    from queuegate.gateway.faces.interface import Request
    from queuegate.storage.database import Transaction
    from queuegate.storage.lanes import Entry
    from queuegate.storage.queue_model import Received


TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"
TRACE_HEADERS = frozenset({TRACEPARENT, TRACESTATE})

_PARTS = re.compile(
    rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
).fullmatch
_SAMPLED_BIT = 1
_ROOT = re.compile(r"Root=1-([0-9a-f]{8})-([0-9a-f]{24})(?![0-9a-f])").search
_PARENT = re.compile(r"Parent=([0-9a-f]{16})(?![0-9a-f])").search


class TraceParent(NamedTuple):
    """The calling span of a request, and the sampling decision of its trace."""

    trace_id: int
    span_id: int
    is_sampled: bool
    state: str = ""
    """The unchecked ``tracestate`` of the request."""


def parse_traceparent(header: bytes, state: bytes = b"") -> TraceParent | None:
    """Parse a ``traceparent``; return None if it is invalid, as if it were absent.

    Known parts of future versions are read, as the standard requires.
    """
    found = _PARTS(header.strip(b" \t"))
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not trace_id or not span_id:
        return None
    return TraceParent(
        trace_id, span_id, bool(int(flags, 16) & _SAMPLED_BIT), state.decode("latin-1")
    )


def parse_trace_header(text: str) -> TraceParent | None:
    """Parse an AWSTraceHeader; return None if it names no span."""
    root, parent = _ROOT(text), _PARENT(text)
    if root is None or parent is None:
        return None
    return TraceParent(int(root[1] + root[2], 16), int(parent[1], 16), "Sampled=1" in text)


def senders_of(message: Received) -> Iterator[TraceParent]:
    """Yield the spans that a message was sent in, as its sender and its gateway noted them."""
    if message.attributes and '"traceparent"' in message.attributes:
        given = json.loads(message.attributes).get("traceparent") or {}
        found = parse_traceparent((given.get("StringValue") or "").encode())
        if found is not None:
            yield found
    if message.system and '"AWSTraceHeader"' in message.system:
        found = parse_trace_header(message.system_members().get("AWSTraceHeader", ""))
        if found is not None and found.trace_id and found.span_id:
            yield found


def parent_of(headers: Iterable[tuple[bytes, bytes]]) -> TraceParent | None:
    """Return the parent of a request from its headers, whose names are lower case.

    Several ``traceparent`` count as none; several ``tracestate`` form one list.
    """
    parents = []
    states = []
    for name, value in headers:
        if name == TRACEPARENT:
            parents.append(value)
        elif name == TRACESTATE:
            states.append(value)
    if len(parents) != 1:
        return None
    return parse_traceparent(parents[0], b",".join(states))


CURRENT: ContextVar[RequestSpan | None] = ContextVar("queuegate_span", default=None)
"""The span of the sampled request that the current work is for."""

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


Groups = Sequence[Sequence[Fire]]
Dispatch = Callable[["Transaction", datetime | None, Groups], Coroutine[Any, Any, Dispatched]]


class Tracing:
    """Starts spans, for sampled requests only.

    Traces that start here are sampled at random. The caller decides about its own traces.
    """

    def __init__(self, tracer: Tracer, rate: float) -> None:
        self._tracer = tracer
        self._rate = rate

    headers = frozenset({TRACEPARENT, TRACESTATE})
    """Headers of requests that name their parent."""

    def request(self, headers: Iterable[tuple[bytes, bytes]], started: float) -> RequestSpan | None:
        """Start the span of a request that arrived at ``started``, of ``perf_counter``."""
        parent = parent_of(headers)
        if parent is None:
            if random() >= self._rate:
                return None
            context = _NOWHERE
        elif parent.is_sampled:
            context = _below(parent)
        else:
            return None
        began = time.time_ns() - int((perf_counter() - started) * 1e9)
        return RequestSpan(
            self._tracer.start_span("HTTP", context, SpanKind.SERVER, start_time=began)
        )

    def context(self, span: RequestSpan | None) -> WorkContext:
        """Return a context for the work on a request."""
        context = WorkContext()
        context.run(CURRENT.set, span)
        return context

    def enter(self, span: RequestSpan | None) -> None:
        """Continue the current context as that of a request."""
        CURRENT.set(span)

    @contextlib.contextmanager
    def flush(self, lane: str, entries: Sequence[Entry[Any]]) -> Iterator[None]:
        """Trace a flush below the first traced request in it. Of an exception, the span has the
        class name alone."""
        requests = [entry.context.get(CURRENT) for entry in entries if entry.context is not None]
        spans = dict.fromkeys(one.span for one in requests if one is not None)
        if not spans:
            yield
            return
        first, *others = spans
        span = self._tracer.start_span(
            f"flush {lane}",
            set_span_in_context(first, _NOWHERE),
            attributes={"queuegate.lane": lane, "queuegate.flush.entries": len(entries)},
            links=[Link(other.get_span_context()) for other in others],
        )
        try:
            yield
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            span.end()

    def delivery(self, claimed: ClaimedDelivery) -> DeliverySpan:
        """Start the span of one attempt to deliver to a web hook."""
        span = None
        if random() < self._rate:
            span = self._tracer.start_span(
                "deliver", _NOWHERE, SpanKind.CLIENT, attributes=_of_attempt(claimed)
            )
        return DeliverySpan(span)

    def dispatch(self, dispatch: Dispatch) -> Dispatch:
        """Return a dispatch with a span for each group, exported at the commit.

        A failed dispatch has a span only for a single group: several are retried one by one.
        """

        async def traced(tx: Transaction, now: datetime | None, groups: Groups) -> Dispatched:
            began = time.time_ns()
            instant = now or datetime.now(UTC)
            try:
                done = await dispatch(tx, now, groups)
            except Unavailable:
                # The round is repeated and traced then.
                raise
            except Exception as error:
                if len(groups) == 1:
                    self._fired(began, instant, groups[0], type(error).__name__)
                raise

            def committed() -> None:
                done.committed()
                for group, failure in zip(groups, done.failures, strict=False):
                    self._fired(began, instant, group, None if failure is None else failure.code)

            return done._replace(committed=committed)

        return traced

    def _fired(
        self, began: int, instant: datetime, group: Sequence[Fire], error: str | None
    ) -> None:
        """Export the span of fires that began at this time, in nanoseconds since the epoch."""
        if not group or random() >= self._rate:
            return
        span = self._tracer.start_span("fire", _NOWHERE, SpanKind.PRODUCER, start_time=began)
        span.set_attributes(_attributes(group, instant))
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR)
        span.end()


class RequestSpan:
    """The span of a request, noted by the connection and the face that answer it."""

    __slots__ = ("span",)

    def __init__(self, span: Span) -> None:
        self.span = span

    def note_request(self, method: str, route: str, request_id: str) -> None:
        """Note the request id, method and route. Unknown methods are noted as "_OTHER"."""
        is_known = method in _METHODS
        self.span.update_name(f"{method if is_known else 'HTTP'} {route}")
        self.span.set_attribute("http.request.method", method if is_known else "_OTHER")
        self.span.set_attribute("http.route", route)
        self.span.set_attribute("queuegate.request_id", request_id)

    def describe(self, service: str, action: str, members: Mapping[str, Any]) -> None:
        """Describe the AWS action of a request, and its resource."""
        self.span.update_name(f"{service}.{action}")
        if service in _SYSTEMS:
            self.span.set_attributes(_of_messaging(service, action, members))
            return
        attributes = {"rpc.system": "aws-api", "rpc.service": service, "rpc.method": action}
        name = members.get("Name")
        if service == "scheduler" and isinstance(name, str) and _is_name(name):
            is_group = "ScheduleGroup" in action
            attributes[f"queuegate.schedule.{'group' if is_group else 'name'}"] = name
        self.span.set_attributes(attributes)

    def note_result(self, result: Mapping[str, Any] | None) -> None:
        """Note the id of a sent message, or the number of received ones."""
        if not result:
            return
        message_id = result.get("MessageId")
        if isinstance(message_id, str):
            self.span.set_attribute("messaging.message.id", message_id)
        messages = result.get("Messages")
        if isinstance(messages, list):
            self.span.set_attribute("messaging.batch.message_count", len(messages))

    @property
    def trace_header(self) -> str:
        """Return this span in the form of AWSTraceHeader."""
        trace_id, span_id, *_ = self.span.get_span_context()
        trace = format_trace_id(trace_id)
        return f"Root=1-{trace[:8]}-{trace[8:]};Parent={format_span_id(span_id)};Sampled=1"

    def note_received(self, messages: Iterable[Received]) -> None:
        """Link the span to those in which these messages were sent or published."""
        for sender in dict.fromkeys(one for message in messages for one in senders_of(message)):
            self.span.add_link(_context_of(sender))

    def note_error(self, error: BaseException) -> None:
        """Note the class of a refusal or an error."""
        self.span.set_attribute("error.type", type(error).__name__)

    def answered(self, request: Request, route: str, status: int) -> None:
        """Describe an answered request and end its span. ``route`` is a path template or a label,
        because a path may contain secrets."""
        self.note_request(request.method, route.rstrip("/") or "/", request.request_id)
        call = None if request.asked is None else request.asked.about
        detected = getattr(call, "detected", None)
        if call is not None and detected is not None:
            members = call.members
            if detected.path_queue is not None and not members.get("QueueUrl"):
                members = {**members, "QueueUrl": detected.path_queue.name}
            self.describe(detected.service, detected.action or "", members)
        self.span.set_attributes(_of_template(route, request.raw_path))
        if request.refusal is not None:
            self.note_error(request.refusal)
        self.end(status)

    def end(self, status: int) -> None:
        """End the span. Only a status from 500 on is an error."""
        self.span.set_attribute("http.response.status_code", status)
        if status >= 500:
            self.span.set_status(StatusCode.ERROR)
        self.span.end()


class DeliverySpan:
    """The span of an attempt, and the headers of its request."""

    __slots__ = ("_span",)

    def __init__(self, span: Span | None) -> None:
        self._span = span

    @property
    def headers(self) -> dict[str, str]:
        """Return ``traceparent``, unsampled too: the web hook should not sample by chance."""
        if self._span is None:
            # Zero would be invalid.
            trace_id, span_id, flags = getrandbits(128) | 1, getrandbits(64) | 1, 0
        else:
            trace_id, span_id, _, flags, *_ = self._span.get_span_context()
        shown = f"00-{format_trace_id(trace_id)}-{format_span_id(span_id)}-{flags:02x}"
        return {"traceparent": shown}

    def ended(self, status: int | None, error: str | None) -> None:
        """End the span; ``error`` is None if the message was delivered."""
        span = self._span
        if span is None:
            return
        if status is not None:
            span.set_attribute("http.response.status_code", status)
        if error is not None:
            span.set_attribute("error.type", str(status or "no_answer"))
            span.set_status(StatusCode.ERROR, error)
        span.end()


def _below(parent: TraceParent) -> Context:
    return set_span_in_context(NonRecordingSpan(_context_of(parent)), _NOWHERE)


def _context_of(span: TraceParent) -> SpanContext:
    state = TraceState.from_header([span.state]) if span.state else None
    flags = _SAMPLED if span.is_sampled else TraceFlags()
    return SpanContext(span.trace_id, span.span_id, True, flags, state)


def _of_attempt(claimed: ClaimedDelivery) -> dict[str, Any]:
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


def _of_template(template: str, path: str) -> dict[str, str]:
    """Return the queue, schedule or topic of a REST request."""
    segments = zip(template.split("/"), path.split("/"), strict=False)
    name = next((segment for part, segment in segments if part.startswith("{")), None)
    if name is None or not _is_name(name):
        return {}
    if template.startswith(("/v1/queues/", "/v1/events/")):
        return {"messaging.system": "queuegate", "messaging.destination.name": name}
    return {"queuegate.schedule.name": name} if template.startswith("/v1/schedules/") else {}


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
    """Return the valid name of the queue or topic of a request, or None."""
    for member, separator in _NAMED_BY:
        text = members.get(member)
        if isinstance(text, str):
            # The ARN of a platform endpoint has a slash here, which is not a valid name.
            name = text.rpartition(separator)[2] if separator else text
            return name if _is_name(name) else None
    return None


def _attributes(group: Sequence[Fire], instant: datetime) -> dict[str, Any]:
    """Return the attributes of the last fire of a group."""
    fire = group[-1]
    target = fire.target
    attributes: dict[str, Any] = {
        "queuegate.schedule.name": fire.name,
        "queuegate.schedule.scheduled_for": fire.scheduled_for.isoformat(),
        "queuegate.schedule.lateness_seconds": (instant - fire.scheduled_for).total_seconds(),
        "queuegate.schedule.attempt": fire.attempt,
        "messaging.system": "queuegate",
        "messaging.operation.name": "fire",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": len(group),
    }
    if fire.group_name is not None:
        attributes["queuegate.schedule.group"] = fire.group_name
    destination = target.get("queue_name") or target.get("topic_name")
    if isinstance(destination, str):
        attributes["messaging.destination.name"] = destination
    return attributes
