"""Several processes at once on one standard queue, with lost connections: an audit of the promises.

no message in two hands inside its timeout; none lost; none back after an acknowledged delete;
the counter equals the rows
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from queuegate.storage.database import Database
from queuegate.storage.queue_model import QueueKind, Received
from queuegate.storage.queues.kinds import PRIORITISED, STANDARD
from queuegate.storage.queues.messages import ChangeVisibility, Delete, Receive, Send
from queuegate.storage.queues.standard_lanes import StandardLanes
from queuegate.storage.storage_errors import Unavailable
from tests.storage.fifo_queue import RETENTION, call, of_kind
from tests.storage.standard_queue import handle_of, make_message, make_queue
from tests.waiting import until_async

_PROCESSES = 4
_ACTORS_PER_PROCESS = 6
_ROUNDS = 60
_LONG_MS = 600_000


@pytest.fixture
def database_dsn(own_database_dsn: str) -> str:
    return own_database_dsn


class Process(NamedTuple):
    """The lanes of a process, and the kind of the queue as it knows it."""

    lanes: StandardLanes
    kind: QueueKind


class Audit:
    """The history of each message, by its body, as its clients know it."""

    def __init__(self, queue_id: int) -> None:
        self.queue_id = queue_id
        self.sent: set[str] = set()
        self.held: dict[str, int] = {}
        """body -> receive count, while a receive with a long timeout holds it."""
        self.unsure: set[str] = set()
        """Held by a client whose connection was lost, or whose delete nobody answered."""
        self.deleted: set[str] = set()
        self.violations: list[str] = []

    def received(self, message: Received) -> None:
        body = message.body
        if body in self.deleted:
            self.violations.append(f"{body} came back after its delete")
        if body in self.held:
            self.violations.append(f"{body} is in two hands")
        self.held[body] = message.receive_count


class Client:
    """Sends, receives, deletes and hides at random, through one process's lanes."""

    def __init__(self, audit: Audit, process: Process, name: str, seed: int) -> None:
        self.audit = audit
        self.lanes, self.kind = process
        self.name = name
        self.random = random.Random(seed)
        self.mine: list[Received] = []
        self.count = 0
        self.unanswered = 0

    async def run(self) -> None:
        steps: list[Callable[[], Awaitable[None]]] = [
            self.send,
            self.receive,
            self.receive,
            self.delete,
            self.delete,
            self.hide,
            self.give_back,
        ]
        for _ in range(_ROUNDS):
            try:
                await self.random.choice(steps)()
            except Unavailable:
                self.unanswered += 1

    async def send(self) -> None:
        bodies = []
        for _ in range(self.random.randint(1, 10)):
            self.count += 1
            bodies.append(f"{self.name}.{self.count}")
        # With priorities some are sent as if nobody had heard of them.
        kind = self.random.choice([STANDARD, self.kind])
        priority = self.random.randint(0, 10) if kind is PRIORITISED else None
        rows = [make_message(self.audit.queue_id, body, priority=priority) for body in bodies]
        await call(self.lanes.send, lambda reply: of_kind(kind, Send(rows, reply, 0)))
        self.audit.sent.update(bodies)

    async def receive(self) -> None:
        limit = self.random.randint(1, 10)
        queue_id = self.audit.queue_id
        result = await call(
            self.lanes.receive,
            lambda reply: of_kind(self.kind, Receive(queue_id, limit, _LONG_MS, RETENTION, reply)),
        )
        assert isinstance(result, list)
        for message in result:
            self.audit.received(message)
            self.mine.append(message)

    async def delete(self) -> None:
        gone = [self.mine.pop() for _ in range(min(len(self.mine), self.random.randint(1, 10)))]
        if not gone:
            return
        handles = [handle_of(message) for message in gone]
        bodies = {message.body for message in gone}
        self.audit.unsure |= bodies
        await call(self.lanes.delete, lambda reply: Delete(handles, reply))
        self.audit.unsure -= bodies
        self.audit.deleted |= bodies

    async def hide(self) -> None:
        """Hold on to a message for longer."""
        if self.mine:
            m = self.random.choice(self.mine)
            rows = [(*handle_of(m), _LONG_MS)]
            changed = await call(self.lanes.visibility, lambda reply: ChangeVisibility(rows, reply))
            if changed != ["ok"]:
                self.audit.violations.append(f"{m.body} could not be held")

    async def give_back(self) -> None:
        """Show a message to the others again."""
        if self.mine:
            m = self.mine.pop(self.random.randrange(len(self.mine)))
            # Somebody may have it before we hear the answer.
            del self.audit.held[m.body]
            rows = [(*handle_of(m), 0)]
            await call(self.lanes.visibility, lambda reply: ChangeVisibility(rows, reply))


async def _terminate_at_random(database: Database, chance: random.Random) -> None:
    """End one connection of a lane after the other."""
    while True:
        async with database.transaction() as tx:
            victims = await tx.fetch(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'process'"
            )
            if victims:
                await tx.execute("SELECT pg_terminate_backend($1)", chance.choice(victims)["pid"])
            # A statement that takes its time is what we wait for between two of them.
            await tx.execute("SELECT pg_sleep(0.02)")


async def _drain(process: Process, queue_id: int) -> Counter[str]:
    """Every message that is there, however hidden."""
    found: Counter[str] = Counter()
    while True:
        result = await call(
            process.lanes.receive,
            lambda reply: of_kind(process.kind, Receive(queue_id, 10, _LONG_MS, RETENTION, reply)),
        )
        assert isinstance(result, list)
        if not result:
            return found
        found.update(message.body for message in result)


async def _until_connected(lanes: StandardLanes, queue_id: int) -> None:
    """A connection that was ended last may still have to say so."""

    async def answers() -> bool:
        try:
            await call(lanes.receive, lambda reply: Receive(queue_id, 1, 0, RETENTION, reply))
        except Unavailable:
            return False
        return True

    await until_async(answers)


@pytest.mark.parametrize(
    ("losing_connections", "has_priorities"), [(False, False), (True, False), (False, True)]
)
async def test_many_processes_keep_the_promises(
    database: Database, database_dsn: str, losing_connections: bool, has_priorities: bool
) -> None:
    seed = 20_261
    audit = Audit(await make_queue(database))
    kind = PRIORITISED if has_priorities else STANDARD
    processes = [
        Process(StandardLanes(Database(database_dsn, application="process"), lambda: None), kind)
        for _ in range(_PROCESSES)
    ]
    clients = [
        Client(audit, process, f"{number}.{actor}", seed + 100 * number + actor)
        for number, process in enumerate(processes)
        for actor in range(_ACTORS_PER_PROCESS)
    ]
    killer = None
    if losing_connections:
        killer = asyncio.create_task(_terminate_at_random(database, random.Random(seed)))
    await asyncio.gather(*(client.run() for client in clients))
    if killer is not None:
        killer.cancel()
        await asyncio.gather(killer, return_exceptions=True)
        assert sum(client.unanswered for client in clients) > 0
        await _until_connected(processes[0].lanes, audit.queue_id)
    else:
        assert sum(client.unanswered for client in clients) == 0
    assert audit.violations == []
    async with database.transaction() as tx:
        await tx.execute("UPDATE messages SET visible_at = sent_at")
        total = await tx.fetchval("SELECT coalesce(sum(delta), 0) FROM queue_deltas")
        assert total == await tx.fetchval("SELECT count(*) FROM messages")
    for process in processes:
        process.lanes.forget_marks()
    found = await _drain(processes[0], audit.queue_id)
    assert max(found.values(), default=1) == 1
    assert audit.sent - audit.deleted - audit.unsure <= set(found)
    assert audit.deleted.isdisjoint(found)
    if not losing_connections:
        assert set(found) == audit.sent - audit.deleted
    for process in processes:
        await process.lanes.close()
