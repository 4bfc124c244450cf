"""Deletes messages that are past their queue's retention."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from storage.clocks.whose import Whose
from storage.database import Database
from storage.queues import fifo, retention

_PAUSE_SECONDS = 15.0
_QUEUES_PER_LOOK = 500


class ExpireMessages:
    """Goes through all queues that hold something; receives leave expired messages out anyway.

    Every look is a transaction of its own, and so is every batch.
    """

    name = "expire"
    pause_seconds = _PAUSE_SECONDS

    def __init__(
        self,
        database: Database,
        clock_now: Callable[[], datetime | None],
        whose: Callable[[], Whose] = Whose,
    ) -> None:
        self._database = database
        self._now = clock_now
        self._whose = whose

    async def run_round(self, rows: int) -> int:
        """Delete up to about ``rows`` messages; fewer: there are no more."""
        handled = 0
        for is_fifo in (False, True):
            after: int | None = 0
            while after is not None and handled < rows:
                page = await self._look(is_fifo, after)
                if page.queues:
                    expire = self._expire_fifo if is_fifo else self._expire_standard
                    handled += await expire(page.queues, rows - handled)
                after = page.last_queue_id
        return handled

    async def _look(self, is_fifo: bool, after_queue_id: int) -> retention.ExpiredPage:
        async with self._database.transaction() as tx:
            return await retention.find_expired(
                tx,
                self._now(),
                is_fifo=is_fifo,
                after_queue_id=after_queue_id,
                limit=_QUEUES_PER_LOOK,
                whose=self._whose(),
            )

    async def _expire_standard(self, expired: list[retention.ExpiredQueue], rows: int) -> int:
        """One batch for all of them, then more for those that have more."""
        handled = 0
        while expired and handled < rows:
            limit_each = max(1, (rows - handled) // len(expired))
            async with self._database.transaction() as tx:
                gone = await retention.expire_standard(
                    tx, self._now(), expired, limit_each=limit_each
                )
            handled += sum(gone.values())
            expired = [queue for queue in expired if gone.get(queue.queue_id) == limit_each]
        return handled

    async def _expire_fifo(self, expired: list[retention.ExpiredQueue], rows: int) -> int:
        handled = 0
        for queue in expired:
            limit = max(1, rows - handled)
            async with self._database.transaction() as tx:
                handled += await fifo.expire(
                    tx, self._now(), queue.queue_id, queue.retention_seconds, limit
                )
        return handled
