"""Moving messages to a dead-letter queue: what fits there, and what has to wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.queues import own_dead_letters, queues
from queuegate.storage.queues.own_dead_letters import Overdue, Place
from queuegate.storage.queues.rooms import rooms

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import Queue
    from queuegate.storage.queues.kinds import Lease


async def room_in(tx: Transaction, now: datetime | None, target: Queue) -> int | None:
    """How many dead letters the queue takes, as long as the transaction lasts; None: any number.
    To be asked before messages are leased or moved."""
    if target.most_messages is None:
        return None
    return (await rooms(tx, [target.queue_id], now))[target.queue_id]


async def bury(
    tx: Transaction, now: datetime | None, queue: Queue, target: Queue, leased: Sequence[Lease]
) -> int:
    """Move leased messages to the target, as many as it takes; how many.

    The others stay where they are, hidden for as long as after a receive that does not count: they
    are not delivered, and nobody waits for them.
    """
    room = await room_in(tx, now, target)
    fits = leased if room is None else leased[:room]
    if len(fits) < len(leased):
        await queue.kind.hold(tx, now, queue, leased[len(fits) :])
    return await queue.kind.bury(tx, now, queue, target, fits) if fits else 0


class Buried(NamedTuple):
    """What came of one look. ``target`` None: nothing was moved."""

    target: Queue | None
    moved: int
    overdue: Overdue | None
    """None: nothing was looked at, as there is no room."""


async def bury_due(
    tx: Transaction,
    now: datetime | None,
    queue: Queue,
    *,
    after: Place,
    looks: int,
    holds: bool,
) -> Buried:
    """Move what of a standard queue with dead letters of its own was delivered often enough and is
    visible again, among the next ``looks`` messages.

    ``holds``: what does not fit is hidden, so that it is in nobody's way; else nothing is looked at
    while there is no room.
    """
    target = await queues.find_by_arn(tx, queue.dead_letter_arn or "")
    if target is None:
        # Before messages are: whoever moves some waits for them with the queue in its hands.
        await queues.lock(tx, queue.queue_id)
    elif await room_in(tx, now, target) == 0 and not holds:
        return Buried(None, 0, None)
    overdue = await own_dead_letters.lease_dead(tx, now, queue, after=after, looks=looks)
    if not overdue.leased:
        return Buried(None, 0, overdue)
    if target is None:
        target = await own_dead_letters.find_or_make(tx, now, queue)
    if target is None:
        return Buried(None, 0, overdue)
    return Buried(target, await bury(tx, now, queue, target, overdue.leased), overdue)
