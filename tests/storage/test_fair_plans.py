"""Receives of queues with noisy groups cost the same, however much lies in those groups."""

from __future__ import annotations

import asyncio

import pytest

from queuegate.storage.database import Database
from queuegate.storage.queues.fair_queues import group_of
from tests.storage.standard_queue import MovingClock, StandardQueue, make_queue
from tests.storage.test_queries import FILLED, fill, rows_scanned, watch_afterwards

BACKLOG = 10_000
GROUPS = 1_000


@pytest.fixture
def database_dsn(own_database_dsn: str) -> str:
    """Statistics of tables show which rows were read."""
    return own_database_dsn


async def send_backlog(queue: StandardQueue) -> None:
    """A noisy group, and a thousand others that have something between its messages."""
    async with queue.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO messages (queue_id, visible_at, sent_at, message_id, sender_id, body,"
            " system) SELECT $1, $2::timestamptz - n * interval '1 millisecond', $2,"
            " gen_random_uuid(), 's', 'body', format('{\"MessageGroupId\":\"%s\"}',"
            " CASE WHEN n % 11 > 0 THEN 'busy'"
            " ELSE 'quiet' || n / 11 END) FROM generate_series(1, $3::int) AS n",
            queue.queue_id,
            queue.clock.now(),
            BACKLOG + GROUPS,
        )


async def rows_read(database: Database) -> int:
    """Rows that receives and everything before them have read by index."""
    watcher = await watch_afterwards(database)
    read: int = await watcher.fetchval(
        "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'messages'"
    )
    await watcher.close()
    return read


async def test_a_receive_beside_ten_thousand_noisy_messages_reads_few_of_them(
    own_database_dsn: str,
) -> None:
    database = Database(own_database_dsn, max_connections=1)
    await database.open()
    queue = StandardQueue(database, await make_queue(database), MovingClock())
    queue.lanes.fair.noisy[queue.queue_id] = {"busy": 40}
    await send_backlog(queue)
    quiet = 0
    for _ in range(GROUPS // 10):
        quiet += sum(group_of(one.system) != "busy" for one in await queue.receive())
    assert quiet == GROUPS
    queue.clock.wait(1)
    assert [group_of(one.system) for one in await queue.receive()] == ["busy"] * 10
    await queue.lanes.close()
    # Each receive reads a hundred and ten messages to find ten, and looks at 2,000 instants ahead.
    assert await rows_read(database) < (GROUPS // 10 + 1) * 5_000


async def test_queues_planned_when_empty_never_scan(database: Database) -> None:
    queue = StandardQueue(database, await make_queue(database), MovingClock())
    queue.lanes.fair.noisy[queue.queue_id] = {"busy": 40, "other": 50}

    async def use() -> None:
        await queue.send("a", "b", "c", "d")
        assert len(await queue.receive(4)) == 4

    for _ in range(6):
        await use()
    async with database.transaction() as tx:
        await fill(tx)
    for _ in range(6):
        await use()
    await queue.lanes.close()
    assert max((await rows_scanned(database)).values()) < FILLED // 4


async def test_a_flush_serves_one_noisy_queue_beside_the_others(database: Database) -> None:
    """Receives of other queues wait for one statement, however many queues are noisy."""
    clock = MovingClock()
    plain = StandardQueue(database, await make_queue(database), clock)
    queue_ids = [plain.queue_id, *[await make_queue(database, name) for name in ("a", "b")]]
    for queue_id in queue_ids[1:]:
        plain.lanes.fair.noisy[queue_id] = {"busy": 40}
    flushes: list[int] = []
    plain.lanes.ordered.observe = flushes.append
    await asyncio.gather(*[plain.receiving(queue_id=queue_id) for queue_id in queue_ids])
    assert flushes == [3, 1]
    await plain.lanes.close()
