"""Dead-letter moves: messages that fit into the target move, the others wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.queues import own_dead_letters, queues
from queuegate.storage.queues.own_dead_letters import Overdue, ScanPosition
from queuegate.storage.queues.rooms import capacity_of

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import Queue
    from queuegate.storage.queues.kinds import Lease


async def dead_letter_capacity(tx: Transaction, now: datetime | None, target: Queue) -> int | None:
    """Return the dead letters that the queue can take in this transaction; None: any number. Call
    before messages are leased or moved."""
    if target.most_messages is None:
        return None
    return (await capacity_of(tx, [target.queue_id], now))[target.queue_id]


async def dead_letter(
    tx: Transaction, now: datetime | None, queue: Queue, target: Queue, leased: Sequence[Lease]
) -> int:
    """Move leased messages to the target, as many as fit; return the count.

    The others stay hidden as after an uncounted receive: they are not delivered.
    """
    room = await dead_letter_capacity(tx, now, target)
    fits = leased if room is None else leased[:room]
    if len(fits) < len(leased):
        await queue.kind.hold(tx, now, queue, leased[len(fits) :])
    return await queue.kind.bury(tx, now, queue, target, fits) if fits else 0


class DeadLettered(NamedTuple):
    """The result of one poll. ``target`` None: nothing was moved."""

    target: Queue | None
    moved: int
    overdue: Overdue | None
    """None: nothing was examined because the target is full."""


async def dead_letter_due(
    tx: Transaction,
    now: datetime | None,
    queue: Queue,
    *,
    after: ScanPosition,
    looks: int,
    holds: bool,
) -> DeadLettered:
    """Move exhausted, visible messages of a standard queue with its own dead-letter queue.

    Examines the next ``looks`` messages. ``holds``: hide messages that do not fit, so that they
    block no receive; else examine nothing while the target is full.
    """
    target = await queues.find_by_arn(tx, queue.dead_letter_arn or "")
    if target is None:
        # Lock the queue before its messages: others that move messages lock in this order.
        await queues.lock(tx, queue.queue_id)
    elif await dead_letter_capacity(tx, now, target) == 0 and not holds:
        return DeadLettered(None, 0, None)
    overdue = await own_dead_letters.lease_dead(tx, now, queue, after=after, looks=looks)
    if not overdue.leased:
        return DeadLettered(None, 0, overdue)
    if target is None:
        target = await own_dead_letters.find_or_make(tx, now, queue)
    if target is None:
        return DeadLettered(None, 0, overdue)
    return DeadLettered(target, await dead_letter(tx, now, queue, target, overdue.leased), overdue)
