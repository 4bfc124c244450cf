"""Deletes expired messages: by their queue's retention or by their own expiry."""

from __future__ import annotations

from queuegate.scheduler.sweeps import Job, Sweep
from queuegate.storage.queue_model import QueueKind
from queuegate.storage.queues import message_retention
from queuegate.storage.queues.kinds import TABLES

_QUEUES_PER_LOOK = 500


async def _expire(job: Job, rows: int) -> int:
    """Expire messages of all queues that hold some. Receives skip expired messages anyway."""
    handled = 0
    for kind in TABLES:
        handled += await _expire_in(kind, job, rows - handled)
    return handled


async def _expire_in(table: QueueKind, job: Job, rows: int) -> int:
    return await job.go_through(
        rows,
        0,
        lambda tx, after: table.find_expired(
            tx, job.now(), after_queue_id=after, limit=_QUEUES_PER_LOOK, whose=job.whose()
        ),
        lambda tx, found, limit: table.expire(tx, job.now(), found, limit),
    )


async def _remove_overdue(job: Job, rows: int) -> int:
    """Expire messages with their own expiry, in the queues that have such messages."""
    return await job.go_through(
        rows,
        0,
        lambda tx, after: message_retention.find_overdue(
            tx, job.now(), after_queue_id=after, limit=_QUEUES_PER_LOOK, whose=job.whose()
        ),
        lambda tx, found, limit: message_retention.remove_overdue(tx, job.now(), found, limit),
    )


EXPIRE = Sweep("expire", _expire, 15.0, 2_000, "queues")
REMOVE_OVERDUE = Sweep("remove_overdue", _remove_overdue, 1.0, 2_000, "queues", "expiring messages")
