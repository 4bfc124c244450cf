"""FIFO topics with archives, filled as publishing fills them, without a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from queuegate.gateway.operations.topics.fan_out import copier
from queuegate.protocol.digests import md5_of_bytes
from queuegate.scheduler.replay import ReplayArchives, ReplayCallbacks
from queuegate.storage.model import Topic, TopicSubscription
from queuegate.storage.queue_model import NewMessage, Queue, Row
from queuegate.storage.queues.kinds import FIFO
from queuegate.storage.queues.messages import dedup_key, row_of
from queuegate.storage.topics import replays, stored_topics, subscriptions
from queuegate.storage.topics.publishing import (
    ArchivedPublication,
    Copies,
    Message,
    Numbering,
    Publication,
    PublishLane,
)
from queuegate.storage.topics.replays import ReplayRequest
from queuegate.storage.topics.subscriptions import NewSubscription
from tests.scheduler.conftest import ACCOUNT, NOON, REGION, StillClock, Store
from tests.storage.fifo_queue import Replied

if TYPE_CHECKING:
    import asyncpg


BASE_URL = "http://gateway.example:9324"


@dataclass
class Outgoing:
    """A message to publish."""

    text: str
    group_id: str = "g"
    subject: str | None = None
    attributes: str | None = None
    knows: list[TopicSubscription] = field(default_factory=list)
    """The subscriptions that its publisher knows."""
    live: Queue | None = None
    """Gets a copy at once."""


class ArchiveStore:
    """One topic with an archive of a year; subscriptions, publishes and replays."""

    def __init__(self, store: Store, clock: StillClock) -> None:
        self.store = store
        self.database = store.database
        self.clock = clock
        self.moved: list[tuple[int, int]] = []
        self.publishing, self.other_gateway = [
            PublishLane(self.database, clock.now, lambda queue_ids, now: None) for _ in range(2)
        ]
        self._topic: Topic | None = None

    @property
    def topic(self) -> Topic:
        assert self._topic is not None
        return self._topic

    async def open(self) -> None:
        archive = {"ArchivePolicy": '{"MessageRetentionPeriod":"365"}'}
        new = stored_topics.NewTopic(ACCOUNT, REGION, "news.fifo", True, archive, {}, None)
        async with self.database.transaction() as tx:
            self._topic = await stored_topics.create(tx, NOON, new)

    def worker(self, has_room: Callable[[], bool] = lambda: True) -> ReplayArchives:
        return ReplayArchives(
            self.database,
            self.clock.now,
            lambda queue_id, count: self.moved.append((queue_id, count)),
            ReplayCallbacks(copier, has_room),
        )

    async def subscribe(
        self, queue: Queue, *, token: str | None = None, **attributes: str
    ) -> TopicSubscription:
        """A subscription; confirmed unless it has a token."""
        new = NewSubscription(
            uuid4(), self.topic.topic_id, "sqs", queue.arn, ACCOUNT, REGION, attributes, token
        )
        async with self.database.transaction() as tx:
            await stored_topics.lock(tx, self.topic.topic_id)
            await subscriptions.create(tx, self.clock.now(), new, token_seconds=86_400)
            found = await subscriptions.find(tx, new.subscription_id, self.clock.now())
        assert found is not None
        return found

    async def ask(
        self,
        subscription: TopicSubscription,
        starting_at: datetime = NOON,
        ending_at: datetime | None = None,
    ) -> None:
        """Ask for a replay."""
        asked = ReplayRequest(starting_at, ending_at, BASE_URL)
        async with self.database.transaction() as tx:
            assert await replays.start(tx, self.clock.now(), subscription, asked)

    async def close(self) -> None:
        await self.publishing.close()
        await self.other_gateway.close()

    async def publish(self, *texts: str | Outgoing, lane: PublishLane | None = None) -> list[UUID]:
        """Publish in one call; the ids."""
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        made = [
            self._message(text if isinstance(text, Outgoing) else Outgoing(text)) for text in texts
        ]
        (lane or self.publishing).lane.submit(Publication(made, Replied(done), 0))
        result = await done
        assert isinstance(result, tuple), result
        return [UUID(message.message_id) for message in made]

    def _message(self, outgoing: Outgoing) -> Message:
        message_id, deduplication_id = str(uuid4()), f"id-{uuid4()}"

        def copies(sequence: int | None) -> Copies:
            made = Copies(archived=self._archived(outgoing, message_id, deduplication_id, sequence))
            if outgoing.live is not None:
                made.rows = {FIFO: [_live_copy(outgoing, outgoing.live, deduplication_id)]}
            return made

        key = dedup_key(None, deduplication_id)
        return Message(
            message_id, Numbering(self.topic.topic_id, outgoing.group_id, key), copies, 3
        )

    def _archived(
        self, outgoing: Outgoing, message_id: str, deduplication_id: str, sequence: int | None
    ) -> ArchivedPublication:
        assert sequence is not None
        assert self.clock.instant is not None
        return ArchivedPublication(
            self.topic.topic_id,
            sequence,
            message_id,
            outgoing.group_id,
            deduplication_id,
            outgoing.subject,
            outgoing.text,
            outgoing.attributes,
            "publisher",
            self.clock.instant,
            max([one.live_from for one in outgoing.knows], default=0),
        )

    async def replay(self, subscription: TopicSubscription) -> dict[str, Any]:
        """The row of its replay."""
        async with self.database.transaction() as tx:
            row = await tx.fetchrow(
                "SELECT * FROM replays WHERE subscription_id = $1", subscription.subscription_id
            )
        assert row is not None
        return dict(row)

    async def status(self, subscription: TopicSubscription) -> tuple[str, int]:
        """(status, how many were sent)."""
        row = await self.replay(subscription)
        return row["status"], row["replayed_count"]

    async def messages(self, queue: Queue) -> list[asyncpg.Record]:
        """Return the rows of a queue in order."""
        async with self.database.transaction() as tx:
            if queue.is_fifo:
                return await tx.fetch(
                    "SELECT * FROM fifo_messages WHERE queue_id = $1 ORDER BY sequence",
                    queue.queue_id,
                )
            return await tx.fetch(
                "SELECT * FROM messages WHERE queue_id = $1 ORDER BY visible_at, sequence",
                queue.queue_id,
            )

    async def bodies(self, queue: Queue) -> list[str]:
        return [row["body"] for row in await self.messages(queue)]


def _live_copy(outgoing: Outgoing, queue: Queue, deduplication_id: str) -> Row:
    message = NewMessage(
        outgoing.text, group_id=outgoing.group_id, deduplication_id=deduplication_id
    )
    return row_of(queue, message, str(uuid4()), "publisher")


def md5(body: str) -> bytes:
    return md5_of_bytes(body.encode())
