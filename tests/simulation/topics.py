"""The steps of a simulation that are about topics: subscribe, unsubscribe, publish, crash."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from queuegate.gateway.faces.aws.sns import sns_publishing
from queuegate.gateway.operations.access.authorization import GrantedTopic
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics.fan_out import Publisher
from queuegate.gateway.operations.topics.topic_publishing import PublishMessage, publish
from queuegate.gateway.operations.topics.topic_subscriptions import Subscribe, end, subscribe
from queuegate.gateway.operations.topics.topics import find_topic
from queuegate.protocol.arns import parse_topic
from queuegate.storage.queues.messages import dedup_key
from tests.operations.sns_actions import CreateTopic, create_topic
from tests.simulation.model import Impossible, Message, ModelQueue, ModelTopic
from tests.simulation.world import CALLER, World
from tests.sqs_calls import answered

_BASE_URL = "http://simulated.example"
_PUBLISHER = Publisher(CALLER, _BASE_URL)
_SUFFIXES = ("", ".fifo")


class Topics:
    """A standard and a FIFO topic, to which queues are subscribed now and then."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.topics = [ModelTopic(f"news{suffix}", bool(suffix)) for suffix in _SUFFIXES]

    async def make(self, queues: list[ModelQueue]) -> None:
        """In the beginning everybody hears everything."""
        for topic in self.topics:
            attributes = {"FifoTopic": "true"} if topic.is_fifo else {}
            made = await create_topic(
                self.world.engines[0], CALLER, CreateTopic(topic.name, attributes)
            )
            topic.arn = made.arn
            for queue in queues:
                if topic.is_fifo or not queue.is_fifo:
                    await self._subscribe(self.world.engines[0], topic, queue, None)

    async def subscribe(self, engine: Engine, queue: ModelQueue) -> str:
        """Subscribe the queue to a topic that takes it; maybe to one kind of message."""
        topic = self.random.choice([t for t in self.topics if t.is_fifo or not queue.is_fifo])
        if queue in topic.subscribers:
            return "already"
        wanted = self.random.choice((None, None, "a", "b"))
        await self._subscribe(engine, topic, queue, wanted)
        return f"{topic.name} {wanted}"

    async def _subscribe(
        self, engine: Engine, topic: ModelTopic, queue: ModelQueue, wanted: str | None
    ) -> None:
        arn = (await self.world.queue(engine, queue.name)).arn
        attributes = {"RawMessageDelivery": "true"}
        if wanted:
            attributes["FilterPolicy"] = f'{{"kind":["{wanted}"]}}'
        stored = await find_topic(engine, GrantedTopic(parse_topic(topic.arn)))
        request = Subscribe("sqs", arn, attributes, lambda _: True)
        topic.arns[queue] = (await subscribe(engine, CALLER, stored, request)).arn
        topic.subscribers[queue] = wanted
        self.world.notify_others()

    async def unsubscribe(self, engine: Engine) -> str:
        topic = self.random.choice(self.topics)
        if not topic.subscribers:
            return "nobody"
        queue = self.random.choice([*topic.subscribers])
        await end(engine, CALLER, topic.arns.pop(queue), base_url=_BASE_URL)
        del topic.subscribers[queue]
        self.world.notify_others()
        return f"{topic.name} {queue.name}"

    async def publish(self, engine: Engine, body: str) -> str:
        one = _Publish(self, body)
        [published] = await answered(*await one.call(engine))
        original = one.topic.original(one.deduplication, self.world.clock.instant_now)
        if original is None:
            await one.took_place(published.message_id)
        elif original != published.message_id:
            raise Impossible(f"{body} is a duplicate of {original}")
        return f"{one}"

    async def publish_and_crash(self, engine: Engine, body: str, turns: int) -> str:
        """Afterwards all copies are there, or none."""
        one = _Publish(self, body)
        original = one.topic.original(one.deduplication, self.world.clock.instant_now)
        answer = await self.world.crash_during(turns, answered(*await one.call(engine)))
        message_id = await one.message_id_there(original)
        if isinstance(answer, list) and original is None and message_id is None:
            raise Impossible(f"{body} was acknowledged and is lost")
        if message_id is not None:
            await one.took_place(message_id)
        return f"{one} after {turns}: {answer}, {message_id}"


class _Publish:
    """One message, and what it should become."""

    def __init__(self, topics: Topics, body: str) -> None:
        random = topics.random
        self.world = topics.world
        self.topic = topic = random.choice(topics.topics)
        self.body = body
        self.kind = random.choice("ab")
        self.group = random.choice("abc") if topic.is_fifo else None
        some = (body, str(random.randint(1, 40)))
        self.deduplication = random.choice(some) if topic.is_fifo else None

    def __str__(self) -> str:
        names = [queue.name for queue in self.topic.subscribers]
        shown = (self.topic.name, self.body, self.kind, self.group, self.deduplication)
        return f"{shown} to {names}"

    async def call(self, engine: Engine) -> tuple[Callable[..., Any], *tuple[Any, ...]]:
        audience = await engine.topics.find(CALLER.account_id, CALLER.region, self.topic.name)
        attributes = {"kind": {"DataType": "String", "StringValue": self.kind}}
        request = PublishMessage(
            self.body,
            attributes=attributes,
            group_id=self.group,
            deduplication_id=self.deduplication,
        )
        message = sns_publishing.check(engine, audience.topic, request)
        return publish, engine, _PUBLISHER, audience, [message]

    def queues(self) -> list[ModelQueue]:
        """Those that get a copy: a FIFO queue folds what it takes for a duplicate."""
        now = self.world.clock.instant_now
        return [
            queue
            for queue, wanted in self.topic.subscribers.items()
            if wanted in (None, self.kind)
            and not (
                queue.is_fifo
                and self.deduplication is not None
                and queue.original(self.deduplication, now)
            )
        ]

    async def took_place(self, message_id: str) -> None:
        """It was published with this id: the model's queues get it, and so must the real ones."""
        now = self.world.clock.instant_now
        for queue in self.queues():
            there = await self._there(queue)
            if self.body not in there:
                raise Impossible(f"{self.body} did not reach {queue.name}")
            visible_at = now + timedelta(seconds=queue.delay_seconds)
            group = self.group if queue.is_fifo else None
            copy = Message(self.body, there[self.body], visible_at, now, group)
            queue.send(copy, self.deduplication if queue.is_fifo else None)
        if self.deduplication is not None:
            self.topic.accepted[self.deduplication] = (now, message_id)

    async def message_id_there(self, original: str | None) -> str | None:
        """The id with which it was published; None when it was not, or is a duplicate.

        A standard topic keeps none: any copy will do.
        """
        if self.deduplication is not None:
            key = dedup_key(None, self.deduplication)
            found = await self.world.published(self.topic.name, key)
            return None if found == original else found
        found = None
        for queue in self.queues():
            found = found or (await self._there(queue)).get(self.body)
        return found if found or self.queues() else self.body

    async def _there(self, queue: ModelQueue) -> dict[str, str]:
        real = await self.world.queue(self.world.engines[0], queue.name)
        return await self.world.bodies(real)
