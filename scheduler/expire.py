"""Deletes messages that are past their queue's retention."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from storage import retention
from storage.database import Database

_PAUSE_SECONDS = 10.0
_QUEUES_PER_LOOK = 500


class ExpireMessages:
    """Goes through all queues that hold something; receives leave expired messages out anyway.

    Every look and every batch is a transaction of its own.
    """

    name = "expire"
    pause_seconds = _PAUSE_SECONDS

    def __init__(self, database: Database, clock_now: Callable[[], datetime | None]) -> None:
        self._database = database
        self._now = clock_now

    async def run_round(self, rows: int) -> int:
        """Delete up to about ``rows`` messages; fewer: there are no more."""
        handled = 0
        for is_fifo in (False, True):
            after: int | None = 0
            while after is not None and handled < rows:
                async with self._database.transaction() as tx:
                    page = await retention.find_expired(
                        tx,
                        self._now(),
                        is_fifo=is_fifo,
                        after_queue_id=after,
                        limit=_QUEUES_PER_LOOK,
                    )
                for queue in page.queues:
                    handled += await self._expire(queue, max(1, rows - handled))
                after = page.last_queue_id
        return handled

    async def _expire(self, queue: retention.ExpiredQueue, rows: int) -> int:
        async with self._database.transaction() as tx:
            return await retention.expire(tx, self._now(), queue, limit=rows)
