"""The queue of a request as the database has it now, not as this process cached it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.storage.errors import QueueDoesNotExist
from queuegate.storage.model import Queue
from queuegate.storage.queues import queues

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


async def current(tx: Transaction, queue: Queue) -> Queue:
    """The queue as it is now. Raises QueueDoesNotExist, also when another took over its name."""
    found = await queues.find(tx, queue.account_id, queue.region, queue.name)
    if found is None or found.queue_id != queue.queue_id:
        raise QueueDoesNotExist
    return found


async def locked(tx: Transaction, queue: Queue) -> Queue:
    """The queue as it is now, unchanged by others until the transaction ends.

    Raises QueueDoesNotExist.
    """
    found = await queues.lock(tx, queue.queue_id)
    if found is None:
        raise QueueDoesNotExist
    return found
