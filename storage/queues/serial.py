"""Strict FIFO queues, besides the lanes: differences from FIFO queues."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.storage.queries import load
from queuegate.storage.queues.rows import DEDUP_KEY, GROUP_ID, QUEUE_ID, Row

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_FIND_REPEATS = load("queues/serial")["find_repeats"].text


async def find_repeats_in_groups(
    tx: Transaction, now: datetime | None, rows: list[Row]
) -> set[str]:
    """Return the deduplication keys of these rows, all of one queue, whose messages still exist."""
    keys = "{" + ",".join([row[DEDUP_KEY] or "" for row in rows]) + "}"
    group_ids = [row[GROUP_ID] for row in rows]
    found = await tx.fetch(_FIND_REPEATS, now, rows[0][QUEUE_ID], group_ids, keys)
    return {one["dedup_key"].hex for one in found}
