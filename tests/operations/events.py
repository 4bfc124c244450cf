"""Common steps of tests of events, in one account."""

from __future__ import annotations

from typing import Any

import orjson

from queuegate.gateway.operations.topics.events import (
    EventToPublish,
    SubscribeToEvents,
    list_of_pattern,
    publish_event,
    subscribe,
    unsubscribe,
)
from queuegate.gateway.operations.topics.fan_out import Publisher
from queuegate.gateway.operations.topics.topic_cache import SubscriptionSettings
from queuegate.gateway.operations.topics.topic_publishing import PublishResult
from queuegate.storage.model import TopicSubscription
from tests.operations.world import World

BASE_URL = "http://gateway.test:9324"
WEB_HOOK = "https://hooks.example/events"


class Events(World):
    """A caller at an engine."""

    async def publish(
        self,
        key: str,
        message: object = "hello",
        delay_seconds: int | None = None,
        **headers: object,
    ) -> PublishResult:
        """Publish one event."""
        raw = {name: orjson.dumps(value) for name, value in headers.items()}
        event = EventToPublish(key, orjson.dumps(message), raw or None, delay_seconds)
        return await publish_event(self.engine, Publisher(self.caller, BASE_URL), event)

    async def reached(self, key: str, **headers: object) -> tuple[list[str], int]:
        """The queues that an event reaches, and how many web hooks."""
        published = await self.publish(key, "hello", None, **headers)
        return [queue.name for queue, _ in published.places], published.delivery_count

    async def subscribe(
        self, pattern: str, queue_name: str | None = None, **members: Any
    ) -> TopicSubscription:
        """A queue; without one a web hook."""
        if queue_name is None:
            members.setdefault("endpoint", WEB_HOOK)
        settings = SubscriptionSettings(
            not members.pop("wants_envelope", False),
            members.pop("delivery_policy", None),
            members.pop("filter_policy", None),
            members.pop("filter_policy_scope", None),
        )
        request = SubscribeToEvents(pattern, queue_name, settings=settings, **members)
        return await subscribe(self.engine, self.caller, request)

    async def unsubscribe(self, pattern: str, subscription: TopicSubscription) -> None:
        """End one."""
        key = str(subscription.subscription_id)
        await unsubscribe(self.engine, self.caller, pattern, key)

    async def of_pattern(self, pattern: str) -> list[TopicSubscription]:
        """The subscriptions to exactly this pattern."""
        page = await list_of_pattern(
            self.engine, self.caller, pattern, after_position=0, limit=1_000
        )
        return page.subscriptions

    async def patterns(self) -> list[str]:
        """Return the stored patterns of every namespace."""
        async with self.engine.database.transaction() as tx:
            rows = await tx.fetch("SELECT topic_name FROM topics WHERE is_pattern ORDER BY 1")
        return [row["topic_name"] for row in rows]
