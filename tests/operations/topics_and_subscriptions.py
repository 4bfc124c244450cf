"""Topics and subscriptions for tests of publishing, straight from storage."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from queuegate.gateway.faces.aws.sns.sns_publishing import HOT, TopicContext
from queuegate.gateway.operations.topics.fan_out import Publisher
from queuegate.gateway.operations.topics.topic_publishing import PublishMessage, PublishResult
from queuegate.storage.model import Topic, TopicSubscription
from queuegate.storage.topics import stored_topics, subscriptions
from queuegate.storage.topics.stored_topics import NewTopic
from queuegate.storage.topics.subscriptions import NewSubscription
from tests.operations.world import World
from tests.sqs_calls import answered

BASE_URL = "http://gateway.test:9324"


class Sns(World):
    """Common steps of tests of publishing."""

    async def topic(self, name: str = "news", **attributes: str) -> Topic:
        """A new topic; a FIFO one by its name."""
        is_fifo = name.endswith(".fifo")
        if is_fifo:
            attributes = {"FifoTopic": "true", **attributes}
        new = NewTopic(
            self.caller.account_id, self.caller.region, name, is_fifo, attributes, {}, None
        )
        async with self.engine.database.transaction() as tx:
            topic = await stored_topics.create(tx, self.engine.clock.now(), new)
        assert topic is not None
        return topic

    async def subscribe(
        self, topic: Topic, endpoint: str, protocol: str = "sqs", **attributes: str
    ) -> TopicSubscription:
        """A confirmed subscription."""
        new = NewSubscription(
            uuid4(),
            topic.topic_id,
            protocol,
            endpoint,
            self.caller.account_id,
            self.caller.region,
            attributes,
            None,
        )
        async with self.engine.database.transaction() as tx:
            await subscriptions.create(tx, self.engine.clock.now(), new, token_seconds=60)
            made = await subscriptions.find(tx, new.subscription_id)
        assert made is not None
        self.engine.wakeups.topic_changed(topic.topic_id)
        return made

    async def publish(
        self, topic: Topic, message: str | None = "hello", **members: Any
    ) -> PublishResult:
        """Publish one message."""
        trace_header = members.pop("trace_header", None)
        audience = await self.engine.topics.find(topic.account_id, topic.region, topic.name)
        context = TopicContext(
            self.engine, Publisher(self.caller, BASE_URL, trace_header), audience
        )
        request = _members(PublishMessage(message or "", **members)) | {"Message": message}
        published: list[PublishResult] = await answered(HOT["Publish"].start, context, request)
        return published[0]

    async def publish_batch(self, topic: Topic, *messages: PublishMessage) -> list[Any]:
        """Publish a batch."""
        audience = await self.engine.topics.find(topic.account_id, topic.region, topic.name)
        context = TopicContext(self.engine, Publisher(self.caller, BASE_URL), audience)
        entries = [{"Id": str(number), **_members(one)} for number, one in enumerate(messages)]
        request = {"PublishBatchRequestEntries": entries}
        outcomes: list[Any] = await answered(HOT["PublishBatch"].start, context, request)
        return outcomes


def _members(message: PublishMessage) -> dict[str, Any]:
    members = {
        "Message": message.message,
        "Subject": message.subject,
        "MessageStructure": message.structure,
        "MessageAttributes": message.attributes,
        "MessageGroupId": message.group_id,
        "MessageDeduplicationId": message.deduplication_id,
    }
    return {name: value for name, value in members.items() if value is not None}
