"""Tidies up after topics: confirmations nobody gave, deduplication ids, archives."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from storage.clocks.whose import Whose
from storage.database import Database
from storage.topics import subscriptions, topics

ClockNow = Callable[[], datetime | None]

_ARCHIVES_PER_LOOK = 500


class RemoveUnconfirmed:
    """Removes subscriptions whose token expired before anybody confirmed them."""

    name = "remove unconfirmed subscriptions"
    pause_seconds = 30.0

    def __init__(
        self, database: Database, clock_now: ClockNow, whose: Callable[[], Whose] = Whose
    ) -> None:
        self._database = database
        self._now = clock_now
        self._whose = whose

    async def run_round(self, rows: int) -> int:
        """Remove up to about ``rows``."""
        async with self._database.transaction() as tx:
            return await subscriptions.delete_expired(tx, self._now(), rows, self._whose())


class ForgetTopicDeduplication:
    """Removes deduplication ids of FIFO topics after their five minutes."""

    name = "forget deduplication of topics"
    pause_seconds = 10.0

    def __init__(self, database: Database, clock_now: ClockNow) -> None:
        self._database = database
        self._now = clock_now

    async def run_round(self, rows: int) -> int:
        """Remove up to ``rows``."""
        async with self._database.transaction() as tx:
            return await topics.forget_deduplication(tx, self._now(), rows)


class TrimArchives:
    """Removes archived messages that are older than the archive policy of their topic says, and
    those whose topic has no such policy any more or was deleted.

    Every look is a transaction of its own, and so is every batch.
    """

    name = "trim archives"
    pause_seconds = 15.0

    def __init__(
        self, database: Database, clock_now: ClockNow, whose: Callable[[], Whose] = Whose
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
                page = await topics.find_outdated_archives(
                    tx,
                    self._now(),
                    after_topic_id=after,
                    limit=_ARCHIVES_PER_LOOK,
                    whose=self._whose(),
                )
            for archive in page.archives:
                if handled < rows:
                    handled += await self._trim(archive, rows - handled)
            after = page.last_topic_id
        return handled

    async def _trim(self, archive: topics.OutdatedArchive, rows: int) -> int:
        async with self._database.transaction() as tx:
            return await topics.remove_archived(tx, archive, limit=rows)
