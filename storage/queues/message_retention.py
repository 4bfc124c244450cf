"""Housekeeping: messages past their retention, folded counters, remains of deleted queues."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.database import probe_by_key
from queuegate.storage.queries import ALL_ACCOUNTS, AccountFilter, load
from queuegate.storage.queue_model import QUEUE_DEFAULTS, ExpiredPage, ExpiredQueue

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("queues/message_retention")

_DEFAULT_RETENTION = int(QUEUE_DEFAULTS["MessageRetentionPeriod"])


class Tombstone(NamedTuple):
    """A deleted queue. ``is_due``: its name is free again."""

    queue_id: int
    is_fifo: bool
    is_due: bool


async def _find(
    statement: str,
    tx: Transaction,
    now: datetime | None,
    *,
    after_queue_id: int,
    limit: int,
    whose: AccountFilter = ALL_ACCOUNTS,
) -> ExpiredPage:
    """Find queues behind ``after_queue_id`` with messages past their retention.

    Examines at most ``limit`` queues that are not empty.
    """
    await probe_by_key(tx)
    [(last_queue_id, looked_at, queue_ids, retentions)] = await tx.fetch(
        statement, now, after_queue_id, limit, _DEFAULT_RETENTION, *whose
    )
    found = [ExpiredQueue(*pair) for pair in zip(queue_ids, retentions, strict=True)]
    return ExpiredPage(found, last_queue_id if looked_at == limit else None)


find_expired_standard = partial(_find, _SQL["find_expired"].text)
find_expired_fifo = partial(_find, _SQL["find_expired_fifo"].text)


async def expire_standard(
    tx: Transaction, now: datetime | None, expired: list[ExpiredQueue], limit: int
) -> tuple[int, list[ExpiredQueue]]:
    """Delete about ``limit`` messages past their retention, evenly by queue. Returns the count, and
    the queues that may have more."""
    await probe_by_key(tx)
    limit_each = max(1, limit // len(expired))
    queue_ids = [queue.queue_id for queue in expired]
    retentions = [queue.retention_seconds for queue in expired]
    rows = await _SQL["expire_standard"].rows(tx, now, queue_ids, retentions, limit_each)
    gone = {row["queue_id"]: row["gone"] for row in rows}
    left = [queue for queue in expired if gone.get(queue.queue_id) == limit_each]
    return sum(gone.values()), left


async def fold_deltas(tx: Transaction, *, most_per_queue: int, limit: int) -> int:
    """Fold the deltas of queues that have many; return the number replaced.

    Their sum and the total of arrivals stay the same.
    """
    return int(await _SQL["fold_deltas"].value(tx, most_per_queue, limit))


async def find_tombstones(
    tx: Transaction, now: datetime | None, *, after_queue_id: int, limit: int, seconds: int
) -> list[Tombstone]:
    """Return deleted queues behind ``after_queue_id``; due are those deleted ``seconds`` ago."""
    return await _SQL["find_tombstones"].all(
        tx, Tombstone._make, now, after_queue_id, limit, seconds
    )


async def clear_deleted_standard(tx: Transaction, queue_id: int, limit: int) -> int:
    """Delete at most ``limit`` messages of a deleted standard queue; return the count."""
    return int(await _SQL["clear_tombstone"].by_key.value(tx, queue_id, limit))


async def remove_tombstone(tx: Transaction, queue_id: int) -> bool:
    """Remove the row of a deleted queue; return False while it holds messages or an archive."""
    removed: int = await _SQL["remove_tombstone"].by_key.value(tx, queue_id)
    return removed == 1


async def find_overdue(
    tx: Transaction,
    now: datetime | None,
    *,
    after_queue_id: int,
    limit: int,
    whose: AccountFilter = ALL_ACCOUNTS,
) -> tuple[list[int], int | None]:
    """Find queues behind ``after_queue_id`` with expired messages. Examines at most ``limit``
    queues that have expiring messages. Also returns the queue to continue behind; None: no more."""
    [(last_queue_id, looked_at, queue_ids)] = await _SQL["find_overdue"].by_key.rows(
        tx, now, after_queue_id, limit, *whose
    )
    return queue_ids, last_queue_id if looked_at == limit else None


async def remove_overdue(
    tx: Transaction, now: datetime | None, queue_ids: list[int], limit: int
) -> tuple[int, list[int]]:
    """Delete about ``limit`` expired messages, evenly by queue. Return the count and the queues
    that may have more."""
    await probe_by_key(tx)
    limit_each = max(1, limit // len(queue_ids))
    rows = await _SQL["remove_overdue"].rows(tx, now, queue_ids, limit_each)
    gone = {row["queue_id"]: row["gone"] for row in rows}
    left = [queue_id for queue_id in queue_ids if gone.get(queue_id) == limit_each]
    return sum(gone.values()), left
