"""A standard queue as the tests drive it: one call after the other, time as an argument."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable
from datetime import datetime, timedelta

from queuegate.protocol.digests import md5_of_bytes
from queuegate.storage.database import Database
from queuegate.storage.queue_model import Counts, Handle, NextVisible, Received, Row, WatchedQueue
from queuegate.storage.queues import message_retention, standard_queues, stored_queues
from queuegate.storage.queues.kinds import PRIORITISED, STANDARD
from queuegate.storage.queues.messages import ChangeVisibility, Delete, Receive, Send
from queuegate.storage.queues.standard_lanes import StandardLanes
from tests.storage.fifo_queue import RETENTION, START, call, of_kind


def make_message(
    queue_id: int,
    body: str = "body",
    *,
    delay_seconds: int = 0,
    system: str | None = None,
    priority: int | None = None,
    ttl: int | None = None,
) -> Row:
    """A message with an id of its own."""
    digest = md5_of_bytes(body.encode())
    return (
        queue_id,
        str(uuid.uuid4()),
        body,
        "sender",
        None,
        system,
        delay_seconds,
        digest,
        None,
        None,
        None,
        priority,
        ttl,
    )


async def make_queue(database: Database, name: str = "orders") -> int:
    """A row of queues; returns its id."""
    async with database.transaction() as tx:
        queue_id: int = await tx.fetchval(
            "INSERT INTO queues (account_id, region, queue_name, is_fifo, created_at, modified_at)"
            " VALUES ('0', 'r', $1, false, $2, $2) RETURNING queue_id",
            name,
            START,
        )
        return queue_id


def handle_of(message: Received) -> Handle:
    """Return the fields of its receipt handle."""
    return message.queue_id, message.group_id, message.sequence, message.receive_count


class MovingClock:
    """Stands still until a test moves it; no two statements at the same instant."""

    def __init__(self) -> None:
        self.instant = START

    def now(self) -> datetime:
        self.instant += timedelta(microseconds=2)
        return self.instant

    def wait(self, seconds: float) -> None:
        """Let time pass, or turn it back."""
        self.instant += timedelta(seconds=seconds)


class StandardQueue:
    """One queue as one process sees it; ``elsewhere`` is the same queue in another process."""

    kind = STANDARD

    def __init__(self, database: Database, queue_id: int, clock: MovingClock) -> None:
        self.database = database
        self.queue_id = queue_id
        self.clock = clock
        self.lanes = StandardLanes(database, clock.now)

    def elsewhere(self) -> StandardQueue:
        return StandardQueue(self.database, self.queue_id, self.clock)

    async def send(
        self,
        *bodies: str,
        delay_seconds: int = 0,
        priority: int | None = None,
        ttl: int | None = None,
    ) -> None:
        """Send a batch."""
        rows = [
            make_message(
                self.queue_id, body, delay_seconds=delay_seconds, priority=priority, ttl=ttl
            )
            for body in bodies
        ]
        await call(self.lanes.send, lambda reply: of_kind(self.kind, Send(rows, reply, 0)))

    def receiving(
        self,
        limit: int = 10,
        visibility: float = 30,
        *,
        queue_id: int | None = None,
        retention: int = RETENTION,
    ) -> Awaitable[object]:
        """A receive that others may share a flush with."""
        target = self.queue_id if queue_id is None else queue_id
        lanes = self.lanes
        return call(
            lanes.ordered if lanes.fair.noisy or self.kind is PRIORITISED else lanes.receive,
            lambda reply: of_kind(
                self.kind, Receive(target, limit, int(visibility * 1000), retention, reply)
            ),
        )

    async def receive(
        self, limit: int = 10, visibility: float = 30, *, retention: int = RETENTION
    ) -> list[Received]:
        result = await self.receiving(limit, visibility, retention=retention)
        assert isinstance(result, list), result
        return result

    async def delete(self, *messages: Received) -> None:
        handles = [handle_of(message) for message in messages]
        result = await call(self.lanes.delete, lambda reply: Delete(handles, reply))
        assert result == ["ok"] * len(messages)

    async def hide(self, *messages: Received, seconds: float) -> list[bool]:
        """Change the visibility timeout of messages."""
        rows = [(*handle_of(message), int(seconds * 1000)) for message in messages]
        result = await call(self.lanes.visibility, lambda reply: ChangeVisibility(rows, reply))
        assert isinstance(result, list), result
        return [outcome == "ok" for outcome in result]

    async def release(self, *received: Received) -> None:
        async with self.database.transaction() as tx:
            await standard_queues.release(tx, self.clock.now(), list(received))

    async def bury(self, target_id: int, *received: Received) -> int:
        """Move messages to a dead-letter queue."""
        async with self.database.transaction() as tx:
            return await standard_queues.move_to_dead_letter(
                tx,
                self.clock.now(),
                source_id=self.queue_id,
                target_id=target_id,
                source_arn="arn:source",
                messages=list(received),
            )

    async def next_visible(self, *, retention: int = RETENTION) -> list[NextVisible]:
        asked = [WatchedQueue(self.queue_id, self.lanes.mark_of(self.queue_id), retention)]
        async with self.database.transaction() as tx:
            return await STANDARD.next_visible(tx, self.clock.now(), asked)

    async def counts(self) -> Counts:
        async with self.database.transaction() as tx:
            return await standard_queues.counts(tx, self.clock.now(), self.queue_id)

    async def counted(self) -> tuple[int, int]:
        """(sum of the deltas, rows): always the same number."""
        async with self.database.transaction() as tx:
            row = await tx.fetchrow(
                "SELECT (SELECT coalesce(sum(delta), 0) FROM queue_deltas WHERE queue_id = $1),"
                " (SELECT count(*) FROM messages WHERE queue_id = $1)",
                self.queue_id,
            )
        assert row is not None
        return int(row[0]), int(row[1])


class PriorityQueue(StandardQueue):
    """The same with priorities. ``plainly`` is the queue for those who do not know yet."""

    kind = PRIORITISED

    def __init__(self, database: Database, queue_id: int, clock: MovingClock) -> None:
        super().__init__(database, queue_id, clock)
        self.plainly = StandardQueue(database, queue_id, clock)
        self.lanes = self.plainly.lanes

    def elsewhere(self) -> PriorityQueue:
        return PriorityQueue(self.database, self.queue_id, self.clock)

    async def close(self) -> None:
        await self.lanes.close()

    async def is_prioritised(self) -> bool:
        """Return True if the database says that the queue has priorities."""
        async with self.database.transaction() as tx:
            found = await stored_queues.find_by_id(tx, self.queue_id)
        assert found is not None
        return found.kind is PRIORITISED

    async def remove_overdue(self, limit: int = 1_000) -> int:
        """Removes what has expired; how many messages went."""
        async with self.database.transaction() as tx:
            now = self.clock.now()
            queue_ids, _ = await message_retention.find_overdue(tx, now, 0, 10)
            if not queue_ids:
                return 0
            gone, _ = await message_retention.remove_overdue(tx, now, queue_ids, limit)
        return gone
