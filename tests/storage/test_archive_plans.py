"""Plans made on an empty archive stay cheap with many messages in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

from queuegate.storage.database import SCHEMA
from queuegate.storage.queue_model import Received
from queuegate.storage.queues import archives, messages
from queuegate.storage.queues.archives import ArchiveFilter, Outdated
from queuegate.storage.queues.messages import Delete
from tests.storage.fifo_queue import START, FifoQueue, call
from tests.storage.fifo_queue import make_message as make_fifo_message
from tests.storage.fifo_queue import make_queue as make_fifo_queue
from tests.storage.standard_queue import MovingClock, StandardQueue, handle_of, make_queue
from tests.storage.test_archives import fill, set_archiving
from tests.storage.test_fifo_plans import Recording

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

# Far more than any bound below.
DEPTH = 60_000
MUCH = 1 << 40
TOUCHED = """
SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables
        WHERE relname LIKE 'message%' OR relname LIKE 'fifo%')::bigint,
  (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes
   WHERE relname LIKE 'message%' OR relname LIKE 'fifo%' OR relname = 'queues')::bigint
"""


class Meter:
    """Counts the rows and index entries that a call looks at."""

    def __init__(self, database: Recording, observer: asyncpg.Connection[asyncpg.Record]) -> None:
        self.database = database
        self.observer = observer

    async def touched(self) -> tuple[int, int]:
        for connection in self.database.connections:
            await connection.execute("SELECT pg_stat_force_next_flush()")
        async with self.database.transaction() as tx:
            await tx.execute("SELECT pg_stat_force_next_flush()")
        row = await self.observer.fetchrow(TOUCHED)
        assert row is not None
        return row[0], row[1]

    async def check(self, name: str, most: int | None, work: Awaitable[object]) -> None:
        """None: the tables are still empty, and there is nothing to count."""
        if most is None:
            await work
            return
        before = await self.touched()
        await work
        after = await self.touched()
        scanned, probed = after[0] - before[0], after[1] - before[1]
        assert scanned == 0, f"{name} read {scanned} rows sequentially"
        assert probed <= most, f"{name} looked at {probed} index entries"


async def received(queue: StandardQueue | FifoQueue) -> list[Received]:
    if isinstance(queue, FifoQueue):
        await queue.send(*(make_fifo_message("g", str(number)) for number in range(4)))
    else:
        await queue.send("a", "b", "c", "d")
    return await queue.receive(4)


async def use_lanes(
    meter: Meter, standard: StandardQueue, fifo: FifoQueue, *, is_filled: bool
) -> None:
    most = 150 if is_filled else None
    handles = [handle_of(one) for one in await received(standard)]
    lane = standard.lanes.delete
    deleting = call(lane, lambda reply: Delete(handles, reply, archives=True))
    await meter.check("delete", most, deleting)
    others = [handle_of(one) for one in await received(fifo)]
    deleting = call(fifo.lanes.delete, lambda reply: Delete(others, reply, archives=True))
    await meter.check("fifo delete", most, deleting)


async def use_archive(meter: Meter, queue_id: int, *, is_filled: bool) -> None:
    middle, late = START + timedelta(seconds=DEPTH // 2), START + timedelta(seconds=DEPTH - 50)
    steps: list[tuple[str, int, Callable[[Transaction], Awaitable[object]]]] = [
        ("page", 11_000, lambda tx: find(tx, ArchiveFilter(DEPTH // 2))),
        ("page of a time", 200, lambda tx: find(tx, ArchiveFilter(0, late, None))),
        ("page of a long time", 21_000, lambda tx: find(tx, ArchiveFilter(0, middle, None))),
        ("page of a schedule", 11_000, lambda tx: find(tx, ArchiveFilter(0, None, None, "weekly"))),
        ("ids", 20, lambda tx: by_ids(tx, [5, 50_000, 1 << 40])),
        ("read", 20, lambda tx: archives.read(tx, queue_id, [5, 50_000])),
        ("remove", 50, lambda tx: archives.remove_before(tx, queue_id, middle, limit=10)),
        (
            "remove outdated",
            50,
            lambda tx: archives.remove_outdated(tx, Outdated(queue_id, middle), limit=10),
        ),
        (
            "find outdated",
            60,
            lambda tx: archives.find_outdated(tx, middle, 0, 500),
        ),
        ("visible at", 20, lambda tx: messages.set_visible_at(tx, START, queue_id, 5, 60)),
    ]

    async def find(tx: Transaction, wanted: ArchiveFilter) -> object:
        return await archives.find(tx, queue_id, wanted, limit=10, most_bytes=MUCH)

    async def by_ids(tx: Transaction, ids: list[int]) -> object:
        return await archives.find_ids(tx, queue_id, ids, limit=10, most_bytes=MUCH)

    async def run(step: Callable[[Transaction], Awaitable[object]]) -> None:
        async with meter.database.transaction() as tx:
            await step(tx)

    for name, most, step in steps:
        await meter.check(name, most if is_filled else None, run(step))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("analyzed", [False, True])
async def test_plans_of_an_empty_archive_serve_a_full_one(
    own_database_dsn: str, analyzed: bool
) -> None:
    database = Recording(own_database_dsn)
    await database.open()
    observer = await asyncpg.connect(own_database_dsn, server_settings={"search_path": SCHEMA})
    standard = StandardQueue(database, await make_queue(database), MovingClock())
    fifo = FifoQueue(database, await make_fifo_queue(database))
    for queue_id in (standard.queue_id, fifo.queue_id):
        await set_archiving(database, queue_id)
    meter = Meter(database, observer)
    if analyzed:
        await observer.execute("VACUUM (ANALYZE)")
    for _ in range(7):
        await use_lanes(meter, standard, fifo, is_filled=False)
        await use_archive(meter, standard.queue_id, is_filled=False)
    full = await make_queue(database, "full")
    await fill(database, full, DEPTH)
    await fill(database, await make_queue(database, "behind"), 10)
    await use_lanes(meter, standard, fifo, is_filled=True)
    await use_archive(meter, full, is_filled=True)
    for lanes in (standard.lanes, fifo.lanes):
        await lanes.close()
    await observer.close()
    await database.close()


async def test_a_search_in_flight_reads_held_groups_first(own_database_dsn: str) -> None:
    """Of many groups a number in flight costs those that are held, another one all of them."""
    database = Recording(own_database_dsn)
    await database.open()
    observer = await asyncpg.connect(own_database_dsn, server_settings={"search_path": SCHEMA})
    fifo = FifoQueue(database, await make_fifo_queue(database))
    for start in range(0, 4_000, 500):
        await fifo.send(*(make_fifo_message(f"g{start + number}") for number in range(500)))
    [held] = await fifo.receive(1)
    meter = Meter(database, observer)

    async def find(sequence: int) -> None:
        async with database.transaction() as tx:
            found = await messages.find_in_flight(tx, fifo.now, fifo.queue_id, [sequence])
        assert [one.sequence for one in found] == [held.sequence] * (sequence == held.sequence)

    await meter.check("in flight", 10, find(held.sequence))
    await meter.check("not in flight", 4_100, find(held.sequence + 1))
    await fifo.lanes.close()
    await observer.close()
    await database.close()
