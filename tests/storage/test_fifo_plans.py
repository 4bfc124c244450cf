"""Plans made on empty tables stay cheap with many groups, and with one deep group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TYPE_CHECKING

import asyncpg
import pytest

from queuegate.storage.database import SCHEMA, Database
from queuegate.storage.queue_model import Received
from queuegate.storage.queues import fifo_queues as engine
from tests.storage.fifo_queue import RETENTION, FifoQueue, make_message, make_queue

if TYPE_CHECKING:
    from queuegate.storage.database import Connection
    from queuegate.storage.database_hosts import DatabaseSession

# Far more than any bound below: a plan that reads the queue is seen, and filling it takes seconds.
GROUPS = 20_000
DEPTH = 20_000
# Autovacuum at work keeps the row versions of the steps before: they are looked at, too.
OLD_VERSIONS = 200
FILL = """
WITH m AS (
  INSERT INTO fifo_messages (queue_id, group_id, sequence, visible_at, sent_at, message_id,
    sender_id, body)
  SELECT $1::int, CASE WHEN n < $3 THEN 'deep' ELSE 'g' || n END, nextval('fifo_sequence'),
    $4::timestamptz + n * interval '1 microsecond', $4::timestamptz, gen_random_uuid(), 's', n::text
  FROM generate_series(0, $2::int + $3::int - 1) AS n
  RETURNING queue_id, group_id, sequence, visible_at
), d AS (
  INSERT INTO fifo_dedup (queue_id, dedup_key, message_id, sequence, expires_at)
  SELECT $1::int, gen_random_uuid(), gen_random_uuid(), n, $4::timestamptz + interval '1 hour'
  FROM generate_series(1, $2::int) AS n
)
INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq)
SELECT queue_id, group_id, min(visible_at), min(sequence) FROM m GROUP BY 1, 2
"""
TOUCHED = """
SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname LIKE 'fifo%')::bigint,
  (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname LIKE 'fifo%')::bigint
"""


class Recording(Database):
    """Keeps the connections of lanes, to ask them for their statistics."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, max_connections=1)
        self.connections: list[Connection] = []

    async def connect(self, settings: Mapping[str, str] | None = None) -> DatabaseSession:
        connection = await super().connect(settings)
        self.connections.append(connection)
        return connection


class Meter:
    """Counts the rows and index entries that a call looks at."""

    def __init__(self, database: Recording, observer: Connection) -> None:
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

    async def check(self, name: str, most: int, call: Awaitable[object]) -> None:
        before = await self.touched()
        await call
        after = await self.touched()
        scanned, probed = after[0] - before[0], after[1] - before[1]
        assert scanned == 0, f"{name} read {scanned} rows sequentially"
        assert probed <= most + OLD_VERSIONS, f"{name} looked at {probed} index entries"


@pytest.fixture
async def recording(own_database_dsn: str) -> AsyncIterator[Recording]:
    database = Recording(own_database_dsn)
    await database.open()
    yield database
    await database.close()


async def use(fifo: FifoQueue) -> None:
    """Every statement a few times, so that its plan is made and kept."""
    for number in range(7):
        await fifo.send(make_message("x", str(number)), make_message("y"))
        held = await fifo.receive(1)
        held += await fifo.receive(10)
        for message in held:
            await fifo.hide(message, 60)
        assert set(await fifo.delete(*held)) == {"ok"}
        await fifo.receive(retention=60)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("analyzed", [False, True])
async def test_plans_of_empty_tables_serve_full_ones(
    recording: Recording, own_database_dsn: str, analyzed: bool
) -> None:
    """Of a table that was never analyzed the planner assumes the best, of a drained one nothing."""
    observer = await asyncpg.connect(own_database_dsn, server_settings={"search_path": SCHEMA})
    fifo = FifoQueue(recording, await make_queue(recording, DelaySeconds="5"))
    if analyzed:
        await use(fifo)
        await fifo.lanes.close()
        recording.connections.clear()
        await observer.execute("VACUUM (ANALYZE)")
        fifo = FifoQueue(recording, fifo.queue_id)
    await use(fifo)
    await observer.execute(FILL, fifo.queue_id, GROUPS, DEPTH, fifo.now)
    fifo.wait(30)
    meter = Meter(recording, observer)
    # The deep group has the oldest head; after the third receive it is held.
    steps = (
        (10, True, True),
        (1, True, True),
        (10, True, False),
        (10, False, True),
        (1, False, True),
    )
    for limit, deep, delete in steps:
        found = await receive(meter, fifo, limit)
        assert [message.group_id == "deep" for message in found] == [deep] * limit
        await meter.check("change_visibility", 60, fifo.hide(found[0], 3600))
        await meter.check("send", 80, fifo.send(make_message("deep"), make_message(f"new {limit}")))
        if delete:
            await meter.check("delete", 20 + 15 * limit, fifo.delete(*found[:2]))
            await meter.check("delete", 20 + 15 * limit, fifo.delete(*found[2:] or found))
    found = await receive(meter, fifo, 2)

    await check_the_rest(meter, fifo, found)
    await fifo.lanes.close()
    await observer.close()


async def check_the_rest(meter: Meter, fifo: FifoQueue, found: list[Received]) -> None:
    """Check statements that no lane runs; ``found`` are two messages that were just received."""
    database = meter.database

    async def next_ready() -> None:
        async with database.transaction() as tx:
            await engine.next_ready(tx, fifo.now, [fifo.queue_id])

    async def bury() -> None:
        async with database.transaction() as tx:
            rows = [(m.group_id or "", m.sequence, m.receive_count) for m in found]
            moved = await engine.move_to_dead_letter(
                tx,
                fifo.now,
                source_queue_id=fifo.queue_id,
                target_queue_id=fifo.queue_id,
                source_arn="arn",
                rows=rows,
            )
            assert moved == 2

    async def take() -> None:
        async with database.transaction() as tx:
            taken = await engine.take_for_move(
                tx, fifo.now, fifo.queue_id, retention_seconds=RETENTION, limit=100
            )
            assert len(taken) == 100

    async def expire() -> None:
        async with database.transaction() as tx:
            assert await engine.expire(tx, fifo.now, fifo.queue_id, 10, 100) == 100

    await meter.check("next_ready", 20, next_ready())
    await meter.check("move_to_dead_letter", 150, bury())
    await meter.check("take_for_move", 500, take())
    await meter.check("counts", 100_000, fifo.counts())
    await meter.check("expire", 2_000, expire())


async def receive(meter: Meter, fifo: FifoQueue, limit: int) -> list[Received]:
    """A receive that looks at a few index entries for each message that it returns."""
    found: list[Received] = []

    async def call() -> None:
        found.extend(await fifo.receive(limit, 3600))

    await meter.check(f"receive {limit}", 40 + 20 * limit, call())
    assert len(found) == limit
    return found
