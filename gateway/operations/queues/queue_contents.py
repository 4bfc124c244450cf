"""What a queue holds as a whole: emptying it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from storage.model import Queue

_PURGED_PER_BATCH = 2_000


async def empty(engine: Engine, queue: Queue, last_number: int) -> int:
    """Delete every message up to that number, in short transactions; how many went.

    Of a FIFO queue also its deduplication ids, and the attempts of receives.
    """
    deleted = 0
    after: int | None = 0
    while after is not None:
        async with engine.database.transaction() as tx:
            step = await queue.kind.purge(
                tx, queue.queue_id, up_to=last_number, after=after, limit=_PURGED_PER_BATCH
            )
        deleted += step.messages
        after = step.after
    return deleted
