"""What waits in queues with priorities, by priority."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.planning import probe_by_key
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_PRIORITY_DEPTHS = load("queues/priority_depths")["priority_depths"].text


class PriorityDepth(NamedTuple):
    """One priority of a queue."""

    priority: int
    visible: int
    """How many messages can be received, counted up to a limit for those received before and for
    the others."""
    oldest_at: datetime | None
    """When the one that comes next was sent."""
    now: datetime


async def priority_depths(
    tx: Transaction, now: datetime | None, queue_id: int, *, most: int
) -> list[PriorityDepth]:
    """Those of a queue, the most urgent first, in a time that does not depend on its depth."""
    await probe_by_key(tx)
    rows = await tx.fetch(_PRIORITY_DEPTHS, now, queue_id, most)
    return [PriorityDepth(*row) for row in rows]
