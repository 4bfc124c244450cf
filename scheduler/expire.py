"""Deletes messages that are past their queue's retention."""

from __future__ import annotations

from scheduler.sweeps import Job, Sweep
from storage.queues.kinds import KINDS

_QUEUES_PER_LOOK = 500


async def _expire(job: Job, rows: int) -> int:
    """Goes through all queues that hold something; receives leave expired messages out anyway."""
    handled = 0
    for kind in KINDS:
        after: int | None = 0
        while after is not None and handled < rows:
            async with job.transaction() as tx:
                page = await kind.find_expired(
                    tx,
                    job.now(),
                    after_queue_id=after,
                    limit=_QUEUES_PER_LOOK,
                    whose=job.whose(),
                )
            expired = page.queues
            while expired and handled < rows:
                async with job.transaction() as tx:
                    gone, expired = await kind.expire(tx, job.now(), expired, rows - handled)
                handled += gone
            after = page.last_queue_id
    return handled


EXPIRE = Sweep("expire", _expire, 15.0, 2_000, "queues")
