"""Receives of up to a thousand messages at once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from queuegate.gateway.operations.queues.receiving import Receiving, release, spawn
from queuegate.gateway.operations.replies import Reply, answered
from queuegate.gateway.operations.turns import in_turns
from queuegate.storage.errors import OverLimit
from queuegate.storage.model import Queue, Received

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine

_Shown = TypeVar("_Shown")

MESSAGES_AT_ONCE = 10
"""That the first look at the database leases."""
_MOST_AT_ONCE = 100
"""That one look leases, whatever their size: as many as ten receives of SQS."""
_SHOWN_AT_ONCE = 65_536
"""Bytes of messages that are looked at from end to end before others go first."""


class ReceiveMany(NamedTuple):
    """What to receive, within its limits. None: as the queue is set."""

    max_messages: int = 1
    visibility_timeout_seconds: int | None = None
    wait_seconds: int | None = None
    attempt_id: str | None = None
    """On a FIFO queue: whoever asks again with it gets the same messages, as SQS has it."""
    most_bytes: int = 2 << 20
    """When there are as many, no more messages are leased."""
    kind: type[Receiving] = Receiving
    """``Leasing`` for a consumer of a channel."""

    def part(self, after: int) -> ReceiveMany:
        """The same behind so many messages: for attempts a receive of its own."""
        if self.attempt_id is None:
            return self
        return self._replace(attempt_id=f"{self.attempt_id}#{after}")

    def visibility_of(self, queue: Queue) -> int:
        """For how many seconds messages are hidden from others."""
        if self.visibility_timeout_seconds is None:
            return queue.visibility_timeout_seconds
        return self.visibility_timeout_seconds

    def wait_of(self, queue: Queue) -> int:
        """For how many seconds to wait for something."""
        return queue.receive_wait_seconds if self.wait_seconds is None else self.wait_seconds


async def receive_many(
    engine: Engine, caller: Caller, queue: Queue, request: ReceiveMany
) -> list[Received]:
    """Lease messages, oldest first, maybe none.

    A long poll answers as soon as there is one message and never waits to fill the maximum. Nor is
    it filled with more than ``most_bytes`` and ten messages: those at the front show how long they
    are, and as many more are leased as fit if they are not longer. If they are, the rest of them is
    given back. Cancelling it gives back what it leased.
    """
    wait = request.wait_of(queue)
    found: list[Received] = []
    size = 0
    limit = min(MESSAGES_AT_ONCE, request.max_messages)
    try:
        while True:
            part = await answered(
                _receive_some, engine, queue, request.part(len(found)), limit, wait
            )
            found += part
            sizes = [len(one.body) + len(one.attributes or "") for one in part]
            size += sum(sizes)
            room = request.max_messages - len(found)
            # Shares of a FIFO receive may stay short while groups are left.
            least = MESSAGES_AT_ONCE if queue.kind.has_groups else limit
            if len(part) < min(least, limit) or not room or size >= request.most_bytes:
                return _fitting(engine, queue, request, found)
            wait = 0
            limit = _next_limit(queue, (request.most_bytes - size) // max(1, *sizes), room)
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
    return await show_received(engine, queue, request, received, show)


def start_receiving(
    engine: Engine, queue: Queue, request: ReceiveMany, reply: Reply[list[Received]]
) -> Receiving:
    """Lease ``MESSAGES_AT_ONCE`` messages at most, as ``receive_many`` does."""
    wait = request.wait_of(queue)
    return _receive_some(engine, queue, request, request.max_messages, wait, reply)


def is_short(received: list[Received]) -> bool:
    """Whether they can be shown at once, and hold nobody up."""
    sizes = [len(one.body) + len(one.attributes or "") for one in received]
    return sum(sizes) <= _SHOWN_AT_ONCE


async def show_received(
    engine: Engine,
    queue: Queue,
    request: ReceiveMany,
    received: list[Received],
    show: Callable[[Received, datetime], _Shown],
) -> list[_Shown]:
    """What a face shows of them, with others having their turn in between. Cancelling it gives them
    back."""
    try:
        return await in_turns(shown_in_steps(engine, queue, request, received, show))
    except BaseException:
        spawn(release(engine, queue, received))
        raise


def shown_in_steps(
    engine: Engine,
    queue: Queue,
    request: ReceiveMany,
    received: list[Received],
    show: Callable[[Received, datetime], _Shown],
) -> Generator[None, None, list[_Shown]]:
    """The same in steps."""
    # Each part came in its order; the next one may be more urgent than the first.
    received.sort(key=lambda one: -(one.priority or 0))
    present = engine.clock.of(queue.account_id).instant()
    hidden = timedelta(seconds=request.visibility_of(queue))
    shown = []
    size = 0
    for one in received:
        shown.append(show(one, (one.leased_at or present) + hidden))
        size += len(one.body)
        if size > _SHOWN_AT_ONCE:
            size = 0
            yield
    return shown


def _next_limit(queue: Queue, fitting: int, room: int) -> int:
    limit = min(room, max(MESSAGES_AT_ONCE, min(fitting, _MOST_AT_ONCE)))
    if queue.kind.has_groups and limit > MESSAGES_AT_ONCE:
        # Groups give ten at once, and the lane hands out so many to each share.
        limit -= limit % MESSAGES_AT_ONCE
    return limit


def _fitting(
    engine: Engine, queue: Queue, request: ReceiveMany, found: list[Received]
) -> list[Received]:
    """As many as an answer has at most; the others are given back."""
    size = count = 0
    while count < len(found) and size < request.most_bytes:
        size += len(found[count].body) + len(found[count].attributes or "")
        count += 1
    if len(found) <= count + MESSAGES_AT_ONCE:
        return found
    spawn(release(engine, queue, found[count:]))
    return found[:count]


def _receive_some(
    engine: Engine,
    queue: Queue,
    request: ReceiveMany,
    limit: int,
    wait: int,
    reply: Reply[list[Received]],
) -> Receiving:
    seconds = request.visibility_of(queue)
    receiving = request.kind(engine, queue, limit=limit, visibility_seconds=seconds, reply=reply)
    receiving.attempt_id = request.attempt_id
    receiving.start(wait)
    return receiving
