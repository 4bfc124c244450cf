"""What a queue holds as a whole: its counters, and emptying it. Standard or FIFO."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from storage.model import Counts, Queue
from storage.queues import fifo, queues

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from storage.database import Transaction

_PURGED_PER_BATCH = 2_000


async def count(tx: Transaction, now: datetime | None, queue: Queue) -> Counts:
    """The counters of the queue (docs/contract/sqs.md 2.12)."""
    if queue.is_fifo:
        return await fifo.counts(tx, now, queue.queue_id)
    return await queues.counts(tx, now, queue)


async def last_sequence(tx: Transaction, queue: Queue) -> int:
    """A number that what is sent to the queue from now on exceeds."""
    return await (fifo.last_sequence(tx) if queue.is_fifo else queues.last_sequence(tx))


async def empty(engine: Engine, queue: Queue, last_sequence: int) -> int:
    """Delete every message up to that sequence number, in short transactions; how many went.

    Of a FIFO queue also its deduplication ids, and the attempts of receives.
    """
    deleted = 0
    if queue.is_fifo:
        left = True
        while left:
            async with engine.database.transaction() as tx:
                purged = await fifo.purge_counted(
                    tx, queue.queue_id, up_to=last_sequence, limit=_PURGED_PER_BATCH
                )
            deleted += purged.messages
            left = purged.rows > 0
        return deleted
    after = 0
    while True:
        async with engine.database.transaction() as tx:
            step = await queues.purge_batch(
                tx,
                queue.queue_id,
                after_sequence=after,
                last_sequence=last_sequence,
                limit=_PURGED_PER_BATCH,
            )
        deleted += step.looked_at
        if step.last_sequence is None or step.looked_at < _PURGED_PER_BATCH:
            return deleted
        after = step.last_sequence
