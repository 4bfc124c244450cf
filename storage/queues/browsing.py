"""Browsing: read messages in place. Nothing is received, locked or counted."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from queuegate.storage.database import probe_by_key
from queuegate.storage.queries import load
from queuegate.storage.queue_model import (
    LAST,
    Browsed,
    BrowsedMessages,
    BrowseFilter,
    BrowsePosition,
)

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.queue_model import Queue


_SQL = load("queues/browsing")

_LOOKED_AT = 20_000
_MOST_SPLIT = 50_000
_PAGES_SAMPLED = 4_000


async def last_standard(tx: Transaction) -> int:
    """Return the highest number drawn so far in standard queues."""
    return int(await _SQL["last_standard"].value(tx))


async def last_fifo(tx: Transaction) -> int:
    """Return the highest number drawn so far in FIFO queues."""
    return int(await _SQL["last_fifo"].value(tx))


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
    following = rows[0][0]
    messages = [Browsed(*row[1:]) for row in rows if row[1] is not None]
    return BrowsedMessages(messages, None if following is None else BrowsePosition("", following))


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
    await probe_by_key(tx)
    after, until = wanted.after, wanted.until
    if wanted.group_id is not None:
        after = max(after, BrowsePosition(wanted.group_id, 0))
        until = min(until, BrowsePosition(wanted.group_id, LAST))
    rows = await _SQL["fifo_page"].rows(
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
    group_id, sequence = rows[0][:2]
    messages = [Browsed(*row[2:]) for row in rows if row[2] is not None]
    return BrowsedMessages(
        messages, None if sequence is None else BrowsePosition(group_id, sequence)
    )


async def _ends(
    exact: str, sample: str, tx: Transaction, queue_id: int, as_of: int, parts: int
) -> list[BrowsePosition]:
    """Return positions that divide a queue into parts."""
    await probe_by_key(tx)
    rows = await tx.fetch(exact, queue_id, as_of, parts, _MOST_SPLIT)
    if rows and not rows[0]["is_whole"]:
        rows = await tx.fetch(sample, queue_id, as_of, parts, _PAGES_SAMPLED)
    return [BrowsePosition(row["group_id"], row["sequence"]) for row in rows[:-1]]


standard_ends = partial(_ends, _SQL["standard_ends"].text, _SQL["standard_sample"].text)
fifo_ends = partial(_ends, _SQL["fifo_ends"].text, _SQL["fifo_sample"].text)
