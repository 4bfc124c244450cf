"""Many senders and receivers at once, connections that die, triggers that watch every change."""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from queuegate.storage.database import SCHEMA, Database
from queuegate.storage.queue_model import Received
from queuegate.storage.queues import fifo_queues as engine
from queuegate.storage.queues.fifo_queues import send_rows
from queuegate.storage.storage_errors import Unavailable
from tests.storage.fifo_queue import FifoQueue, make_message, make_queue

AUDIT = (Path(__file__).parent / "sql" / "fifo_audit.sql").read_text()
PROCESSES = 3
SENDERS = 4
RECEIVERS = 5
# The long form is `make soak-faults`.
BATCHES = 250 if os.environ.get("QUEUEGATE_TEST_FAULTS") == "long" else 40
GROUPS = ("hot", "hot", "hot", "warm", "warm", "a", "b", "c", "d", "e", "f", "g", "h")
RETENTION = 1_209_600


@pytest.fixture
def database_dsn(own_database_dsn: str) -> str:
    return own_database_dsn


class Storm:
    """One audited run. What clients believe is kept here, what happened in the tables."""

    def __init__(self, database: Database, queue_id: int, dead_id: int, seed: int) -> None:
        self.database = database
        self.queue_id = queue_id
        self.dead_id = dead_id
        self.random = random.Random(seed)
        self.bodies: dict[str, tuple[str, int]] = {}
        self.deleted: set[int] = set()
        self.unavailable = 0
        self.deliveries = 0
        self.senders_left = PROCESSES * SENDERS
        # Each is a process of its own as far as the database can tell: other connections.
        self.processes = [FifoQueue(database, queue_id, lambda: None) for _ in range(PROCESSES)]

    async def run(self) -> None:
        jobs = []
        for number, process in enumerate(self.processes):
            jobs += [self.send(process, f"{number}.{sender}") for sender in range(SENDERS)]
            jobs += [self.receive(process) for _ in range(RECEIVERS)]
        jobs.append(self.keep())
        await asyncio.gather(*jobs)
        for process in self.processes:
            await process.lanes.close()

    async def send(self, process: FifoQueue, name: str) -> None:
        """Batches in turn, each until it is acknowledged: a retry is a duplicate, or the first."""
        for number in range(BATCHES):
            batch = [
                make_message(self.random.choice(GROUPS), f"{name}.{number}.{place}")
                for place in range(self.random.choice((1, 1, 3, 10)))
            ]
            copies = self.random.choice((1, 1, 1, 2))
            while True:
                try:
                    # Duplicates at the same time, from another process.
                    others = self.random.sample(self.processes, copies - 1)
                    results = await asyncio.gather(*[p.send(*batch) for p in [process, *others]])
                except Unavailable:
                    self.unavailable += 1
                    continue
                break
            sent = [row[:2] for row in results[0]]
            assert all([row[:2] for row in result] == sent for result in results)
            assert [sequence for _, sequence in sent] == sorted(s for _, s in sent) or copies > 1
            for message, row in zip(batch, sent, strict=True):
                self.bodies[message.body] = row
            await self.receive_once(process)
        self.senders_left -= 1

    async def receive(self, process: FifoQueue) -> None:
        while self.senders_left:
            await self.receive_once(process)

    async def receive_once(self, process: FifoQueue) -> None:
        try:
            await self.work(process)
            if self.random.random() < 0.003:
                await self.kill()
        except Unavailable:
            self.unavailable += 1

    async def kill(self) -> None:
        """End a connection of a lane, whatever it is doing."""
        async with self.database.transaction() as tx:
            pids = await tx.fetch(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'queuegate' AND query LIKE '%fifo%'"
                " AND pid <> pg_backend_pid()"
            )
            if pids:
                victim = self.random.choice(pids)["pid"]
                await tx.execute("SELECT pg_terminate_backend($1)", victim)

    async def work(self, process: FifoQueue) -> None:
        """One receive and what a consumer may do with it, late, in part, and in any order."""
        choose = self.random.choice
        found = await process.receive(choose((1, 2, 10)), choose((0, 0.004, 0.008, 0.02, 0.3)))
        self.deliveries += len(found)
        if not found:
            return
        self.random.shuffle(found)
        action = choose(("delete", "delete", "delete", "part", "hide", "bury", "release", ""))
        if action == "delete":
            await self.delete(process, found)
        elif action == "part":
            await self.delete(process, found[: len(found) // 2 + 1])
        elif action == "hide":
            await asyncio.gather(*[process.hide(m, choose((0, 0.01, 0.2))) for m in found])
        elif action == "release":
            async with self.database.transaction() as tx:
                await engine.release(tx, None, found)
        elif action == "bury":
            await self.bury(found)

    async def delete(self, process: FifoQueue, found: list[Received]) -> None:
        states = await process.delete(*found)
        for message, state in zip(found, states, strict=True):
            if state == "ok":
                self.deleted.add(message.sequence)

    async def bury(self, found: list[Received]) -> None:
        async with self.database.transaction() as tx:
            await engine.move_to_dead_letter(
                tx,
                None,
                source_queue_id=self.queue_id,
                target_queue_id=self.random.choice((self.dead_id, self.queue_id)),
                source_arn="arn",
                rows=[(m.group_id or "", m.sequence, m.receive_count) for m in found],
            )

    async def keep(self) -> None:
        """Run the work of workers: retention, cleaning, a new delay, a move task to the source."""
        while self.senders_left:
            for work in (self.clean, self.move_back, self.move_back, self.move_back):
                try:
                    await work()
                except Unavailable:
                    self.unavailable += 1

    async def clean(self) -> None:
        async with self.database.transaction() as tx:
            await engine.clean_dedup(tx, None, 100)
            await engine.expire(tx, None, self.queue_id, RETENTION, 100)
        async with self.database.transaction() as tx:
            await engine.set_delay(tx, None, self.queue_id, 0)

    async def move_back(self) -> None:
        async with self.database.transaction() as tx:
            found = await engine.take_for_move(
                tx, None, self.dead_id, retention_seconds=RETENTION, limit=5
            )
            rows = [(m.group_id, m.sequence, self.queue_id, str(uuid.uuid4())) for m in found]
            if rows:
                assert await engine.move(tx, None, self.dead_id, rows) == len(rows)

    async def drain(self) -> None:
        """An hour later nothing is in flight: everything comes out."""
        later = datetime.now(UTC) + timedelta(hours=1)
        for queue_id in (self.queue_id, self.dead_id):
            queue = FifoQueue(self.database, queue_id, lambda: later)
            while found := await queue.receive(10, retention=RETENTION):
                assert set(await queue.delete(*found)) == {"ok"}
            await queue.lanes.close()


async def install(dsn: str) -> asyncpg.Connection[asyncpg.Record]:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": SCHEMA})
    await connection.execute(AUDIT)
    return connection


@pytest.mark.timeout(300)
async def test_storm(database: Database, database_dsn: str) -> None:
    """No overlapping holders, order within groups, no lost or doubled send, no deadlock."""
    seed = int(os.environ.get("QUEUEGATE_TEST_SEED", time.time_ns() % 1_000_000))
    print(f"QUEUEGATE_TEST_SEED={seed}")
    observer = await install(database_dsn)
    storm = Storm(
        database, await make_queue(database), await make_queue(database, "dead.fifo"), seed
    )
    await storm.run()
    await observer.execute("ALTER TABLE fifo_groups DISABLE TRIGGER audit_delivery")
    await storm.drain()
    print(
        f"{len(storm.bodies)} messages, {storm.deliveries} deliveries,"
        f" {storm.unavailable} calls cut off"
    )
    findings = await observer.fetch("SELECT rule, detail FROM audit_findings LIMIT 10")
    for finding in findings:
        # In full: it may be long before the same storm blows again.
        print(finding["rule"], finding["detail"])
    assert not findings
    # Moves send a body again; the first number of each body is that of its send.
    sent = await observer.fetch(
        "SELECT body, min(sequence), count(*) FROM audit_sent WHERE queue_id = $1 GROUP BY body",
        storm.queue_id,
    )
    assert {row[0]: row[1] for row in sent} == {b: row[1] for b, row in storm.bodies.items()}
    for table in ("fifo_messages", "fifo_groups"):
        assert await observer.fetchval(f"SELECT count(*) FROM {table}") == 0
    gone = await observer.fetch(
        "SELECT queue_id, sequence, count(*) FROM audit_deleted GROUP BY 1, 2"
    )
    assert {row["count"] for row in gone} == {1}
    assert await observer.fetchval("SELECT count(*) FROM audit_sent") == len(gone)
    assert storm.deleted <= {row["sequence"] for row in gone}
    assert await observer.fetchval("SELECT sum(delta) FROM queue_deltas") == 0
    deadlocks = await observer.fetchval(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    # `fifo_set_delay` was seen to be the victim of `delete_one_of_each_group`, whose fallback may
    # lock a group that was created again behind later ones. The function then locks again.
    assert deadlocks <= 1
    await observer.close()


@pytest.mark.parametrize("broken", [False, True])
async def test_the_audit_sees_a_send_without_its_lock(
    database: Database, database_dsn: str, broken: bool
) -> None:
    """A number is drawn first and committed last: only the sender lock keeps others behind it."""
    observer = await install(database_dsn)
    if broken:
        source = await observer.fetchval("SELECT pg_get_functiondef('fifo_send_one'::regproc)")
        assert source.count("pg_advisory_xact_lock(") == 1
        await observer.execute(source.replace("pg_advisory_xact_lock(", "("))
    queue = FifoQueue(database, await make_queue(database), lambda: None)
    other = FifoQueue(database, queue.queue_id, lambda: None)
    await queue.send(make_message("g", "head"))
    slow = await asyncpg.connect(database_dsn, server_settings={"search_path": SCHEMA})
    transaction = slow.transaction()
    await transaction.start()
    await send_rows(slow, None, [make_message("g", "first").row(queue.queue_id)])
    second = asyncio.ensure_future(other.send(make_message("g", "second")))
    if broken:
        # It overtakes, and is handed out beside the head.
        await second
        assert len(await queue.receive(10, 0)) == 2
    await transaction.commit()
    await second
    found = await queue.receive(10)
    findings = {row[0] for row in await observer.fetch("SELECT rule FROM audit_findings")}
    if broken:
        assert [message.body for message in found] == ["head", "second"]
        assert findings == {"passed over"}
    else:
        assert [message.body for message in found] == ["head", "first", "second"]
        assert findings == set()
    await slow.close()
    await observer.close()
    for each in (queue, other):
        await each.lanes.close()


async def test_the_audit_sees_a_receive_that_ignores_timeouts(
    database: Database, database_dsn: str
) -> None:
    observer = await install(database_dsn)
    queue = FifoQueue(database, await make_queue(database), lambda: None)
    await queue.send(make_message("g"), make_message("g"))
    await queue.receive(2, 60)
    await observer.execute("UPDATE fifo_groups SET ready_at = now(), d_rc[2] = d_rc[2] + 1")
    findings = {row[0] for row in await observer.fetch("SELECT rule FROM audit_findings")}
    assert findings == {"prefix", "two holders"}
    await observer.close()
    await queue.lanes.close()
