"""Topics as a whole: create, list, read, change, delete (docs/contract/sns.md 3.2, 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.caller import Caller
from queuegate.gateway.operations.topics.live_topics import current_topic, locked_topic
from queuegate.storage.errors import LargeMessagesUnfit, TopicKeepsArchive, Unavailable
from queuegate.storage.model import Topic
from queuegate.storage.topics import topics
from queuegate.storage.topics.subscriptions import takes_large_messages

if TYPE_CHECKING:
    from queuegate.gateway.operations.access import GrantedTopic
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction

_CREATE_ATTEMPTS = 5

_LARGE = ("sqs", "firehose", "lambda", "log")
"""Protocols that take messages of more than 256 KiB: AWS's, and ours."""


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A topic as it is stored; its face has checked it."""

    name: str
    is_fifo: bool
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    data_protection_policy: str | None = None


class Created(NamedTuple):
    """A topic that is new, or was there. ``data_protection_policy``: of one that was there, where
    the request has one."""

    topic: Topic
    is_new: bool
    data_protection_policy: str | None = None


async def create(engine: Engine, caller: Caller, request: CreateTopic) -> Created:
    """The topic of that name. Any number of creators of one name get the same topic; whether one
    that was there is what was wanted is for the caller to say. Raises TopicLimitExceeded."""
    new = topics.NewTopic(
        caller.account_id,
        caller.region,
        request.name,
        request.is_fifo,
        request.attributes,
        request.tags,
        request.data_protection_policy,
    )
    # A topic that is deleted between a refused insert and the look at it is created after all.
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            topic = await topics.find(tx, new.account_id, new.region, new.name)
            if topic is not None:
                policy = None
                if request.data_protection_policy is not None:
                    policy = await topics.data_protection_policy(tx, topic.topic_id)
                return Created(topic, False, policy)
            await engine.quotas.check_room(tx, new.account_id, "topics")
            topic = await topics.create(tx, engine.clock.of(new.account_id).now(), new)
        if topic is not None:
            engine.wakeups.topic_changed(topic.topic_id)
            return Created(topic, True)
    raise Unavailable("The topic is being created and deleted by others.")


async def delete(engine: Engine, caller: Caller, arn: GrantedTopic) -> None:
    """Delete the topic and its subscriptions; nothing happens when there is none.

    From the commit on nothing is published to it. What was published before and waits for a web
    hook is no longer delivered; a worker removes the archive. Raises TopicKeepsArchive.
    """
    async with engine.database.transaction() as tx:
        found = await topics.find(tx, arn.account_id, arn.region, arn.resource)
        topic = None if found is None else await topics.lock(tx, found.topic_id)
        if topic is None:
            return
        if topic.archive_days:
            raise TopicKeepsArchive("The topic archives its messages: stop that first.")
        await topics.delete(tx, topic.topic_id)
    engine.wakeups.topic_changed(topic.topic_id)


async def list_names(engine: Engine, caller: Caller, *, after_name: str, limit: int) -> list[str]:
    """The caller's topics in the caller's region, by name in byte order."""
    async with engine.database.transaction() as tx:
        return await topics.list_names(
            tx, caller.account_id, caller.region, after_name=after_name, limit=limit
        )


class Described(NamedTuple):
    """A topic and what is to be counted of it."""

    topic: Topic
    confirmed_count: int
    pending_count: int
    oldest_archived_at: datetime | None


async def describe(engine: Engine, arn: GrantedTopic) -> Described:
    """Raises NotFound."""
    oldest = None
    async with engine.database.transaction() as tx:
        topic = await current_topic(tx, arn)
        now = engine.clock.of(topic.account_id).now()
        counts = await topics.count_subscriptions(tx, now, topic.topic_id)
        if topic.archive_days:
            oldest = await topics.oldest_archived_at(tx, topic.topic_id)
    return Described(topic, *counts, oldest)


async def change_attributes(
    engine: Engine, caller: Caller, arn: GrantedTopic, change: Callable[[Topic], Mapping[str, str]]
) -> None:
    """Replace the attributes by what ``change`` makes of the topic, which nobody else changes
    meanwhile. Raises NotFound, and what it raises."""
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        attributes = change(topic)
        if attributes == topic.attributes:
            return
        await topics.set_attributes(tx, topic.topic_id, attributes)
        await check_large_messages(engine, tx, await current_topic(tx, arn))
    engine.wakeups.topic_changed(topic.topic_id)


async def check_large_messages(engine: Engine, tx: Transaction, topic: Topic) -> None:
    """Raise LargeMessagesUnfit if the topic, as it is now, has large messages and subscriptions
    that cannot take them (docs/contract/sns.md 3.3). Call with the topic locked."""
    limits = engine.limits
    if topic.maximum_message_bytes <= limits.published_bytes:
        return
    most = limits.subscriptions_of_large_messages
    if not await takes_large_messages(tx, topic.topic_id, _LARGE, most=most):
        raise LargeMessagesUnfit(most)


async def change_tags(
    engine: Engine,
    caller: Caller,
    arn: GrantedTopic,
    change: Callable[[Mapping[str, str]], Mapping[str, str]],
) -> None:
    """The same of its tags."""
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        await topics.set_tags(tx, topic.topic_id, change(topic.tags))
    engine.wakeups.topic_changed(topic.topic_id)


async def set_paused(engine: Engine, arn: GrantedTopic, *, is_paused: bool) -> None:
    """Pause or resume deliveries to the web hooks of all subscriptions. Copies in queues and logs
    go on. Raises NotFound."""
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        now = engine.clock.of(topic.account_id).now()
        await topics.set_paused(tx, now, topic.topic_id, is_paused=is_paused)
    engine.wakeups.topic_changed(topic.topic_id)


async def data_protection_policy(engine: Engine, arn: GrantedTopic) -> str | None:
    """The topic's policy as it was put; None: it has none. Raises NotFound."""
    async with engine.database.transaction() as tx:
        topic = await current_topic(tx, arn)
        return await topics.data_protection_policy(tx, topic.topic_id)


async def set_data_protection_policy(engine: Engine, arn: GrantedTopic, policy: str | None) -> None:
    """Replace the topic's policy. Raises NotFound."""
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        await topics.set_data_protection_policy(tx, topic.topic_id, policy)
