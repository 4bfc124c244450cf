"""Dead-letters messages that exceeded their queue's own delivery limit, without a receiver.

Queues with only a redrive policy dead-letter messages during a receive, as AWS queues do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from queuegate.scheduler.worker import AllClocks, ClockNow, EachClock, FilterNow, IdleProbe, Worker
from queuegate.storage.database import Database
from queuegate.storage.queries import AccountFilter
from queuegate.storage.queue_model import Queue
from queuegate.storage.queues import queue_dead_letters, stored_queues
from queuegate.storage.queues.queue_dead_letters import BEGINNING, ScanPosition

OnDeadLettered = Callable[[Queue, int, int], None]
"""Called with the source queue, the id of its dead-letter queue and the count of moved messages."""

_PAUSE_SECONDS = 1.0
_MOST_ROWS = 5_000
_MOST_OF_THE_TIME = 10
_QUEUES_PER_LOOK = 500
_LOOKS = 500
_MOST_OF_A_QUEUE = 2_000
_LATE = timedelta(seconds=5)
"""Longest delay between the instant at which a message becomes visible and its commit."""
_ANEW_SECONDS = 600.0


def enforce_delivery_limits(
    database: Database, clocks: AllClocks, on_dead_lettered: OnDeadLettered, chores: IdleProbe
) -> Worker:
    """Return the worker for all accounts, not started."""
    job = EachClock(
        database,
        clocks,
        "queues",
        lambda now, whose: EnforceDeliveryLimits(database, now, on_dead_lettered, whose),
    )
    return Worker(job, most_rows=_MOST_ROWS, chores=(chores, "own dead letters"))


@dataclass
class EnforceDeliveryLimits:
    """Reads messages that became visible again, from each queue's last position.

    So each redelivery is read once, however many messages are stored. Locked rows and late commits
    can hide a message from a pass. A full pass every ten minutes finds these messages.
    """

    database: Database
    now: ClockNow
    on_dead_lettered: OnDeadLettered
    whose: FilterNow = AccountFilter
    pause_seconds: float = _PAUSE_SECONDS
    name = "bury"
    _places: dict[int, ScanPosition] = field(default_factory=dict)
    _after: int = 0
    _anew_at: float = 0.0

    async def run_round(self, rows: int) -> int:
        """Read about ``rows`` messages at most. The next round continues behind the last queue."""
        started = monotonic()
        if started >= self._anew_at:
            self._places.clear()
            self._anew_at = started + _ANEW_SECONDS
        looked_at = 0
        # A pass that resumes in the middle does not cover all queues.
        passes_left = 2 if self._after else 1
        while passes_left and looked_at < rows:
            due, last_queue_id = await self._due()
            for queue_id in due:
                most = min(_MOST_OF_A_QUEUE, rows - looked_at)
                looked_at += await self._dead_letter_in(queue_id, most)
                self._after = queue_id
                if looked_at >= rows:
                    break
            else:
                self._after = last_queue_id or 0
                passes_left -= not self._after
        # Limits this job to about a tenth of the time, even with thousands of such queues.
        self.pause_seconds = max(_PAUSE_SECONDS, _MOST_OF_THE_TIME * (monotonic() - started))
        return looked_at

    async def _due(self) -> tuple[list[int], int | None]:
        places = {key: one.visible_at for key, one in self._places.items() if key > self._after}
        marks = list(places), list(places.values())
        async with self.database.transaction() as tx:
            return await queue_dead_letters.find_due(
                tx, self.now(), self._after, _QUEUES_PER_LOOK, *marks, *self.whose()
            )

    async def _dead_letter_in(self, queue_id: int, most: int) -> int:
        """Read about ``most`` next messages of a queue and return the number read."""
        looked_at = 0
        while looked_at < most:
            looks = await self._look_in(queue_id)
            looked_at += looks
            if looks < _LOOKS:
                break
        return looked_at

    async def _look_in(self, queue_id: int) -> int:
        after = self._places.get(queue_id, BEGINNING)
        now = self.now()
        async with self.database.transaction() as tx:
            queue = await stored_queues.find_by_id(tx, queue_id)
            if queue is None or queue.max_deliveries is None:
                return 0
            buried = await queue_dead_letters.dead_letter_due(
                tx, now, queue, after=after, looks=_LOOKS, holds=False
            )
        if buried.target is not None and buried.moved:
            self.on_dead_lettered(queue, buried.target.queue_id, buried.moved)
        overdue = buried.overdue
        if overdue is None:
            return 1
        self._places[queue_id] = overdue.last or ScanPosition(overdue.now - _LATE, 0)
        return overdue.looked_at
