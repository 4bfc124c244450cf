"""Housekeeping: messages past their retention, folded counters, remains of deleted queues."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.queries import load
from queuegate.storage.queue_model import ExpiredQueue

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("queues/message_retention")


class Tombstone(NamedTuple):
    """A deleted queue. ``is_due``: its name is free again."""

    queue_id: int
    is_fifo: bool
    is_due: bool


find_expired_standard = partial(_SQL["find_expired"].by_key.scan, ExpiredQueue)
find_expired_fifo = partial(_SQL["find_expired_fifo"].by_key.scan, ExpiredQueue)
find_overdue = partial(_SQL["find_overdue"].by_key.scan, int)
"""Find queues with expired messages, among those that have expiring messages."""


async def expire_standard(
    tx: Transaction, now: datetime | None, expired: list[ExpiredQueue], limit: int
) -> tuple[int, list[ExpiredQueue]]:
    """Delete about ``limit`` messages past their retention, evenly by queue. Returns the count, and
    the queues that may have more."""
    limit_each = max(1, limit // len(expired))
    queue_ids, retentions = zip(*expired, strict=True)
    rows = await _SQL["expire_standard"].by_key.rows(tx, now, queue_ids, retentions, limit_each)
    gone = dict(map(tuple, rows))
    left = [queue for queue in expired if gone.get(queue.queue_id) == limit_each]
    return sum(gone.values()), left


async def fold_deltas(tx: Transaction, *, most_per_queue: int, limit: int) -> int:
    """Fold the deltas of queues that have many; return the number replaced.

    Their sum and the total of arrivals stay the same.
    """
    return await _SQL["fold_deltas"].value(tx, most_per_queue, limit)


async def find_tombstones(
    tx: Transaction, now: datetime | None, *, after_queue_id: int, limit: int, seconds: int
) -> list[Tombstone]:
    """Return deleted queues behind ``after_queue_id``; due are those deleted ``seconds`` ago."""
    return await _SQL["find_tombstones"].all(
        tx, Tombstone._make, now, after_queue_id, limit, seconds
    )


async def lock_tombstone(tx: Transaction, queue_id: int) -> bool:
    """Keep a deleted queue from being restored until the transaction ends; return False if it is
    live or removed."""
    return await _SQL["lock_tombstone"].value(tx, queue_id) is not None


async def clear_deleted_standard(tx: Transaction, queue_id: int, limit: int) -> int:
    """Delete at most ``limit`` messages of a deleted standard queue; return the count."""
    return await _SQL["clear_tombstone"].by_key.value(tx, queue_id, limit)


async def remove_tombstone(tx: Transaction, queue_id: int) -> bool:
    """Remove the row of a deleted queue; return False while it holds messages or an archive."""
    removed: int = await _SQL["remove_tombstone"].by_key.value(tx, queue_id)
    return removed == 1


async def remove_overdue(
    tx: Transaction, now: datetime | None, queue_ids: list[int], limit: int
) -> tuple[int, list[int]]:
    """Delete about ``limit`` expired messages, evenly by queue. Return the count and the queues
    that may have more."""
    limit_each = max(1, limit // len(queue_ids))
    rows = await _SQL["remove_overdue"].by_key.rows(tx, now, queue_ids, limit_each)
    gone = dict(map(tuple, rows))
    left = [queue_id for queue_id in queue_ids if gone.get(queue_id) == limit_each]
    return sum(gone.values()), left
