"""Reads of messages that a purge deleted."""

from __future__ import annotations

from collections.abc import Awaitable

import asyncpg
import pytest

from queuegate.storage.database import SCHEMA
from queuegate.storage.queues.kinds import STANDARD
from tests.storage.standard_queue import MovingClock, PriorityQueue, StandardQueue, make_queue
from tests.storage.test_archive_plans import Meter
from tests.storage.test_fifo_plans import Recording
from tests.waiting import until_async

_DEPTH = 5_000
_FEW = 500


@pytest.mark.parametrize("make", [StandardQueue, PriorityQueue])
async def test_no_receive_reads_past_what_a_purge_deleted(
    own_database_dsn: str, make: type[StandardQueue]
) -> None:
    """Nor does one of a process that has never seen the queue. What is gone is noted when no
    transaction can see it any more, those of other databases among them: so purges are repeated."""
    database = Recording(own_database_dsn)
    await database.open()
    observer = await asyncpg.connect(own_database_dsn, server_settings={"search_path": SCHEMA})
    queue = make(database, await make_queue(database), MovingClock())
    elsewhere = queue.elsewhere()
    meter = Meter(database, observer)

    async def read_by(work: Awaitable[object]) -> int:
        before = await meter.touched()
        await work
        return (await meter.touched())[1] - before[1]

    async def purge() -> None:
        after: int | None = 0
        while after is not None:
            async with database.transaction() as tx:
                step = await STANDARD.purge(
                    tx, queue.queue_id, up_to=1 << 40, after=after, limit=1_000
                )
            after = step.after

    priority = 10 if make is PriorityQueue else None
    await queue.send(*["gone"] * _DEPTH, priority=priority)
    await purge()
    await until_async(lambda: read_by(purge()), lambda read: read < _FEW)
    await queue.send("fresh", priority=None if priority is None else 3)
    assert await read_by(elsewhere.receive()) < 2 * _FEW
    for one in (queue, elsewhere):
        await one.lanes.close()
    await observer.close()
    await database.close()
