"""Spans of flushes and of fires, and the context of parked receives.

Requests on the fast path have no task, so callbacks keep the span: the reply of an entry runs with
the span of its request, and so does a woken receive.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from opentelemetry.trace import StatusCode

from queuegate.gateway.operations.runtime.wakeups import Waiter, Wakeups
from queuegate.gateway.tracing.spans import CURRENT
from queuegate.storage.lanes import Entry, Flush, Lane, Reply
from queuegate.storage.schedule_fires import Dispatched, Fire
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from queuegate.gateway.operations.runtime.wakeups import DirectReceiver
    from queuegate.gateway.tracing.spans import Tracing
    from queuegate.storage.database import Transaction
    from queuegate.storage.queues.messages import Receive


class _TracedReply:
    """A reply that runs with the span of its request."""

    __slots__ = ("_reply", "span")

    def __init__(self, reply: Reply[Any], span: Span) -> None:
        self._reply = reply
        self.span = span

    def done(self, result: Any) -> None:
        token = CURRENT.set(self.span)
        try:
            self._reply.done(result)
        finally:
            CURRENT.reset(token)

    def failed(self, error: BaseException) -> None:
        token = CURRENT.set(self.span)
        try:
            self._reply.failed(error)
        finally:
            CURRENT.reset(token)


class _TracedWaiter:
    """A parked receive with its span. It equals its waiter, so that the waiter can leave."""

    __slots__ = ("_span", "_waiter")

    def __init__(self, waiter: Waiter, span: Span | None) -> None:
        self._waiter = waiter
        self._span = span

    def __eq__(self, other: object) -> bool:
        return other is self._waiter

    def __hash__(self) -> int:
        return hash(self._waiter)

    def wake(self) -> None:
        token = CURRENT.set(self._span)
        try:
            self._waiter.wake()
        finally:
            CURRENT.reset(token)

    def take(self) -> Receive | None:
        entry = cast("DirectReceiver", self._waiter).take()
        if entry is not None and self._span is not None:
            entry.replies_to = _TracedReply(entry.replies_to, self._span)
        return entry


class TracedWakeups(Wakeups):
    """Wakeups whose waiters run with their own span."""

    def park(self, queue_id: int, waiter: Waiter) -> None:
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
            token = CURRENT.set(None)
            try:
                submit(entry)
            finally:
                CURRENT.reset(token)

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
