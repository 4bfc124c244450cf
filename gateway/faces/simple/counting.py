"""Counts the requests about messages by queue and outcome."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping

from queuegate.gateway.faces.json.endpoints import Answer, Call, Handler
from queuegate.gateway.faces.simple.queues import queue_of
from queuegate.storage.errors import Kind, OverLimit, QueueDoesNotExist, Rejected, Unavailable
from queuegate.storage.model import Queue

_BY_KIND: Mapping[Kind, str] = {
    Kind.ABSENT: "message_not_found",
    Kind.FORBIDDEN: "forbidden",
    Kind.FULL: "queue_full",
}


def counted(operation: str, handle: Callable[[Call, Queue], Awaitable[Answer]]) -> Handler:
    """The handler that finds the queue of the path, and counts how it went."""

    async def handler(call: Call) -> Answer:
        queue = None
        outcome = "error"
        try:
            queue = await queue_of(call)
            answer = await handle(call, queue)
            outcome = "success"
        except Rejected as refusal:
            outcome = _outcome_of(refusal)
            raise
        except Unavailable:
            outcome = "unavailable"
            raise
        except CancelledError:
            outcome = "given_up"
            raise
        else:
            return answer
        finally:
            call.engine.series.tried(queue, operation, outcome)

    return handler


def _outcome_of(refusal: Rejected) -> str:
    if isinstance(refusal, QueueDoesNotExist):
        return "queue_not_found"
    if isinstance(refusal, OverLimit):
        return "too_many_in_flight"
    return _BY_KIND.get(refusal.kind, "invalid")
