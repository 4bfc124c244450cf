"""Expired messages of standard queues: find their queues and remove them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.storage.clocks.whose import ALL_ACCOUNTS, AccountFilter
from queuegate.storage.planning import probe_by_key
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("queues/expiries")


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
    await probe_by_key(tx)
    row = await tx.fetchrow(_SQL["find_overdue"].text, now, after_queue_id, limit, *whose)
    assert row is not None
    last_queue_id, looked_at, queue_ids = row
    return queue_ids, last_queue_id if looked_at == limit else None


async def remove_overdue(
    tx: Transaction, now: datetime | None, queue_ids: list[int], limit: int
) -> tuple[int, list[int]]:
    """Delete about ``limit`` expired messages, evenly by queue. Return the count and the queues
    that may have more."""
    await probe_by_key(tx)
    limit_each = max(1, limit // len(queue_ids))
    rows = await tx.fetch(_SQL["remove_overdue"].text, now, queue_ids, limit_each)
    gone = {row["queue_id"]: row["gone"] for row in rows}
    left = [queue_id for queue_id in queue_ids if gone.get(queue_id) == limit_each]
    return sum(gone.values()), left
