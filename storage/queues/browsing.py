"""Browsing: read messages in place. Nothing is received, locked or counted."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from queuegate.storage.queries import Query, load
from queuegate.storage.queue_model import (
    LAST,
    Browsed,
    BrowsedMessages,
    BrowseFilter,
    BrowsePosition,
    Received,
)

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction
    from queuegate.storage.queue_model import Queue


_SQL = load("queues/browsing")

_LOOKED_AT = 20_000
_MOST_SPLIT = 50_000
_PAGES_SAMPLED = 4_000


async def last_standard(tx: Transaction) -> int:
    """Return the highest number drawn so far in standard queues."""
    return await _SQL["last_standard"].value(tx)


async def last_fifo(tx: Transaction) -> int:
    """Return the highest number drawn so far in FIFO queues."""
    return await _SQL["last_fifo"].value(tx)


def _page_of(rows: list[asyncpg.Record]) -> BrowsedMessages:
    group_id, sequence = rows[0][:2]
    messages = [
        Browsed(Received(*row[2:-3]), *row[-3:]) for row in rows if row["sequence"] is not None
    ]
    following = None if sequence is None else BrowsePosition(group_id, sequence)
    return BrowsedMessages(messages, following)


async def standard_page(
    tx: Transaction,
    now: datetime | None,
    queue: Queue,
    wanted: BrowseFilter,
    *,
    limit: int,
    most_bytes: int,
) -> BrowsedMessages:
    """Return a page of a standard queue, by number."""
    rows = await _SQL["standard_page"].by_key.rows(
        tx,
        now,
        queue.queue_id,
        queue.retention_seconds,
        wanted.after.sequence,
        wanted.until.sequence,
        wanted.as_of,
        *wanted[3:],
        _LOOKED_AT,
        limit,
        most_bytes,
    )
    return _page_of(rows)


async def fifo_page(
    tx: Transaction,
    now: datetime | None,
    queue: Queue,
    wanted: BrowseFilter,
    *,
    limit: int,
    most_bytes: int,
) -> BrowsedMessages:
    """Return a page of a FIFO queue, by group and then by number."""
    after, until = wanted.after, wanted.until
    if wanted.group_id is not None:
        after = max(after, BrowsePosition(wanted.group_id, 0))
        until = min(until, BrowsePosition(wanted.group_id, LAST))
    rows = await _SQL["fifo_page"].by_key.rows(
        tx,
        now,
        queue.queue_id,
        queue.retention_seconds,
        *after,
        *until,
        wanted.as_of,
        *wanted[4:],
        _LOOKED_AT,
        limit,
        most_bytes,
    )
    return _page_of(rows)


async def _ends(
    exact: Query, sample: Query, tx: Transaction, queue_id: int, as_of: int, parts: int
) -> list[BrowsePosition]:
    """Return positions that divide a queue into parts."""
    rows = await exact.by_key.rows(tx, queue_id, as_of, parts, _MOST_SPLIT)
    if rows and not rows[0]["is_whole"]:
        rows = await sample.rows(tx, queue_id, as_of, parts, _PAGES_SAMPLED)
    return [BrowsePosition(row["group_id"], row["sequence"]) for row in rows[:-1]]


standard_ends = partial(_ends, _SQL["standard_ends"], _SQL["standard_sample"])
fifo_ends = partial(_ends, _SQL["fifo_ends"], _SQL["fifo_sample"])
