"""Topics: create, find, list, count, change, pause and delete them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.access.caller import Caller
from queuegate.protocol.urls import WEB
from queuegate.storage.model import Topic
from queuegate.storage.storage_errors import (
    LargeMessagesUnfit,
    NotFound,
    TopicKeepsArchive,
    Unavailable,
)
from queuegate.storage.topics import stored_topics, web_hook_deliveries
from queuegate.storage.topics.subscriptions import takes_large_messages
from queuegate.storage.topics.web_hook_deliveries import FIRST_DELIVERY, DeliveryPlace

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.authorization import GrantedTopic
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.topics.topic_cache import Audience
    from queuegate.storage.database import Transaction


async def find_topic(engine: Engine, arn: GrantedTopic) -> Topic:
    """Return the topic of any owner, as it is now. Raises NotFound."""
    async with engine.database.transaction() as tx:
        return await current_topic(tx, arn)


async def current_topic(tx: Transaction, arn: GrantedTopic) -> Topic:
    """Return the topic as it is now. Raises NotFound."""
    topic = await stored_topics.find(tx, arn.account_id, arn.region, arn.resource)
    if topic is None:
        raise missing_topic()
    return topic


async def locked_topic(tx: Transaction, arn: GrantedTopic) -> Topic:
    """Lock and return the topic. Raises NotFound."""
    topic = await stored_topics.lock(tx, (await current_topic(tx, arn)).topic_id)
    if topic is None:
        raise missing_topic()
    return topic


def missing_topic() -> NotFound:
    return NotFound("Topic does not exist")


_CREATE_ATTEMPTS = 5
_LARGE = ("sqs", "firehose", "lambda", "log")
"""Protocols that accept messages of more than 256 KiB: AWS's, and ours."""


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A checked request for a topic, in stored form."""

    name: str
    is_fifo: bool
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    data_protection_policy: str | None = None


class CreatedTopic(NamedTuple):
    """A topic, new or existing. ``data_protection_policy`` is that of an existing topic, if the
    request has one."""

    topic: Topic
    is_new: bool
    data_protection_policy: str | None = None


async def create(engine: Engine, caller: Caller, request: CreateTopic) -> CreatedTopic:
    """Return the topic of that name, created if there is none. Concurrent creators get the same
    topic. The caller compares an existing topic with the request. Raises TopicLimitExceeded."""
    new = stored_topics.NewTopic(
        caller.account_id,
        caller.region,
        request.name,
        request.is_fifo,
        request.attributes,
        request.tags,
        request.data_protection_policy,
    )
    # Retry if the existing topic is deleted before it is read.
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            topic = await stored_topics.find(tx, new.account_id, new.region, new.name)
            if topic is not None:
                policy = None
                if request.data_protection_policy is not None:
                    policy = await stored_topics.data_protection_policy(tx, topic.topic_id)
                return CreatedTopic(topic, False, policy)
            await engine.quotas.check_room(tx, new.account_id, "topics")
            topic = await stored_topics.create(tx, engine.clock.of(new.account_id).now(), new)
        if topic is not None:
            engine.wakeups.topic_changed(topic.topic_id)
            return CreatedTopic(topic, True)
    raise Unavailable("The topic is being created and deleted by others.")


async def delete(engine: Engine, caller: Caller, arn: GrantedTopic) -> None:
    """Delete the topic and its subscriptions, if there is one. From the commit on, nothing can be
    published to it. Pending deliveries to web hooks are not delivered; a worker deletes the
    archive. Raises TopicKeepsArchive."""
    async with engine.database.transaction() as tx:
        found = await stored_topics.find(tx, arn.account_id, arn.region, arn.resource)
        topic = None if found is None else await stored_topics.lock(tx, found.topic_id)
        if topic is None:
            return
        if topic.archive_days:
            raise TopicKeepsArchive("The topic archives its messages: stop that first.")
        await stored_topics.delete(tx, topic.topic_id)
    engine.wakeups.topic_changed(topic.topic_id)


async def list_names(engine: Engine, caller: Caller, *, after_name: str, limit: int) -> list[str]:
    """Return the caller's topics in the caller's region, by name in byte order."""
    async with engine.database.transaction() as tx:
        return await stored_topics.list_names(
            tx, caller.account_id, caller.region, after_name=after_name, limit=limit
        )


class DescribedTopic(NamedTuple):
    """A topic with its counts of subscriptions."""

    topic: Topic
    confirmed_count: int
    pending_count: int
    oldest_archived_at: datetime | None


async def describe(engine: Engine, arn: GrantedTopic) -> DescribedTopic:
    """Return the topic with its counts. Raises NotFound."""
    oldest = None
    async with engine.database.transaction() as tx:
        topic = await current_topic(tx, arn)
        now = engine.clock.of(topic.account_id).now()
        counts = await stored_topics.count_subscriptions(tx, now, topic.topic_id)
        if topic.archive_days:
            oldest = await stored_topics.oldest_archived_at(tx, topic.topic_id)
    return DescribedTopic(topic, *counts, oldest)


async def change_attributes(
    engine: Engine, caller: Caller, arn: GrantedTopic, change: Callable[[Topic], Mapping[str, str]]
) -> None:
    """Replace the attributes by the result of ``change``, while nobody else changes the topic.
    Raises NotFound, and errors of ``change``."""
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        attributes = change(topic)
        if attributes == topic.attributes:
            return
        await stored_topics.set_attributes(tx, topic.topic_id, attributes)
        await check_large_messages(engine, tx, await current_topic(tx, arn))
    engine.wakeups.topic_changed(topic.topic_id)


async def check_large_messages(engine: Engine, tx: Transaction, topic: Topic) -> None:
    """Raise LargeMessagesUnfit if the topic has large messages and subscriptions that cannot store
    them (docs/contract/sns.md 3.3). Call with the topic locked."""
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
    """Replace the tags by the result of ``change``, while nobody else changes the topic."""
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        await stored_topics.set_tags(tx, topic.topic_id, change(topic.tags))
    engine.wakeups.topic_changed(topic.topic_id)


async def set_paused(engine: Engine, arn: GrantedTopic, *, is_paused: bool) -> None:
    """Pause or resume deliveries to the web hooks of all subscriptions. Copies for queues and logs
    continue. Raises NotFound."""
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        now = engine.clock.of(topic.account_id).now()
        await stored_topics.set_paused(tx, now, topic.topic_id, is_paused=is_paused)
    engine.wakeups.topic_changed(topic.topic_id)


DELIVERY_PLACE = r"^[0-9]{1,16}(\.[0-9]{1,18}){2}$"
"""Microseconds of the last pending delivery, its id, and that of the last exhausted one."""
_MICROSECOND = timedelta(microseconds=1)


async def list_deliveries(
    engine: Engine, audience: Audience, after: str | None, *, limit: int
) -> tuple[list[web_hook_deliveries.StoredDelivery], str | None]:
    """Return deliveries of the topic to web hooks behind a place, pending ones by due time first,
    and the place to continue behind; None: that was all."""
    place = FIRST_DELIVERY
    if after is not None:
        due, pending_id, exhausted_id = map(int, after.split("."))
        place = DeliveryPlace(place.due_at + due * _MICROSECOND, pending_id, exhausted_id)
    hooks = [one.subscription_id for one in audience.targets if one.protocol in WEB]
    async with engine.database.transaction() as tx:
        found, following = await web_hook_deliveries.list_of_topic(
            tx, audience.topic, hooks, place, limit=limit
        )
    if following is None:
        return found, None
    due = (following.due_at - FIRST_DELIVERY.due_at) // _MICROSECOND
    return found, f"{due}.{following.pending_id}.{following.exhausted_id}"


async def redrive_deliveries(
    engine: Engine, arn: GrantedTopic, ids: Sequence[int] | None, *, limit: int
) -> int:
    """Start exhausted deliveries of the topic again, or those of these ids. Returns their number,
    at most ``limit``. Raises NotFound."""
    async with engine.database.transaction() as tx:
        topic = await current_topic(tx, arn)
        now = engine.clock.of(topic.account_id).now()
        place = topic.account_id, topic.region, topic.name
        found = await web_hook_deliveries.redrive(tx, now, ids, after=0, topic=place, limit=limit)
    return len(found)


async def data_protection_policy(engine: Engine, arn: GrantedTopic) -> str | None:
    """Return the topic's data protection policy; None: there is none. Raises NotFound."""
    async with engine.database.transaction() as tx:
        topic = await current_topic(tx, arn)
        return await stored_topics.data_protection_policy(tx, topic.topic_id)


async def set_data_protection_policy(engine: Engine, arn: GrantedTopic, policy: str | None) -> None:
    """Replace the topic's data protection policy. Raises NotFound."""
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        await stored_topics.set_data_protection_policy(tx, topic.topic_id, policy)
