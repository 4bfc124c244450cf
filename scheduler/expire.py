"""Deletes messages that are past their queue's retention, or have expired before."""

from __future__ import annotations

from scheduler.sweeps import Job, Sweep
from storage.queues.expiries import EXPIRING
from storage.queues.kinds import TABLES

_QUEUES_PER_LOOK = 500


async def _expire(job: Job, rows: int) -> int:
    """Goes through all queues that hold something; receives leave expired messages out anyway."""
    handled = 0
    for kind in TABLES:
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


async def _remove_overdue(job: Job, rows: int) -> int:
    """Goes through the queues with messages that expire, and looks at nothing else."""
    handled = 0
    for table in EXPIRING:
        after: int | None = 0
        while after is not None and handled < rows:
            async with job.transaction() as tx:
                page = await table.find_overdue(
                    tx, job.now(), after_queue_id=after, limit=_QUEUES_PER_LOOK, whose=job.whose()
                )
            overdue = page.queue_ids
            while overdue and handled < rows:
                async with job.transaction() as tx:
                    gone, overdue = await table.remove_overdue(
                        tx, job.now(), overdue, rows - handled
                    )
                handled += gone
            after = page.last_queue_id
    return handled


EXPIRE = Sweep("expire", _expire, 15.0, 2_000, "queues")
REMOVE_OVERDUE = Sweep("remove_overdue", _remove_overdue, 1.0, 2_000, "queues")
