"""Messages of standard queues that have expired: finding the queues that hold some, and removing
them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.storage.clocks.whose import EVERYBODYS, Whose
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
    whose: Whose = EVERYBODYS,
) -> tuple[list[int], int | None]:
    """Queues behind ``after_queue_id`` that hold something expired, and the one behind which there
    may be more; None: there are not. Looks at ``limit`` queues that have messages with an end."""
    await probe_by_key(tx)
    row = await tx.fetchrow(_SQL["find_overdue"].text, now, after_queue_id, limit, *whose)
    assert row is not None
    last_queue_id, looked_at, queue_ids = row
    return queue_ids, last_queue_id if looked_at == limit else None


async def remove_overdue(
    tx: Transaction, now: datetime | None, queue_ids: list[int], limit: int
) -> tuple[int, list[int]]:
    """Delete about ``limit`` expired messages, as many of each queue; how many went, and the queues
    that may have more."""
    await probe_by_key(tx)
    limit_each = max(1, limit // len(queue_ids))
    rows = await tx.fetch(_SQL["remove_overdue"].text, now, queue_ids, limit_each)
    gone = {row["queue_id"]: row["gone"] for row in rows}
    left = [queue_id for queue_id in queue_ids if gone.get(queue_id) == limit_each]
    return sum(gone.values()), left
