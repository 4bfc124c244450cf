"""Priorities of messages and their time to live: who may have them, what they make of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.priority_errors import PriorityOutOfRange, PriorityUnfit, TtlOutOfRange
from storage.queues.kinds import prioritised

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from storage.model import NewMessage, Queue


def check(engine: Engine, queue: Queue, priority: int | None, ttl_seconds: int | None) -> None:
    """Raise PriorityUnfit, PriorityOutOfRange or TtlOutOfRange."""
    most = engine.limits.priority
    if priority is not None and queue.kind.has_groups:
        raise PriorityUnfit(f"'{queue.name}' has its messages in order: they have no priority.")
    if priority is not None and not 0 <= priority <= most:
        raise PriorityOutOfRange(f"priority is {priority}; allowed is 0 to {most}.")
    most = engine.limits.ttl_seconds
    if ttl_seconds is not None and not 0 < ttl_seconds <= most:
        raise TtlOutOfRange(f"ttl is {ttl_seconds}; allowed is 1 to {most}.")


def queue_for(queue: Queue, message: NewMessage) -> Queue:
    """The queue as it is when the message is in it: with priorities, if the message has one or
    expires. Messages are sent to the queue that came from this (``sending.send``)."""
    if not message.priority and message.ttl_seconds is None:
        return queue
    return prioritised(queue)
