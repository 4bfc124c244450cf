"""A FIFO queue as the tests drive it: one call after the other, time as an argument."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from queuegate.storage.database import Database
from queuegate.storage.lanes import ClockNow, Entry, Lane, Reply
from queuegate.storage.queue_model import Counts, QueueKind, Received, Row
from queuegate.storage.queues.fifo_lanes import FifoLanes
from queuegate.storage.queues.fifo_queues import counts
from queuegate.storage.queues.kinds import FIFO
from queuegate.storage.queues.messages import ChangeVisibility, Delete, Receive, Send, dedup_key
from queuegate.storage.queues.standard_lanes import StandardLanes

START = datetime(2030, 1, 1, tzinfo=UTC)
RETENTION = 345_600
Sent = list[Any]

E = TypeVar("E", bound=Entry[Any])
Make = Callable[[Reply[Any]], E]


class Replied:
    """A reply that completes a future; errors are results, too."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.done = self.failed = future.set_result


class FifoMessage(NamedTuple):
    """A row that a test changes before it has a queue."""

    message_id: str
    group_id: str
    dedup_key: str
    deduplication_id: str
    body: str
    attributes: str | None = None
    system: str | None = None
    delay_seconds: int = 0
    ttl_seconds: int | None = None

    def row(self, queue_id: int) -> Row:
        return (
            queue_id,
            self.message_id,
            self.body,
            "sender",
            self.attributes,
            self.system,
            self.delay_seconds,
            None,
            self.group_id,
            self.deduplication_id,
            self.dedup_key,
            None,
            self.ttl_seconds,
        )


def make_message(
    group_id: str, body: str = "body", dedup: str | None = None, *, delay_seconds: int = 0
) -> FifoMessage:
    """A message with a deduplication id of its own unless one is given."""
    deduplication_id = dedup or uuid.uuid4().hex
    return FifoMessage(
        message_id=str(uuid.uuid4()),
        group_id=group_id,
        dedup_key=dedup_key(None, deduplication_id),
        deduplication_id=deduplication_id,
        body=body,
        delay_seconds=delay_seconds,
    )


async def make_queue(database: Database, name: str = "orders.fifo", **attributes: str) -> int:
    """A row of queues; returns its id."""
    async with database.transaction() as tx:
        queue_id: int = await tx.fetchval(
            "INSERT INTO queues (account_id, region, queue_name, is_fifo, created_at, modified_at,"
            " attributes) SELECT '0', 'r', $1, true, $2, $2, coalesce((SELECT"
            " jsonb_object_agg(k, v) FROM unnest($3::text[], $4::text[]) AS a (k, v)), '{}')"
            " RETURNING queue_id",
            name,
            START,
            list(attributes),
            list(attributes.values()),
        )
        return queue_id


async def delete_queue(database: Database, queue_id: int) -> None:
    async with database.transaction() as tx:
        await tx.execute("UPDATE queues SET deleted_at = $2 WHERE queue_id = $1", queue_id, START)


async def call(lane: Lane[E], make: Make[E]) -> object:
    """Hand in one entry and wait for its reply; raises it when it is an exception."""
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    lane.submit(make(Replied(future)))
    result = await future
    if isinstance(result, Exception):
        raise result
    return result


def of_kind(kind: QueueKind, entry: E) -> E:
    """The entry as it is made for a queue of that kind."""
    entry.variant = kind
    return entry


class FifoQueue:
    """One queue with its lanes and a clock that only the test moves."""

    kind = FIFO

    def __init__(
        self, database: Database, queue_id: int, clock_now: ClockNow | None = None
    ) -> None:
        self.database = database
        self.queue_id = queue_id
        self.now = START
        now = clock_now or self._tick
        self.lanes = FifoLanes(database, now, StandardLanes(database, now).visibility)

    def _tick(self) -> datetime:
        """No two statements at the same instant."""
        self.now += timedelta(microseconds=2)
        return self.now

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    async def send(self, *messages: FifoMessage, queue_id: int | None = None) -> Sent:
        """Send a batch."""
        target = self.queue_id if queue_id is None else queue_id
        rows = [message.row(target) for message in messages]
        result = await call(self.lanes.send, lambda reply: Send(rows, reply, 0))
        assert isinstance(result, list)
        return result

    async def receive(
        self,
        limit: int = 10,
        visibility: float = 30,
        *,
        queue_id: int | None = None,
        retention: int = RETENTION,
        attempt_id: str | None = None,
    ) -> list[Received]:
        target = self.queue_id if queue_id is None else queue_id
        milliseconds = int(visibility * 1000)
        result = await call(
            self.lanes.receive,
            lambda reply: of_kind(
                self.kind, Receive(target, limit, milliseconds, retention, reply, attempt_id)
            ),
        )
        assert isinstance(result, list), result
        return result

    async def delete(self, *messages: Received) -> list[str]:
        handles = [_handle(message) for message in messages]
        result = await call(
            self.lanes.delete, lambda reply: Delete(handles, reply, self.kind.order)
        )
        assert isinstance(result, list), result
        return result

    async def hide(self, message: Received, seconds: float) -> str:
        """Change the visibility timeout of one message."""
        row = (*_handle(message), int(seconds * 1000))
        result = await call(
            self.lanes.visibility, lambda reply: ChangeVisibility([row], reply, self.kind.order)
        )
        assert isinstance(result, list), result
        state: str = result[0]
        return state

    async def counts(self) -> Counts:
        async with self.database.transaction() as tx:
            return await counts(tx, self.now, self.queue_id)

    async def rows(self, table: str) -> int:
        """Count this queue's rows in a table."""
        async with self.database.transaction() as tx:
            count: int = await tx.fetchval(
                f"SELECT count(*) FROM {table} WHERE queue_id = $1", self.queue_id
            )
            return count


def _handle(message: Received) -> tuple[int, str, int, int]:
    assert message.group_id is not None
    return message.queue_id, message.group_id, message.sequence, message.receive_count


def bodies(messages: list[Received]) -> list[str]:
    return [message.body for message in messages]
