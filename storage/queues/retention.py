"""Housekeeping: messages past their retention, folded counters, what deleted queues left behind."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from storage.clocks.whose import EVERYBODYS, Whose
from storage.model import QUEUE_DEFAULTS
from storage.planning import probe_by_key
from storage.queries import load
from storage.queues import fifo

if TYPE_CHECKING:
    from storage.database import Transaction

_SQL = load("queues/retention")
_FIND_EXPIRED = _SQL["find_expired"].text
_FIND_EXPIRED_FIFO = _SQL["find_expired_fifo"].text
_EXPIRE_STANDARD = _SQL["expire_standard"].text
_FOLD_DELTAS = _SQL["fold_deltas"].text
_FIND_TOMBSTONES = _SQL["find_tombstones"].text
_CLEAR_TOMBSTONE = _SQL["clear_tombstone"].text
_CLEAR_ARCHIVE = _SQL["clear_archive"].text
_REMOVE_TOMBSTONE = _SQL["remove_tombstone"].text

_DEFAULT_RETENTION = int(QUEUE_DEFAULTS["MessageRetentionPeriod"])


class ExpiredQueue(NamedTuple):
    """A queue whose oldest message is past its retention."""

    queue_id: int
    retention_seconds: int


class ExpiredPage(NamedTuple):
    """``last_queue_id`` None: that was the last page."""

    queues: list[ExpiredQueue]
    last_queue_id: int | None


class Tombstone(NamedTuple):
    """A deleted queue. ``is_due``: its name is free again."""

    queue_id: int
    is_fifo: bool
    is_due: bool


async def find_expired(
    tx: Transaction,
    now: datetime | None,
    *,
    is_fifo: bool,
    after_queue_id: int,
    limit: int,
    whose: Whose = EVERYBODYS,
) -> ExpiredPage:
    """Queues behind ``after_queue_id`` that hold something past its retention.

    Looks at ``limit`` queues that are not empty.
    """
    await probe_by_key(tx)
    statement = _FIND_EXPIRED_FIFO if is_fifo else _FIND_EXPIRED
    row = await tx.fetchrow(statement, now, after_queue_id, limit, _DEFAULT_RETENTION, *whose)
    assert row is not None
    last_queue_id, looked_at, queue_ids, retentions = row
    found = [ExpiredQueue(*pair) for pair in zip(queue_ids, retentions, strict=True)]
    return ExpiredPage(found, last_queue_id if looked_at == limit else None)


async def expire_standard(
    tx: Transaction, now: datetime | None, expired: list[ExpiredQueue], *, limit_each: int
) -> dict[int, int]:
    """Delete up to ``limit_each`` messages of each queue past its retention; how many, by queue."""
    await probe_by_key(tx)
    queue_ids = [queue.queue_id for queue in expired]
    retentions = [queue.retention_seconds for queue in expired]
    rows = await tx.fetch(_EXPIRE_STANDARD, now, queue_ids, retentions, limit_each)
    return {row["queue_id"]: row["gone"] for row in rows}


async def fold_deltas(tx: Transaction, *, most_per_queue: int, limit: int) -> int:
    """Fold the deltas of queues that have many; how many were taken.

    Their sum, and what arrived in all, stay what they are.
    """
    taken: int = await tx.fetchval(_FOLD_DELTAS, most_per_queue, limit)
    return taken


async def find_tombstones(
    tx: Transaction, now: datetime | None, *, after_queue_id: int, limit: int, seconds: int
) -> list[Tombstone]:
    """Deleted queues behind ``after_queue_id``; due are those deleted ``seconds`` ago."""
    rows = await tx.fetch(_FIND_TOMBSTONES, now, after_queue_id, limit, seconds)
    return [Tombstone(*row) for row in rows]


async def clear_tombstone(tx: Transaction, tombstone: Tombstone, *, limit: int) -> int:
    """Delete up to ``limit`` messages that the deleted queue left, then those that it archived.

    How many rows went.
    """
    gone: int
    if tombstone.is_fifo:
        gone = await fifo.delete_batch_of_deleted_queue(tx, tombstone.queue_id, limit)
        await probe_by_key(tx)
    else:
        await probe_by_key(tx)
        gone = await tx.fetchval(_CLEAR_TOMBSTONE, tombstone.queue_id, limit)
    if gone == 0:
        gone = await tx.fetchval(_CLEAR_ARCHIVE, tombstone.queue_id, limit)
    return gone


async def remove_tombstone(tx: Transaction, queue_id: int) -> bool:
    """Remove what is left of a deleted queue; False while it holds messages or an archive."""
    await probe_by_key(tx)
    removed: int = await tx.fetchval(_REMOVE_TOMBSTONE, queue_id)
    return removed == 1
