"""Sends messages that wait for capacity in bounded queues."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from queuegate.scheduler.sweeps import Job, Sweep
from queuegate.storage.queues import capacity, stored_queues

_QUEUES_PER_LOOK = 200
_SENT_AT_ONCE = 200
"""Each message may lock its group, and locks use shared memory."""


def send_waiting(on_moved: Callable[[int, int], None]) -> Sweep:
    """Return the sweep, which runs twice a second. It calls ``on_moved(queue_id, count)`` after the
    commit of messages that entered their queue."""
    run = partial(_send_waiting, on_moved)
    return Sweep("send waiting messages", run, 0.5, 2_000, "queues", "waiting messages")


async def _send_waiting(on_moved: Callable[[int, int], None], job: Job, rows: int) -> int:
    handled = 0
    after: int | None = 0
    while after is not None and handled < rows:
        async with job.transaction() as tx:
            found = await capacity.find_waiting(
                tx, job.now(), after_queue_id=after, limit=_QUEUES_PER_LOOK, whose=job.whose()
            )
        for queue_id in found.due:
            handled += await _send_some(on_moved, job, queue_id)
        after = found.last_queue_id
    return handled


async def _send_some(on_moved: Callable[[int, int], None], job: Job, queue_id: int) -> int:
    """Send some waiting messages of one queue and return the number sent or dropped."""
    async with job.transaction() as tx:
        queue = await stored_queues.find_by_id(tx, queue_id)
        if queue is None:
            return await capacity.drop_waiting(tx, queue_id, _SENT_AT_ONCE)
        done = await capacity.send_waiting(tx, job.now(), queue, _SENT_AT_ONCE)
    if done.sent:
        on_moved(queue_id, done.sent)
    return done.sent + done.dropped
