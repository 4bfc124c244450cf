"""Deletes messages that are past their queue's retention."""

from __future__ import annotations

from scheduler.sweeps import Job, Sweep
from storage.queues import fifo, retention

_QUEUES_PER_LOOK = 500


async def _expire(job: Job, rows: int) -> int:
    """Goes through all queues that hold something; receives leave expired messages out anyway."""
    handled = 0
    for is_fifo, expire in ((False, _expire_standard), (True, _expire_fifo)):
        after: int | None = 0
        while after is not None and handled < rows:
            async with job.transaction() as tx:
                page = await retention.find_expired(
                    tx,
                    job.now(),
                    is_fifo=is_fifo,
                    after_queue_id=after,
                    limit=_QUEUES_PER_LOOK,
                    whose=job.whose(),
                )
            handled += await expire(job, page.queues, rows - handled)
            after = page.last_queue_id
    return handled


async def _expire_standard(job: Job, expired: list[retention.ExpiredQueue], rows: int) -> int:
    """One batch for all of them, then more for those that have more."""
    handled = 0
    while expired and handled < rows:
        limit_each = max(1, (rows - handled) // len(expired))
        async with job.transaction() as tx:
            gone = await retention.expire_standard(tx, job.now(), expired, limit_each=limit_each)
        handled += sum(gone.values())
        expired = [queue for queue in expired if gone.get(queue.queue_id) == limit_each]
    return handled


async def _expire_fifo(job: Job, expired: list[retention.ExpiredQueue], rows: int) -> int:
    handled = 0
    for queue in expired:
        limit = max(1, rows - handled)
        async with job.transaction() as tx:
            handled += await fifo.expire(
                tx, job.now(), queue.queue_id, queue.retention_seconds, limit
            )
    return handled


EXPIRE = Sweep("expire", _expire, 15.0, 2_000, "queues")
