"""Removes archived messages that their queue keeps no longer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from storage.clocks.whose import Whose
from storage.database import Database
from storage.queues import archives

_ARCHIVES_PER_LOOK = 500


class CollectArchives:
    """Removes archived messages when their queue's days are over, and what deleted queues left.

    Every look is a transaction of its own, and so is every batch. Any number of processes may run
    it: each passes over what the others hold.
    """

    name = "collect archives"
    pause_seconds = 30.0

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
        """Remove up to about ``rows`` messages; fewer: there are no more."""
        handled = 0
        after: int | None = 0
        while after is not None and handled < rows:
            async with self._database.transaction() as tx:
                page = await archives.find_outdated(
                    tx,
                    self._now(),
                    after_queue_id=after,
                    limit=_ARCHIVES_PER_LOOK,
                    whose=self._whose(),
                )
            for outdated in page.archives:
                if handled < rows:
                    handled += await self._remove(outdated, rows - handled)
            after = page.last_queue_id
        return handled

    async def _remove(self, outdated: archives.Outdated, rows: int) -> int:
        async with self._database.transaction() as tx:
            return await archives.remove_outdated(tx, outdated, limit=rows)
