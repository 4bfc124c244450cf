"""Sweeps: background functions that are called repeatedly with a number of rows.

They expire messages, send messages that wait for capacity, and remove data that is no longer
needed. Any number of processes may sweep at once: each skips rows that another process has locked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from queuegate.scheduler.worker import AllClocks, ClockNow, EachClock, FilterNow, Worker, earliest
from queuegate.storage import account_events, schedules, stored_keys
from queuegate.storage.database import probe_by_key
from queuegate.storage.logs import stored_records
from queuegate.storage.queries import AccountFilter
from queuegate.storage.queues import (
    archives,
    capacity,
    fifo_queues,
    message_retention,
    stored_queues,
)
from queuegate.storage.queues.kinds import TABLES, kind_of
from queuegate.storage.storage_errors import Away
from queuegate.storage.topics import stored_outbox, stored_topics, subscriptions

if TYPE_CHECKING:
    from queuegate.scheduler.worker import IdleProbe
    from queuegate.storage.database import Database, Transaction
    from queuegate.storage.pending_work import AccountWork, PendingWork


_Found = TypeVar("_Found")
_Place = TypeVar("_Place", int, str)

_FOUND_PER_PAGE = 500

_WAITING_QUEUES_PER_PAGE = 200
_SENT_AT_ONCE = 200
"""Each message may lock its group, and locks use shared memory."""

_DELTAS_PER_QUEUE = 8
_TOMBSTONES_PER_ROUND = 100
_ACCOUNTS_PER_LOOK = 20
_REVOKED_SECONDS = 30 * 24 * 3600

_PARTITIONS_PER_LOOK = 1_000
_RETIRED_AT_ONCE = 16
_RECORDS_OF_EACH = 1_000
"""Bounds the wait of appends to these partitions to some milliseconds."""
_SWEPT_AT_ONCE = 100
_REMOVED_OF_EACH = 100
_LOGS_PER_ROUND = 100
_MOST_OF_THE_TIME = 9
"""Least ratio of the pause to the time of a round that found nothing."""


class SweepJob:
    """A sweep by one clock, for the accounts of that clock."""

    def __init__(
        self, sweep: Sweep, database: Database, now: ClockNow, whose: FilterNow = AccountFilter
    ) -> None:
        self.name = sweep.name
        self.pause_seconds = self._least_pause_seconds = sweep.pause_seconds
        self._looked_seconds = 0.0
        """The time of the last round, if it found nothing."""
        self.whose = whose
        self.now = now
        self._run = sweep.run
        self.database = database

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction. Each look and each batch has its own."""
        return self.database.transaction()

    async def run_round(self, rows: int) -> int:
        """Handle about ``rows`` rows at most; fewer: no more rows exist."""
        began, is_look = monotonic(), True
        looked_before, self._looked_seconds = self._looked_seconds, 0.0
        try:
            handled = await self._run(self, rows)
            is_look = not handled
        except Away:
            is_look = False
            raise
        finally:
            # While vacuum is held back, a look reads the dead rows of hours: it gets a tenth of the
            # time at most. A database that stood still once makes a single look long.
            if is_look:
                self._looked_seconds = monotonic() - began
            looked = min(looked_before, self._looked_seconds)
            self.pause_seconds = max(self._least_pause_seconds, _MOST_OF_THE_TIME * looked)
        return handled

    async def go_through(
        self,
        rows: int,
        find: Callable[..., Awaitable[tuple[list[_Found], _Place | None]]],
        remove: _Remove[_Found],
        first: _Place = 0,  # type: ignore[assignment]
        page: int | None = None,
    ) -> int:
        """Remove rows of each found item, page by page. ``find`` returns items and the start of the
        next page; None: this was the last (``Query.scan``)."""
        handled = 0
        place: _Place | None = first
        while place is not None and handled < rows:
            async with self.transaction() as tx:
                found, place = await find(
                    tx, self.now(), place, page or _FOUND_PER_PAGE, *self.whose()
                )
            while found and handled < rows:
                async with self.transaction() as tx:
                    gone, found = await remove(tx, self.now(), found, rows - handled)
                handled += gone
        return handled


_Remove = Callable[
    ["Transaction", datetime | None, list[_Found], int], Awaitable[tuple[int, list[_Found]]]
]
"""Removes rows of some items, and returns their count and the items left."""


def one_by_one(remove: Callable[[Transaction, _Found, int], Awaitable[int]]) -> _Remove[_Found]:
    """Return a ``remove`` of ``go_through`` that takes one item at a time."""

    async def remove_first(
        tx: Transaction, _: datetime | None, found: list[_Found], limit: int
    ) -> tuple[int, list[_Found]]:
        return await remove(tx, found[0], limit), found[1:]

    return remove_first


@dataclass(frozen=True, slots=True)
class Sweep:
    """A function to run, its most rows in a round, and its pause after a round that found fewer."""

    name: str
    run: Callable[[SweepJob, int], Awaitable[int]]
    pause_seconds: float
    most_rows: int
    holding: AccountWork | None = None
    """The sweep runs separately for accounts that have their own clock and such rows. None: the
    sweep only cleans up, and uses the slowest clock."""
    chore: PendingWork | None = None
    """The sweep sleeps while no such work exists. None: the sweep never sleeps."""

    def job(self, database: Database, now: ClockNow, whose: FilterNow = AccountFilter) -> SweepJob:
        """Return the job for one clock."""
        return SweepJob(self, database, now, whose)

    def worker(
        self, database: Database, clocks: AllClocks, chores: IdleProbe | None = None
    ) -> Worker:
        """Return the worker for all accounts."""
        if self.holding is None:
            job: SweepJob | EachClock = self.job(database, lambda: earliest(clocks))
        else:
            job = EachClock(
                database, clocks, self.holding, lambda now, whose: self.job(database, now, whose)
            )
        asks = None if chores is None or self.chore is None else (chores, self.chore)
        return Worker(job, most_rows=self.most_rows, chores=asks)


_Run = Callable[[SweepJob, int], Awaitable[int]]


def sweep(
    name: str,
    pause_seconds: float,
    most_rows: int,
    holding: AccountWork | None = None,
    chore: PendingWork | None = None,
) -> Callable[[_Run], Sweep]:
    """Return a decorator that makes a sweep of a function."""
    return lambda run: Sweep(name, run, pause_seconds, most_rows, holding, chore)


@sweep("expire", 15.0, 2_000, "queues")
async def expire(job: SweepJob, rows: int) -> int:
    """Expire messages of all queues that hold some. Receives skip expired messages anyway."""
    handled = 0
    for kind in TABLES:
        handled += await job.go_through(rows - handled, kind.find_expired, kind.expire)
    return handled


@sweep("remove_overdue", 1.0, 2_000, "queues", "expiring messages")
async def remove_overdue(job: SweepJob, rows: int) -> int:
    """Expire messages with their own expiry, in the queues that have such messages."""
    find, remove = message_retention.find_overdue, message_retention.remove_overdue
    return await job.go_through(rows, find, remove)


def send_waiting(on_moved: Callable[[int, int], None]) -> Sweep:
    """Return the sweep, which runs twice a second. It calls ``on_moved(queue_id, count)`` after the
    commit of messages that entered their queue."""
    run = partial(_send_waiting, on_moved)
    return Sweep("send waiting messages", run, 0.5, 2_000, "queues", "waiting messages")


async def _send_waiting(on_moved: Callable[[int, int], None], job: SweepJob, rows: int) -> int:
    handled = 0
    after: int | None = 0
    while after is not None and handled < rows:
        async with job.transaction() as tx:
            due, after = await capacity.find_waiting(
                tx, job.now(), after, _WAITING_QUEUES_PER_PAGE, *job.whose()
            )
        for queue_id in due:
            handled += await _send_some(on_moved, job, queue_id)
    return handled


async def _send_some(on_moved: Callable[[int, int], None], job: SweepJob, queue_id: int) -> int:
    """Send some waiting messages of one queue and return the number sent or dropped."""
    async with job.transaction() as tx:
        queue = await stored_queues.find_by_id(tx, queue_id)
        if queue is None:
            return await capacity.drop_waiting(tx, queue_id, _SENT_AT_ONCE)
        done = await capacity.send_waiting(tx, job.now(), queue, _SENT_AT_ONCE)
    if done.sent:
        on_moved(queue_id, done.sent)
    return done.sent + done.dropped


@sweep("fold counters", 5.0, 10_000)
async def fold_counters(job: SweepJob, rows: int) -> int:
    """Fold the deltas of each queue, so that a total is the sum of a few rows."""
    async with job.transaction() as tx:
        return await message_retention.fold_deltas(tx, most_per_queue=_DELTAS_PER_QUEUE, limit=rows)


@sweep("forget deduplication", 10.0, 5_000)
async def forget_deduplication(job: SweepJob, rows: int) -> int:
    """Remove deduplication ids and receive attempts of FIFO queues after five minutes."""
    async with job.transaction() as tx:
        ids = await fifo_queues.clean_dedup(tx, job.now(), rows)
    async with job.transaction() as tx:
        attempts = await fifo_queues.clean_attempts(tx, job.now(), rows)
    return max(ids, attempts)


@sweep("forget deduplication of topics", 10.0, 5_000)
async def forget_topic_deduplication(job: SweepJob, rows: int) -> int:
    """Remove deduplication ids of FIFO topics after five minutes."""
    async with job.transaction() as tx:
        return await stored_topics.forget_deduplication(tx, job.now(), rows)


@sweep("forget rates", 60.0, 5_000)
async def forget_rates(job: SweepJob, rows: int) -> int:
    """Remove rate windows of producers that have not sent for a window."""
    async with job.transaction() as tx:
        return await stored_keys.forget_windows(tx, job.now(), rows)


@sweep("stop recordings", 60.0, 1)
async def stop_recordings(job: SweepJob, _: int) -> int:
    """Stop recordings of events that nobody reads, and drop their triggers."""
    await account_events.stop_unread(job.database)
    return 0


@sweep("forget keys", 300.0, 1_000)
async def forget_keys(job: SweepJob, rows: int) -> int:
    """Remove keys that were revoked 30 days ago. Until then they are listed."""
    async with job.transaction() as tx:
        return await stored_keys.forget_revoked(tx, job.now(), _REVOKED_SECONDS, rows)


@sweep("remove unconfirmed subscriptions", 30.0, 1_000, "topics")
async def remove_unconfirmed(job: SweepJob, rows: int) -> int:
    """Remove unconfirmed subscriptions whose token expired."""
    async with job.transaction() as tx:
        return await subscriptions.delete_expired(tx, job.now(), rows, job.whose())


@sweep("remove_schedule_groups", 5.0, 2_000, chore="schedule groups")
async def remove_schedule_groups(job: SweepJob, rows: int) -> int:
    """Remove schedules of one group in deletion that no other process has locked, at most ``rows``
    a round. The group is removed with its last schedule."""
    async with job.transaction() as tx:
        for group_id in await schedules.find_deleting(tx, 1):
            return await schedules.remove_some_of_group(tx, group_id, rows)
    return 0


@sweep("trim archives", 15.0, 2_000, "topics")
async def trim_archives(job: SweepJob, rows: int) -> int:
    """Remove archived messages that are older than the archive policy of their topic allows.
    Without a policy, or after the topic's deletion, remove all."""
    find, remove = stored_topics.find_outdated_archives, stored_topics.remove_archived
    return await job.go_through(rows, find, one_by_one(remove))


@sweep("collect archives", 30.0, 2_000, "queues")
async def collect_archives(job: SweepJob, rows: int) -> int:
    """Remove archived messages past their queue's archive days, and archives of deleted queues."""
    return await job.go_through(rows, archives.find_outdated, one_by_one(archives.remove_outdated))


MOST_OUTBOX_MESSAGES = 100_000
"""Limit for each account. The oldest messages above the limit are removed."""


def collect_outbox(*, days: int, most_messages: int = MOST_OUTBOX_MESSAGES) -> Sweep:
    """Return the sweep that removes outbox messages older than ``days``, and the oldest messages of
    an account above ``most_messages``."""
    run = partial(_collect_outbox, days, most_messages)
    return Sweep("collect outbox", run, 60.0, 2_000, "outbox")


async def _collect_outbox(days: int, most_messages: int, job: SweepJob, rows: int) -> int:
    async with job.transaction() as tx:
        old = await stored_outbox.remove_old(
            tx, job.now(), days=days, limit=rows, whose=job.whose()
        )

    async def find(
        tx: Transaction, _: datetime | None, after: str, limit: int, *__: object
    ) -> tuple[list[tuple[str, int]], str | None]:
        accounts = await stored_outbox.find_excess(
            tx, after_account_id=after, limit=limit, most=most_messages
        )
        found = [(one.account_id, one.last_id) for one in accounts if one.last_id is not None]
        return found, accounts[-1].account_id if len(accounts) == limit else None

    async def remove(tx: Transaction, excess: tuple[str, int], limit: int) -> int:
        return await stored_outbox.remove_excess(tx, *excess, limit)

    return old + await job.go_through(rows - old, find, one_by_one(remove), "", _ACCOUNTS_PER_LOOK)


def remove_deleted_queues(*, keep_seconds: int) -> Sweep:
    """Return the sweep that deletes the contents of deleted queues, then the rows that block names.

    A row stays for ``keep_seconds`` even when its queue is empty: a send that started before the
    deletion may commit later.
    """
    return Sweep("remove deleted queues", _RemoveDeletedQueues(keep_seconds), 5.0, 2_000)


class _RemoveDeletedQueues:
    """Handles about the next hundred deleted queues a round, and continues there."""

    def __init__(self, keep_seconds: int) -> None:
        self._keep_seconds = keep_seconds
        self._after_queue_id = 0

    async def __call__(self, job: SweepJob, rows: int) -> int:
        async with job.transaction() as tx:
            tombstones = await message_retention.find_tombstones(
                tx,
                job.now(),
                after_queue_id=self._after_queue_id,
                limit=_TOMBSTONES_PER_ROUND,
                seconds=self._keep_seconds,
            )
        handled = 0
        for tombstone in tombstones:
            self._after_queue_id = tombstone.queue_id
            handled += await clear_tombstone(job, tombstone, rows - handled)
            if handled >= rows:
                # This queue may have more rows: the next round starts with it.
                self._after_queue_id = tombstone.queue_id - 1
                return handled
        if len(tombstones) < _TOMBSTONES_PER_ROUND:
            self._after_queue_id = 0
        return handled


async def clear_tombstone(job: SweepJob, tombstone: message_retention.Tombstone, rows: int) -> int:
    """Delete some contents of a deleted queue, or its row; return the count."""
    async with job.transaction() as tx:
        if not await message_retention.lock_tombstone(tx, tombstone.queue_id):
            # A saved state was loaded meanwhile: the queue is live again.
            return 0
        kind = kind_of(is_fifo=tombstone.is_fifo)
        gone = await kind.clear_deleted(tx, tombstone.queue_id, rows)
        if gone == 0:
            whole = archives.Outdated(tombstone.queue_id, None)
            gone = await archives.remove_outdated(tx, whole, rows)
    if gone == 0 and tombstone.is_due:
        async with job.transaction() as tx:
            await message_retention.remove_tombstone(tx, tombstone.queue_id)
    return gone


async def _retire(
    tx: Transaction, now: datetime | None, found: list[int], _: int
) -> tuple[int, list[int]]:
    await probe_by_key(tx)
    some = found[:_RETIRED_AT_ONCE]
    counts = await stored_records.retire(tx, now, some, _RECORDS_OF_EACH)
    # Partitions that reached the limit may have more records.
    more = some if any(count >= _RECORDS_OF_EACH for count in counts) else []
    return sum(counts), more + found[_RETIRED_AT_ONCE:]


@sweep("retire records of logs", 15.0, 50_000, "logs", "logs")
async def retire_records(job: SweepJob, rows: int) -> int:
    """Advance the start of partitions past records that all groups have read, or that exceed the
    log's age or size."""
    find = stored_records.find_retirable
    return await job.go_through(rows, find, _retire, page=_PARTITIONS_PER_LOOK)


@sweep("remove records of logs", 5.0, 10_000, chore="logs")
async def remove_records(job: SweepJob, rows: int) -> int:
    """Remove records that no consumer can read: retired, purged, or of deleted logs."""
    handled = 0
    while handled < rows:
        async with job.transaction() as tx:
            await probe_by_key(tx)
            found = await stored_records.find_unswept(tx, _SWEPT_AT_ONCE)
            if not found:
                await stored_records.remove_logs(tx, _LOGS_PER_ROUND)
                break
            # Count partitions without a record, too, so that the loop ends.
            handled += len(found) + await stored_records.sweep(tx, found, _REMOVED_OF_EACH)
    return handled
