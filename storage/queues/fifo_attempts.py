"""Receives with a ReceiveRequestAttemptId: a retry gets the messages of the lost answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.storage.model import Received
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("queues/fifo_attempts")
_HOLD = _SQL["hold_attempt"].text
_REPEAT = _SQL["repeat_attempt"].text
_MESSAGES = _SQL["attempt_messages"].text
_KEEP = _SQL["keep_attempt"].text


async def receive_attempt(
    tx: Transaction,
    now: datetime | None,
    *,
    queue_id: int,
    attempt_id: str,
    visibility_ms: int,
    receive: Callable[[], Awaitable[list[Received]]],
) -> list[Received]:
    """Return the messages and handles of the attempt's first receive, and restart their timeouts.

    Valid for 5 minutes, unless one of them was deleted, received again or had its timeout changed.
    Otherwise call ``receive``, which becomes the attempt's first receive. An empty receive leaves
    no trace. Calls with the same id wait for each other.
    """
    row = await tx.fetchrow(_HOLD, now, queue_id, attempt_id)
    assert row is not None
    valid, group_ids, sequences, receive_counts, untils = row
    if valid:
        earlier = (group_ids, sequences, receive_counts)
        if await tx.fetchval(_REPEAT, now, queue_id, *earlier, untils, visibility_ms):
            rows = await tx.fetch(_MESSAGES, queue_id, *earlier)
            await tx.execute(_KEEP, now, queue_id, attempt_id, *earlier, False)
            return [Received(*row) for row in rows]
    found = await receive()
    if found:
        await tx.execute(
            _KEEP,
            now,
            queue_id,
            attempt_id,
            [message.group_id for message in found],
            [message.sequence for message in found],
            [message.receive_count for message in found],
            True,
        )
    return found
