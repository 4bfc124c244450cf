"""Workers that fire schedules are killed: each time is fired once, none is skipped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from queuegate.storage import schedules
from queuegate.storage.database import Database
from queuegate.storage.queues import stored_queues
from tests.cli.processes import PATIENCE_SECONDS, environment
from tests.storage.schedule_factory import ACCOUNT, REGION, make_schedule
from tests.waiting import until_async

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

pytestmark = pytest.mark.timeout(180)

COUNT = 40
GATE = 4711
"""The advisory lock at which an advance waits while a test holds it."""


class Worker:
    """`queuegate worker` as a process; killed at the end."""

    def __init__(self, dsn: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "queuegate", "worker"],
            env=environment(
                DATABASE_URL=dsn, QUEUE_SCHEDULE_POLL_MS="50", QUEUE_SCHEDULE_BATCH_SIZE="10"
            ),
            stdout=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        """kill -9, and wait for its end."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)


@contextlib.contextmanager
def workers(dsn: str, count: int) -> Iterator[list[Worker]]:
    found = [Worker(dsn) for _ in range(count)]
    try:
        yield found
    finally:
        for worker in found:
            worker.kill()


async def make_queue(database: Database) -> None:
    async with database.transaction() as tx:
        await stored_queues.create(
            tx, None, stored_queues.NewQueue(ACCOUNT, REGION, "orders", False, {}, {})
        )


async def add(database: Database, name: str, timing: dict[str, object], at: datetime) -> None:
    target = {
        "kind": "queue",
        "account_id": ACCOUNT,
        "region": REGION,
        "queue_name": "orders",
        "body": "hello",
        "schedule_header": True,
    }
    new = make_schedule(
        name,
        timing=timing,
        target=target,
        catchup=True,
        catchup_limit=1_000,
        next_fire_at=at,
        due_at=at,
    )
    async with database.transaction() as tx:
        assert await schedules.create(tx, None, new) is not None


async def number(database: Database, statement: str, *arguments: object) -> int:
    async with database.transaction() as tx:
        found: int = await tx.fetchval(statement, *arguments)
        return found


async def until(database: Database, statement: str, *arguments: object) -> None:
    """Return when the statement answers true."""
    await until_async(lambda: number(database, statement, *arguments))


async def fired(tx: Transaction) -> Counter[tuple[str, datetime]]:
    """Count the fires of each schedule for each time."""
    found: Counter[tuple[str, datetime]] = Counter()
    for (attributes,) in await tx.fetch("SELECT attributes FROM messages"):
        header = json.loads(json.loads(attributes)["_schedule"]["StringValue"])
        found[header["name"], datetime.fromisoformat(header["scheduled_for"])] += 1
    return found


@contextlib.asynccontextmanager
async def held_gate(database: Database) -> AsyncIterator[None]:
    """Block every transaction that advances a schedule, after its sends, until the block ends."""
    holder = await database.connect()
    await holder.execute(
        "CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NEW; END $$;"
        " CREATE TRIGGER gate BEFORE UPDATE OR DELETE ON schedules"
        " FOR EACH STATEMENT EXECUTE FUNCTION wait_at_gate();"
        f" SELECT pg_advisory_lock({GATE})"
    )
    try:
        yield
    finally:
        await holder.close()


async def test_a_worker_that_dies_between_send_and_advance_has_fired_nothing(
    database: Database, database_dsn: str
) -> None:
    await make_queue(database)
    time = datetime.now(UTC)
    for n in range(COUNT):
        await add(database, f"s{n}", {"kind": "once", "instant": time.isoformat()}, time)
    waiting = (
        "SELECT count(*) > 0 FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database"
        " WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objid = $1"
        " AND NOT l.granted"
    )
    async with held_gate(database):
        with workers(database_dsn, 1) as [first]:
            await until(database, waiting, GATE)
            # What it has sent is there, but nobody sees it.
            assert await number(database, "SELECT count(*) FROM messages") == 0
            assert await number(
                database,
                "SELECT last_value > 1 OR is_called FROM message_sequence",
            )
            await asyncio.to_thread(first.kill)
    with workers(database_dsn, 2):
        await until(database, "SELECT count(*) = 0 FROM schedules")
    async with database.transaction() as tx:
        assert await fired(tx) == {(f"s{n}", time): 1 for n in range(COUNT)}


async def test_killed_workers_fire_each_time_once(database: Database, database_dsn: str) -> None:
    """Every second, forty schedules; one of the workers dies now and then, and comes back."""
    await make_queue(database)
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    timing = {"kind": "rate", "seconds": 1, "anchor": begin.isoformat()}
    for n in range(COUNT):
        await add(database, f"s{n}", timing, begin)
    with workers(database_dsn, 3) as running:
        for turn in range(6):
            await until(database, "SELECT count(*) >= $1 FROM messages", (turn + 1) * 2 * COUNT)
            await asyncio.to_thread(running[turn % 3].kill)
            running[turn % 3] = Worker(database_dsn)
        await until(database, "SELECT count(*) >= $1 FROM messages", 14 * COUNT)
    async with database.transaction() as tx:
        # One look: what a killed worker has sent to PostgreSQL may be committed a little later.
        await tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        counts = await fired(tx)
        rows = await tx.fetch(
            "SELECT schedule_name, last_scheduled_for, fired_count, skipped_count FROM schedules"
        )
    assert set(counts.values()) == {1}
    for name, last, fired_count, skipped_count in rows:
        seconds = round((last - begin).total_seconds())
        wanted = {begin + timedelta(seconds=n) for n in range(seconds + 1)}
        assert {time for schedule, time in counts if schedule == name} == wanted
        assert (fired_count, skipped_count) == (len(wanted), 0)
