"""Batches of move tasks whose source is a FIFO queue."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from protocol import arns
from protocol.errors import Malformed
from storage.model import Queue
from storage.queues import fifo, moves, queues

if TYPE_CHECKING:
    from storage.database import Transaction


async def find_by_arn(tx: Transaction, arn: str) -> Queue | None:
    """The live queue of that ARN."""
    try:
        target = arns.parse_queue(arn)
    except Malformed:
        return None
    return await queues.find(tx, target.account_id, target.region, target.resource)


async def move_fifo_batch(
    tx: Transaction,
    now: datetime | None,
    task: moves.ClaimedTask,
    source: Queue,
    target: Queue | None,
    *,
    limit: int,
) -> moves.MovedBatch:
    """Move up to ``limit`` messages that a receive could get now, in the order of their groups.

    Without a target each goes to the queue that it came from; one whose queue is unknown or gone
    stays, and so does what is behind it in its group.
    """
    movable = await fifo.take_for_move(
        tx, now, source.queue_id, retention_seconds=source.retention_seconds, limit=limit
    )
    movable = [message for message in movable if message.sequence <= task.end_sequence]
    homes: dict[str, Queue | None] = {}
    stuck: set[str] = set()
    without_source = without_queue = 0
    rows: list[tuple[str, int, int, str]] = []
    for message in sorted(movable, key=_by_sequence):
        arn = message.dead_letter_source_arn
        home = target
        if home is None and arn is not None:
            if arn not in homes:
                homes[arn] = await find_by_arn(tx, arn)
            home = homes[arn]
        if home is None or message.group_id in stuck:
            stuck.add(message.group_id)
            without_source += arn is None
            without_queue += arn is not None and home is None
            continue
        rows.append((message.group_id, message.sequence, home.queue_id, str(uuid4())))
    moved = await fifo.move(tx, now, source.queue_id, rows) if rows else 0
    arrived = Counter(queue_id for _, _, queue_id, _ in rows)
    if moved < len(rows):
        # A queue was deleted since we looked: what is left finds out in the next batch.
        arrived = Counter({rows[0][2]: moved})
    last_sequence = max((message.sequence for message in movable), default=None)
    return moves.MovedBatch(
        len(movable), last_sequence, list(arrived.items()), without_source, without_queue
    )


def _by_sequence(message: fifo.Movable) -> int:
    return message.sequence
