"""Tidies up: counters, deduplication ids, deleted queues."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from storage.database import Database
from storage.queues import fifo, retention

ClockNow = Callable[[], datetime | None]

_DELTAS_PER_QUEUE = 8
_TOMBSTONES_PER_ROUND = 100


class FoldCounters:
    """Keeps the number of deltas of each queue small, so that a total is a few rows to add up."""

    name = "fold counters"
    pause_seconds = 5.0

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run_round(self, rows: int) -> int:
        """Fold up to ``rows`` deltas."""
        async with self._database.transaction() as tx:
            return await retention.fold_deltas(tx, most_per_queue=_DELTAS_PER_QUEUE, limit=rows)


class ForgetDeduplication:
    """Removes deduplication ids and receive attempts of FIFO queues after their five minutes."""

    name = "forget deduplication"
    pause_seconds = 10.0

    def __init__(self, database: Database, clock_now: ClockNow) -> None:
        self._database = database
        self._now = clock_now

    async def run_round(self, rows: int) -> int:
        """Remove up to ``rows`` of each."""
        async with self._database.transaction() as tx:
            ids = await fifo.clean_dedup(tx, self._now(), rows)
        async with self._database.transaction() as tx:
            attempts = await fifo.clean_attempts(tx, self._now(), rows)
        return max(ids, attempts)


class RemoveDeletedQueues:
    """Deletes what deleted queues held, and at last the rows that blocked their names.

    A row stays for ``keep_seconds`` even when it is empty: a send that was under way when the queue
    was deleted may commit a little later.
    """

    name = "remove deleted queues"
    pause_seconds = 5.0

    def __init__(self, database: Database, clock_now: ClockNow, *, keep_seconds: int) -> None:
        self._database = database
        self._now = clock_now
        self._keep_seconds = keep_seconds
        self._after_queue_id = 0

    async def run_round(self, rows: int) -> int:
        """Delete up to about ``rows`` messages, of the next hundred deleted queues."""
        async with self._database.transaction() as tx:
            tombstones = await retention.find_tombstones(
                tx,
                self._now(),
                after_queue_id=self._after_queue_id,
                limit=_TOMBSTONES_PER_ROUND,
                seconds=self._keep_seconds,
            )
        handled = 0
        for tombstone in tombstones:
            self._after_queue_id = tombstone.queue_id
            gone = await self._clear(tombstone, rows - handled)
            handled += gone
            if handled >= rows:
                # There may be more of this queue: the next round begins with it.
                self._after_queue_id = tombstone.queue_id - 1
                return handled
        if len(tombstones) < _TOMBSTONES_PER_ROUND:
            self._after_queue_id = 0
        return handled

    async def _clear(self, tombstone: retention.Tombstone, rows: int) -> int:
        async with self._database.transaction() as tx:
            gone = await retention.clear_tombstone(tx, tombstone, limit=rows)
        if gone == 0 and tombstone.is_due:
            async with self._database.transaction() as tx:
                await retention.remove_tombstone(tx, tombstone.queue_id)
        return gone
