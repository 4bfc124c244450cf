"""Depths of queues with priorities, by priority."""

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
    """Receivable messages, counted up to a limit, separately for received and fresh ones."""
    oldest_at: datetime | None
    """The send time of the next message."""
    now: datetime


async def priority_depths(
    tx: Transaction, now: datetime | None, queue_id: int, *, most: int
) -> list[PriorityDepth]:
    """Return the depths of a queue, most urgent first, in time independent of its depth."""
    await probe_by_key(tx)
    rows = await tx.fetch(_PRIORITY_DEPTHS, now, queue_id, most)
    return [PriorityDepth(*row) for row in rows]
