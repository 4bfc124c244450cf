"""Queues and messages for the workers, without a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from queuegate.storage.database import Database
from queuegate.storage.queue_model import Counts, Queue, Received, Row
from queuegate.storage.queues import stored_queues
from queuegate.storage.queues.messages import Delete, Receive, Send
from queuegate.storage.queues.standard_lanes import StandardLanes
from tests.scheduler.endpoints import Endpoint, answer
from tests.storage.fifo_queue import Replied
from tests.storage.standard_queue import handle_of, make_message

if TYPE_CHECKING:
    from tests.scheduler.webhook_store import WebHookStore

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
        new = stored_queues.NewQueue(ACCOUNT, REGION, name, name.endswith(".fifo"), attributes, {})
        async with self.database.transaction() as tx:
            queue = await stored_queues.create(tx, self.clock.now(), new)
        assert queue is not None
        return queue

    async def delete_queue(self, queue: Queue) -> None:
        async with self.database.transaction() as tx:
            await stored_queues.delete(tx, self.clock.now(), queue.queue_id)

    async def send(self, queue: Queue, count: int = 1) -> None:
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        messages: list[Row] = [make_message(queue.queue_id, f"body {i}") for i in range(count)]
        self.lanes.send.submit(Send(messages, Replied(done), 0))
        assert await done == [(row[1], None, False, None) for row in messages]

    async def receive(self, queue: Queue, limit: int = 10) -> list[Received]:
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        hidden, retention = 30_000, queue.retention_seconds
        self.lanes.receive.submit(Receive(queue.queue_id, limit, hidden, retention, Replied(done)))
        received = await done
        assert isinstance(received, list)
        return received

    async def consume(self, queue: Queue, limit: int = 10) -> int:
        """Receive and delete up to ``limit`` messages; how many there were."""
        handles = [handle_of(one) for one in await self.receive(queue, limit)]
        if handles:
            done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            self.lanes.delete.submit(Delete(handles, Replied(done)))
            assert await done == ["ok"] * len(handles)
        return len(handles)

    async def archive(self, queue: Queue, count: int, *, days_ago: float = 0) -> None:
        """Fill the queue's archive: bodies are numbers, archived an hour apart, the last one so
        many days ago."""
        async with self.database.transaction() as tx:
            await tx.execute(
                "INSERT INTO message_archive (queue_id, sequence, archived_at, sent_at,"
                " receive_count, message_id, sender_id, body)"
                " SELECT $1::int, nextval('message_sequence'), $2::timestamptz"
                " + (n - $3::int) * interval '1 hour', $2::timestamptz, 1, gen_random_uuid(), 's',"
                " n::text FROM generate_series(1, $3::int) AS n",
                queue.queue_id,
                NOON - timedelta(days=days_ago),
                count,
            )

    async def counts(self, queue: Queue) -> Counts:
        async with self.database.transaction() as tx:
            return await queue.kind.count(tx, self.clock.now(), queue.queue_id)

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


@pytest.fixture
def hooks(database: Database, clock: StillClock) -> WebHookStore:
    from tests.scheduler.webhook_store import WebHookStore

    return WebHookStore(database, clock)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint(answer(200)).listening() as endpoint:
        yield endpoint
