"""Ages of the oldest and the newest message of a queue."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.planning import probe_by_key
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("queues/queue_ages")
_GROUPS_LOOKED_AT = 1_000


class Ages(NamedTuple):
    """Send times of the oldest and the newest message, None for an empty queue; and the present."""

    oldest_at: datetime | None
    newest_at: datetime | None
    now: datetime


async def standard_ages(tx: Transaction, now: datetime | None, queue_id: int) -> Ages:
    """Return the ages of a standard queue, in time independent of its depth."""
    await probe_by_key(tx)
    row = await tx.fetchrow(_SQL["standard"].text, now, queue_id)
    assert row is not None
    return Ages(*row)


async def fifo_ages(tx: Transaction, now: datetime | None, queue_id: int) -> Ages:
    """Return the ages of a FIFO queue, from the 1,000 groups that have been ready the longest."""
    await probe_by_key(tx)
    row = await tx.fetchrow(_SQL["fifo"].text, now, queue_id, _GROUPS_LOOKED_AT)
    assert row is not None
    return Ages(*row)
