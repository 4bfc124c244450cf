"""Dead letters of a channel: look at them, and let them be received again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from queuegate.gateway.operations.access import SEND, check_found
from queuegate.gateway.operations.queues.browsing import Browse, BrowsedPage, browse
from queuegate.gateway.operations.queues.dead_letters import dead_letter_queue
from queuegate.gateway.operations.queues.moves import requeue
from queuegate.gateway.operations.queues.requeueing import Requeued, requeue_all
from queuegate.storage.errors import QueueFull

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.model import Queue

MOST_REQUEUED = 10_000
"""Of one request for all, about."""


async def list_dead_letters(
    engine: Engine, caller: Caller, right: str, channel: Queue, request: Browse
) -> BrowsedPage:
    """A page of what is in the channel's dead-letter queue, whosever it is; nothing of it changes.

    Raises AccessDenied, and what ``browse`` raises.
    """
    target = await _target(engine, caller, right, channel)
    if target is None:
        return BrowsedPage([], None, "0")
    return await browse(engine, caller, target, request)


async def requeue_dead_letters(
    engine: Engine, caller: Caller, right: str, channel: Queue, numbers: Sequence[int] | None
) -> Requeued:
    """Put dead letters back into the channels that they came from: these, which keep their numbers,
    or, with None, all that came from this one, as new messages. Raises AccessDenied, and what
    ``requeue`` raises when it does of the first."""
    check_found(engine, caller, SEND, channel)
    target = await _target(engine, caller, right, channel)
    if target is None:
        return Requeued(0, False)
    if numbers is None:
        return await requeue_all(engine, caller, target, channel, most=MOST_REQUEUED)
    count = 0
    for number in dict.fromkeys(numbers):
        try:
            count += await requeue(engine, caller, target, number) is not None
        except QueueFull:
            if count == 0:
                raise
            return Requeued(count, True)
    return Requeued(count, False)


async def _target(engine: Engine, caller: Caller, right: str, channel: Queue) -> Queue | None:
    target = await dead_letter_queue(engine, channel)
    if target is not None:
        check_found(engine, caller, right, target)
    return target
