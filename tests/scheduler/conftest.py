"""What the workers work on: queues and messages, without a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from storage import queues
from storage.database import Database
from storage.messages import NewMessage, Send, StandardLanes
from storage.model import Counts, Queue

ACCOUNT = "111122223333"
REGION = "eu-west-1"
NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


class StillClock:
    """Stands at noon until a test moves it."""

    def __init__(self) -> None:
        self.instant: datetime | None = NOON

    def now(self) -> datetime | None:
        return self.instant


class Store:
    """Makes queues and fills them."""

    def __init__(self, database: Database, clock: StillClock, lanes: StandardLanes) -> None:
        self.database = database
        self.clock = clock
        self.lanes = lanes

    async def make_queue(self, name: str = "orders", **attributes: str) -> Queue:
        new = queues.NewQueue(ACCOUNT, REGION, name, name.endswith(".fifo"), attributes, {})
        async with self.database.transaction() as tx:
            queue = await queues.create(tx, self.clock.now(), new)
        assert queue is not None
        return queue

    async def delete_queue(self, queue: Queue) -> None:
        async with self.database.transaction() as tx:
            await queues.delete(tx, self.clock.now(), queue.queue_id)

    async def send(self, queue: Queue, count: int = 1) -> None:
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        messages: list[NewMessage] = [
            (queue.queue_id, str(uuid4()), f"body {i}", "sender", None, None, 0, bytes(16))
            for i in range(count)
        ]
        self.lanes.send.submit(Send(messages, done.set_result, 0))
        assert await done is None

    async def counts(self, queue: Queue) -> Counts:
        async with self.database.transaction() as tx:
            return await queues.counts(tx, self.clock.now(), queue)

    async def number(self, statement: str, *arguments: object) -> int:
        async with self.database.transaction() as tx:
            found: int = await tx.fetchval(statement, *arguments)
            return found


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
async def store(database: Database, clock: StillClock) -> AsyncIterator[Store]:
    lanes = StandardLanes(database, clock.now)
    yield Store(database, clock, lanes)
    await lanes.close()
