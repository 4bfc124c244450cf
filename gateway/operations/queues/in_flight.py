"""The limit of messages in flight on standard queues (docs/contract/sqs.md 2.1).

Counting what is in flight costs an index scan of up to the limit, so it is not done for each
receive: a process may hand out half of the room that the last count found before it counts again.
Several processes may together overshoot by as much; SQS's own limit is "approximately 120,000".
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.storage.database import Database

if TYPE_CHECKING:
    from queuegate.storage.model import Queue

_UNCOUNTED = 1_000


class InFlight:
    """How many more messages of each queue this process may hand out before it counts."""

    def __init__(self, database: Database, limit: int) -> None:
        self._database = database
        self.limit = limit
        self._left: dict[int, int] = {}
        self._counting: dict[int, asyncio.Task[bool]] = {}

    def handed_out(self, queue_id: int, count: int) -> None:
        """A receive leased so many."""
        self._left[queue_id] = self._left.get(queue_id, _UNCOUNTED) - count

    def must_count(self, queue_id: int) -> bool:
        """Whether the allowance is used up."""
        return self._left.get(queue_id, _UNCOUNTED) <= 0

    async def is_full(self, now: datetime | None, queue: Queue) -> bool:
        """Count, and say whether nothing more may be handed out.

        Receives that come while their queue is counted wait for that count: it takes milliseconds
        at tens of thousands in flight, and connections that others need.
        """
        queue_id = queue.queue_id
        counting = self._counting.get(queue_id)
        if counting is None:
            counting = asyncio.get_running_loop().create_task(self._count(now, queue))
            self._counting[queue_id] = counting
            counting.add_done_callback(lambda _: self._counting.pop(queue_id))
        # Who goes away ends the count for nobody else.
        return await asyncio.shield(counting)

    async def _count(self, now: datetime | None, queue: Queue) -> bool:
        async with self._database.transaction() as tx:
            counts = await queue.kind.count(tx, now, queue.queue_id)
        room = self.limit - counts.in_flight
        self._left[queue.queue_id] = max(room // 2, min(room, _UNCOUNTED))
        return room <= 0

    def forget(self, queue_id: int) -> None:
        """The queue is gone, or its caches are."""
        self._left.pop(queue_id, None)
