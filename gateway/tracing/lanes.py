"""Spans of flushes: whose requests a flush carries, across lanes, timers and parked receives.

Requests on the fast path have no task, so what belongs to whom is kept beside the callbacks: an
entry's reply runs in the name of the request that handed the entry in, and so does the waking of a
parked receive, whoever's message wakes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from queuegate.gateway.operations.runtime.wakeups import Waiter, Wakeups
from queuegate.gateway.tracing.spans import CURRENT
from queuegate.storage.lanes import Entry, Flush, Lane, Reply

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from queuegate.gateway.operations.runtime.wakeups import DirectReceiver
    from queuegate.gateway.tracing.spans import Tracing
    from queuegate.storage.queues.message_entries import Receive


class _Reply:
    """A reply and the request that waits for it."""

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


class _Parked:
    """A waiter and the request, if it is traced, that waits. It equals the waiter, who leaves."""

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
            entry.replies_to = _Reply(entry.replies_to, self._span)
        return entry


class TracedWakeups(Wakeups):
    """Wakeups whose waiters go on in their own name."""

    def park(self, queue_id: int, waiter: Waiter) -> None:
        """Call ``waiter.wake()`` once when something may have become visible on the queue."""
        super().park(queue_id, _Parked(waiter, CURRENT.get()))


def watch(tracing: Tracing, lane: Lane[Any]) -> None:
    """Trace the flushes of a lane that carry a traced request."""

    def submitting(submit: Callable[[Any], None]) -> Callable[[Any], None]:
        def noting(entry: Entry[Any]) -> None:
            span = CURRENT.get()
            if span is None:
                submit(entry)
                return
            entry.replies_to = _Reply(entry.replies_to, span)
            # The task that a lane may begin now flushes for others, too.
            token = CURRENT.set(None)
            try:
                submit(entry)
            finally:
                CURRENT.reset(token)

        return noting

    def flushing(flush: Flush[Any]) -> Flush[Any]:
        async def traced(connection: Any, batch: list[Any]) -> list[Any]:
            replies = [entry.replies_to for entry in batch]
            spans = [reply.span for reply in replies if isinstance(reply, _Reply)]
            if not spans:
                return await flush(connection, batch)
            with tracing.flush(lane.name, spans, len(batch)):
                return await flush(connection, batch)

        return traced

    lane.watch(submitting, flushing)
