"""Clean-up of counters, deduplication ids, archives, the outbox and deleted objects.

Any number of processes may sweep at once: each skips rows that another process has locked.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from queuegate.scheduler.sweeps import Job, Sweep, one_by_one
from queuegate.storage import schedules, stored_keys
from queuegate.storage.database import probe_by_key
from queuegate.storage.queues import archives, fifo_queues, message_retention
from queuegate.storage.queues.kinds import kind_of
from queuegate.storage.topics import stored_outbox, stored_topics, subscriptions

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_DELTAS_PER_QUEUE = 8
_TOMBSTONES_PER_ROUND = 100
_ARCHIVES_PER_LOOK = 500
_ACCOUNTS_PER_LOOK = 20
_REVOKED_SECONDS = 30 * 24 * 3600


async def _fold_counters(job: Job, rows: int) -> int:
    """Fold the deltas of each queue, so that a total is the sum of a few rows."""
    async with job.transaction() as tx:
        return await message_retention.fold_deltas(tx, most_per_queue=_DELTAS_PER_QUEUE, limit=rows)


FOLD_COUNTERS = Sweep("fold counters", _fold_counters, 5.0, 10_000)


async def _forget_deduplication(job: Job, rows: int) -> int:
    """Remove deduplication ids and receive attempts of FIFO queues after five minutes."""
    async with job.transaction() as tx:
        ids = await fifo_queues.clean_dedup(tx, job.now(), rows)
    async with job.transaction() as tx:
        attempts = await fifo_queues.clean_attempts(tx, job.now(), rows)
    return max(ids, attempts)


FORGET_DEDUPLICATION = Sweep("forget deduplication", _forget_deduplication, 10.0, 5_000)


async def _forget_topic_deduplication(job: Job, rows: int) -> int:
    """Remove deduplication ids of FIFO topics after five minutes."""
    async with job.transaction() as tx:
        return await stored_topics.forget_deduplication(tx, job.now(), rows)


FORGET_TOPIC_DEDUPLICATION = Sweep(
    "forget deduplication of topics", _forget_topic_deduplication, 10.0, 5_000
)


async def _forget_rates(job: Job, rows: int) -> int:
    """Remove rate windows of producers that have not sent for a window."""
    async with job.transaction() as tx:
        return await stored_keys.forget_windows(tx, job.now(), rows)


async def _forget_keys(job: Job, rows: int) -> int:
    """Remove keys that were revoked 30 days ago. Until then they are listed."""
    async with job.transaction() as tx:
        return await stored_keys.forget_revoked(tx, job.now(), _REVOKED_SECONDS, rows)


FORGET_KEYS = Sweep("forget keys", _forget_keys, 300.0, 1_000)
FORGET_RATES = Sweep("forget rates", _forget_rates, 60.0, 5_000)


async def _remove_unconfirmed(job: Job, rows: int) -> int:
    """Remove subscriptions that nobody confirmed before their token expired."""
    async with job.transaction() as tx:
        return await subscriptions.delete_expired(tx, job.now(), rows, job.whose())


REMOVE_UNCONFIRMED = Sweep(
    "remove unconfirmed subscriptions", _remove_unconfirmed, 30.0, 1_000, "topics"
)


async def _remove_schedule_groups(job: Job, rows: int) -> int:
    """Remove schedules of one group in deletion that no other process has locked, at most ``rows``
    a round. The group is removed with its last schedule."""
    async with job.transaction() as tx:
        await probe_by_key(tx)
        for group_id in await schedules.find_deleting(tx, 1):
            return await schedules.remove_some_of_group(tx, group_id, rows)
    return 0


REMOVE_SCHEDULE_GROUPS = Sweep(
    "remove_schedule_groups", _remove_schedule_groups, 5.0, 2_000, chore="schedule groups"
)


async def _trim_archives(job: Job, rows: int) -> int:
    """Remove archived messages that are older than the archive policy of their topic allows.
    Without a policy, or after the topic's deletion, remove all."""
    return await job.go_through(
        rows,
        0,
        lambda tx, after: stored_topics.find_outdated_archives(
            tx, job.now(), after_topic_id=after, limit=_ARCHIVES_PER_LOOK, whose=job.whose()
        ),
        one_by_one(stored_topics.remove_archived),
    )


TRIM_ARCHIVES = Sweep("trim archives", _trim_archives, 15.0, 2_000, "topics")


async def _collect_archives(job: Job, rows: int) -> int:
    """Remove archived messages past their queue's archive days, and archives of deleted queues."""
    return await job.go_through(
        rows,
        0,
        lambda tx, after: archives.find_outdated(
            tx, job.now(), after_queue_id=after, limit=_ARCHIVES_PER_LOOK, whose=job.whose()
        ),
        one_by_one(archives.remove_outdated),
    )


COLLECT_ARCHIVES = Sweep("collect archives", _collect_archives, 30.0, 2_000, "queues")

MOST_OUTBOX_MESSAGES = 100_000
"""Limit for each account. The oldest messages above the limit are removed."""


def collect_outbox(*, days: int, most_messages: int = MOST_OUTBOX_MESSAGES) -> Sweep:
    """Return the sweep that removes outbox messages older than ``days``, and the oldest messages of
    an account above ``most_messages``."""
    run = partial(_collect_outbox, days, most_messages)
    return Sweep("collect outbox", run, 60.0, 2_000, "outbox")


async def _collect_outbox(days: int, most_messages: int, job: Job, rows: int) -> int:
    async with job.transaction() as tx:
        old = await stored_outbox.remove_old(
            tx, job.now(), days=days, limit=rows, whose=job.whose()
        )

    async def look(tx: Transaction, after: str) -> tuple[list[tuple[str, int]], str | None]:
        accounts = await stored_outbox.find_excess(
            tx, after_account_id=after, limit=_ACCOUNTS_PER_LOOK, most=most_messages
        )
        found = [(one.account_id, one.last_id) for one in accounts if one.last_id is not None]
        return found, accounts[-1].account_id if len(accounts) == _ACCOUNTS_PER_LOOK else None

    async def remove(tx: Transaction, excess: tuple[str, int], limit: int) -> int:
        return await stored_outbox.remove_excess(tx, *excess, limit)

    return old + await job.go_through(rows - old, "", look, one_by_one(remove))


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

    async def __call__(self, job: Job, rows: int) -> int:
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
            handled += await _clear(job, tombstone, rows - handled)
            if handled >= rows:
                # This queue may have more rows: the next round starts with it.
                self._after_queue_id = tombstone.queue_id - 1
                return handled
        if len(tombstones) < _TOMBSTONES_PER_ROUND:
            self._after_queue_id = 0
        return handled


async def _clear(job: Job, tombstone: message_retention.Tombstone, rows: int) -> int:
    async with job.transaction() as tx:
        kind = kind_of(is_fifo=tombstone.is_fifo)
        gone = await kind.clear_deleted(tx, tombstone.queue_id, rows)
        if gone == 0:
            gone = await message_retention.clear_archive(tx, tombstone.queue_id, rows)
    if gone == 0 and tombstone.is_due:
        async with job.transaction() as tx:
            await message_retention.remove_tombstone(tx, tombstone.queue_id)
    return gone
