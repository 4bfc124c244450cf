"""Spans: their names and attributes, after OpenTelemetry's semantic conventions where they fit.

Other attributes begin with ``queuegate.``. Requests name their parent by W3C Trace Context,
sections 2.2 and 4.3.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from random import getrandbits, random
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, cast
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

from queuegate.gateway.operations.runtime.wakeups import ParkedReceive, Wakeups
from queuegate.storage.lanes import Entry, Flush, Lane, Reply
from queuegate.storage.schedule_fires import Dispatched, Fire
from queuegate.storage.storage_errors import Unavailable
from queuegate.storage.topics.web_hook_deliveries import ClaimedDelivery

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.wakeups import DirectReceiver
    from queuegate.storage.database import Transaction
    from queuegate.storage.queues.messages import Receive


TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"
TRACE_HEADERS = frozenset({TRACEPARENT, TRACESTATE})

_PARTS = re.compile(
    rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
).fullmatch
_SAMPLED_BIT = 1


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


CURRENT: ContextVar[Span | None] = ContextVar("queuegate_span", default=None)
"""The sampled span of the current work."""


@contextlib.contextmanager
def as_current(span: Span | None) -> Iterator[None]:
    """Run the block with this span as the current one."""
    token = CURRENT.set(span)
    try:
        yield
    finally:
        CURRENT.reset(token)


ABANDONED = 499
"""Status of a request whose client disconnected, as in the metrics."""

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
    """Starts spans, for sampled requests only.

    Traces that start here are sampled at random. The caller decides about its own traces.
    """

    def __init__(self, tracer: Tracer, rate: float) -> None:
        self._tracer = tracer
        self._rate = rate

    def request(self, parent: TraceParent | None, name: str, started: float) -> Span | None:
        """Start the span of a request that arrived at ``started``, of ``perf_counter``."""
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

    def flush(self, lane: str, spans: Sequence[Span], entries: int) -> SpanScope:
        """Start the span of a flush with entries of these requests."""
        first, *others = dict.fromkeys(spans)
        span = self._tracer.start_span(
            f"flush {lane}",
            set_span_in_context(first, _NOWHERE),
            attributes={"queuegate.lane": lane, "queuegate.flush.entries": entries},
            links=[Link(other.get_span_context()) for other in others],
        )
        return SpanScope(span)

    def delivery(self, claimed: ClaimedDelivery) -> DeliverySpan:
        """Start the span of one attempt to deliver to a web hook."""
        span = None
        if random() < self._rate:
            span = self._tracer.start_span(
                "deliver", _NOWHERE, SpanKind.CLIENT, attributes=_of_attempt(claimed)
            )
        return DeliverySpan(span)

    def fire(self, began: int) -> Span | None:
        """Start the span of a fire that began at this time, in nanoseconds since the epoch."""
        if random() >= self._rate:
            return None
        return self._tracer.start_span("fire", _NOWHERE, SpanKind.PRODUCER, start_time=began)


class ErrorNote:
    """A context that notes the class of its exception in the span of a request."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is not None:
            self._span.set_attribute("error.type", kind.__name__)


class SpanScope(ErrorNote):
    """A context with a span of its own; of an exception the span has the class name alone."""

    __slots__ = ()

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        super().__exit__(kind, _, __)
        if kind is not None:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


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
    state = TraceState.from_header([parent.state]) if parent.state else None
    caller = SpanContext(parent.trace_id, parent.span_id, True, _SAMPLED, state)
    return set_span_in_context(NonRecordingSpan(caller), _NOWHERE)


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


def describe(span: Span, service: str, action: str, members: Mapping[str, Any]) -> None:
    """Describe the AWS action of a request, and its resource."""
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
    """Describe the endpoint of a REST request, and its queue, schedule or topic."""
    span.update_name(request_name(method, template))
    span.set_attribute("http.route", template)
    segments = zip(template.split("/"), path.split("/"), strict=False)
    name = next((segment for part, segment in segments if part.startswith("{")), None)
    if name is None or not _is_name(name):
        return
    if template.startswith(("/v1/queues/", "/v1/events/")):
        span.set_attribute("messaging.system", "queuegate")
        span.set_attribute("messaging.destination.name", name)
    elif template.startswith("/v1/schedules/"):
        span.set_attribute("queuegate.schedule.name", name)


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


def request_name(method: str, route: str) -> str:
    """Return a name such as "GET /readyz"; unknown methods are replaced by "HTTP"."""
    return f"{method} {route}" if method in _METHODS else f"HTTP {route}"


def note_route(span: Span, method: str, route: str) -> None:
    """Note method and route of a request. Unknown methods are noted as "_OTHER"."""
    is_known = method in _METHODS
    span.set_attribute("http.request.method", method if is_known else "_OTHER")
    span.set_attribute("http.route", route)


def note_id(span: Span, request_id: str) -> None:
    """Note the request id, which the client and the logs know."""
    span.set_attribute("queuegate.request_id", request_id)


def note_result(span: Span, result: Mapping[str, Any] | None) -> None:
    """Note the id of a sent message, or the number of received ones."""
    if not result:
        return
    message_id = result.get("MessageId")
    if isinstance(message_id, str):
        span.set_attribute("messaging.message.id", message_id)
    messages = result.get("Messages")
    if isinstance(messages, list):
        span.set_attribute("messaging.batch.message_count", len(messages))


def answered(span: Span, status: int) -> None:
    """End the span of a request. Only a status from 500 on is an error."""
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(StatusCode.ERROR)
    span.end()


class _TracedReply:
    """A reply that runs with the span of its request."""

    __slots__ = ("_reply", "span")

    def __init__(self, reply: Reply[Any], span: Span) -> None:
        self._reply = reply
        self.span = span

    def done(self, result: Any) -> None:
        with as_current(self.span):
            self._reply.done(result)

    def failed(self, error: BaseException) -> None:
        with as_current(self.span):
            self._reply.failed(error)


class _TracedWaiter:
    """A parked receive with its span. It equals its waiter, so that the waiter can leave."""

    __slots__ = ("_span", "_waiter")

    def __init__(self, waiter: ParkedReceive, span: Span | None) -> None:
        self._waiter = waiter
        self._span = span

    def __eq__(self, other: object) -> bool:
        return other is self._waiter

    def __hash__(self) -> int:
        return hash(self._waiter)

    def wake(self) -> None:
        with as_current(self._span):
            self._waiter.wake()

    def take(self) -> Receive | None:
        entry = cast("DirectReceiver", self._waiter).take()
        if entry is not None and self._span is not None:
            entry.replies_to = _TracedReply(entry.replies_to, self._span)
        return entry


class TracedWakeups(Wakeups):
    """Wakeups whose waiters run with their own span."""

    def park(self, queue_id: int, waiter: ParkedReceive) -> None:
        """Call ``waiter.wake()`` once when a message may have become visible on the queue."""
        super().park(queue_id, _TracedWaiter(waiter, CURRENT.get()))


def trace_flushes(tracing: Tracing, lane: Lane[Any]) -> None:
    """Trace the flushes of a lane that contain entries of traced requests."""

    def submitting(submit: Callable[[Any], None]) -> Callable[[Any], None]:
        def noting(entry: Entry[Any]) -> None:
            span = CURRENT.get()
            if span is None:
                submit(entry)
                return
            entry.replies_to = _TracedReply(entry.replies_to, span)
            # A task that the lane starts here flushes entries of other requests, too.
            with as_current(None):
                submit(entry)

        return noting

    def flushing(flush: Flush[Any]) -> Flush[Any]:
        async def traced(connection: Any, batch: list[Any]) -> list[Any]:
            replies = [entry.replies_to for entry in batch]
            spans = [reply.span for reply in replies if isinstance(reply, _TracedReply)]
            if not spans:
                return await flush(connection, batch)
            with tracing.flush(lane.name, spans, len(batch)):
                return await flush(connection, batch)

        return traced

    lane.watch(submitting, flushing)


Groups = Sequence[Sequence[Fire]]
Dispatch = Callable[["Transaction", datetime | None, Groups], Awaitable[Dispatched]]


class TracedDispatch:
    """A dispatch with a span for each group, exported at the commit.

    A failed dispatch has a span only for a single group: several groups are retried one by one.
    """

    def __init__(self, dispatch: Dispatch, tracing: Tracing) -> None:
        self._dispatch = dispatch
        self._tracing = tracing

    async def __call__(self, tx: Transaction, now: datetime | None, groups: Groups) -> Dispatched:
        """Dispatch the groups, and pass on exceptions."""
        began = time.time_ns()
        instant = now or datetime.now(UTC)
        try:
            done = await self._dispatch(tx, now, groups)
        except Unavailable:
            # The round is repeated and traced then.
            raise
        except Exception as error:
            if len(groups) == 1:
                self._export_span(began, instant, groups[0], type(error).__name__)
            raise

        def committed() -> None:
            done.committed()
            for group, failure in zip(groups, done.failures, strict=False):
                self._export_span(began, instant, group, None if failure is None else failure.code)

        return done._replace(committed=committed)

    def _export_span(
        self, began: int, instant: datetime, group: Sequence[Fire], error: str | None
    ) -> None:
        span = self._tracing.fire(began) if group else None
        if span is None:
            return
        span.set_attributes(_attributes(group, instant))
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR)
        span.end()


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
