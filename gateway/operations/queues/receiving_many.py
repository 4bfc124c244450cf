"""Receives of up to a hundred messages at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gateway.operations.queues.receiving import Receiving, release, spawn
from gateway.operations.replies import Reply, answered
from gateway.operations.turns import give_way
from storage.errors import OverLimit
from storage.model import Queue, Received

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine

_Shown = TypeVar("_Shown")

_MESSAGES_AT_ONCE = 10
_MOST_BYTES = 2 << 20
"""With what was leased last, an answer has ten messages more at most."""
_SHOWN_AT_ONCE = 65_536
"""Bytes of messages that are looked at from end to end before others go first."""


class ReceiveMany(NamedTuple):
    """What to receive, within its limits. None: as the queue is set."""

    max_messages: int = 1
    visibility_timeout_seconds: int | None = None
    wait_seconds: int | None = None

    def visibility_of(self, queue: Queue) -> int:
        """For how many seconds messages are hidden from others."""
        if self.visibility_timeout_seconds is None:
            return queue.visibility_timeout_seconds
        return self.visibility_timeout_seconds


async def receive_many(
    engine: Engine, caller: Caller, queue: Queue, request: ReceiveMany
) -> list[Received]:
    """Lease messages, oldest first, maybe none.

    A long poll answers as soon as there is one message and never waits to fill the maximum. Nor is
    it filled with more than some megabytes. Cancelling it gives back what it leased.
    """
    wait = queue.receive_wait_seconds if request.wait_seconds is None else request.wait_seconds
    found: list[Received] = []
    size = 0
    try:
        while True:
            limit = min(_MESSAGES_AT_ONCE, request.max_messages - len(found))
            part = await answered(_receive_some, engine, queue, request, limit, wait)
            found += part
            size += sum([len(one.body) + len(one.attributes or "") for one in part])
            if len(part) < limit or len(found) >= request.max_messages or size >= _MOST_BYTES:
                return found
            wait = 0
    except OverLimit:
        if not found:
            raise
        return found
    except BaseException:
        if found:
            spawn(release(engine, queue, found))
        raise


async def receive_shown(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    request: ReceiveMany,
    show: Callable[[Received, datetime], _Shown],
) -> list[_Shown]:
    """The same as a face shows them, the most urgent first: ``show`` makes something of a message
    and the instant until which others do not see it."""
    received = await receive_many(engine, caller, queue, request)
    # Ten at a time came in their order; the next ten may be more urgent than the first.
    received.sort(key=lambda one: -(one.priority or 0))
    present = engine.clock.of(queue.account_id).instant()
    hidden = timedelta(seconds=request.visibility_of(queue))
    shown = []
    size = 0
    try:
        for one in received:
            shown.append(show(one, (one.leased_at or present) + hidden))
            size += len(one.body)
            if size > _SHOWN_AT_ONCE:
                size = 0
                await give_way()
    except BaseException:
        spawn(release(engine, queue, received))
        raise
    return shown


def _receive_some(
    engine: Engine,
    queue: Queue,
    request: ReceiveMany,
    limit: int,
    wait: int,
    reply: Reply[list[Received]],
) -> Receiving:
    seconds = request.visibility_of(queue)
    receiving = Receiving(engine, queue, limit=limit, visibility_seconds=seconds, reply=reply)
    receiving.start(wait)
    return receiving
