"""Events: publish JSON under a routing key or to one topic, and subscribe queues, logs and web
hooks to patterns of routing keys, confirmed at once.

A pattern that is a valid name of a standard topic is that topic: messages that are published to
either reach the subscriptions of both APIs. SNS does not see other patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson

from queuegate.gateway.operations.access.authorization import (
    PUBLISH,
    PUBLISH_RECORDS,
    SEND,
    find_audience,
    find_event_audience,
    find_log,
    find_own_queue,
    own_topic,
)
from queuegate.gateway.operations.queues import json_messages
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.gateway.operations.topics.topic_cache import (
    Audience,
    SubscriptionSettings,
    check_web_hook,
    checked,
)
from queuegate.gateway.operations.topics.topic_publishing import (
    PublishMessage,
    PublishResult,
    outgoing,
    publish,
)
from queuegate.gateway.operations.topics.topic_subscriptions import (
    Subscribe,
    SubscriptionPage,
    find_or_create,
    list_of_topic,
    missing_subscription,
)
from queuegate.protocol import arns, names, routing_keys
from queuegate.protocol.malformed import Malformed, refusing
from queuegate.protocol.urls import WEB
from queuegate.storage.notifications import namespace_number
from queuegate.storage.storage_errors import (
    DelayOutOfRange,
    InvalidParameterValue,
    OverLimit,
    Unavailable,
)
from queuegate.storage.topics import stored_topics, subscriptions

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.queues.json_messages import Values
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.topics.fan_out import Publisher
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import Topic, TopicSubscription


def checked_pattern(text: str) -> str:
    """Return the pattern if it is valid. Raises InvalidParameterValue."""
    with refusing(InvalidParameterValue):
        routing_keys.check_pattern(text)
    return text


def is_topic(pattern: str) -> bool:
    return names.is_standard_topic_name(pattern)


_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class SubscribeToEvents:
    """A request for a subscription of either a queue, a log or the URL of a web hook. ``protocol``
    is optional, for URLs. ``dead_letter_queue`` gets messages that a web hook has refused in all
    attempts, or that a queue or a log cannot store."""

    pattern: str
    queue_name: str | None = None
    log_name: str | None = None
    protocol: str | None = None
    endpoint: str | None = None
    settings: SubscriptionSettings = field(
        default_factory=lambda: SubscriptionSettings(is_raw=True)
    )
    dead_letter_queue: str | None = None


async def subscribe(
    engine: Engine, caller: Caller, request: SubscribeToEvents
) -> TopicSubscription:
    """Return the subscription of that endpoint to the pattern, created if there is none. It needs
    no confirmation.

    A topic is created if the pattern is a topic's name. Raises InvalidParameterValue,
    SettingRefused, WebHookRefused, AuthorizationError, QueueDoesNotExist, LogDoesNotExist,
    SubscriptionExists if the subscription has other settings, and errors of limits.
    """
    pattern = checked_pattern(request.pattern)
    protocol, endpoint = await _endpoint(engine, caller, request)
    settings = request.settings
    if request.dead_letter_queue is not None:
        queue = await find_own_queue(engine, caller, SEND, request.dead_letter_queue)
        policy = orjson.dumps({"deadLetterTargetArn": queue.arn}).decode()
        settings = settings._replace(redrive_policy=policy)
    if protocol in WEB:
        check_web_hook(protocol, endpoint, allow_private=engine.rules.private_webhooks)
    settings = checked(settings, protocol)

    def fits(existing: TopicSubscription) -> bool:
        # Either API may have created a queue's subscription. A web hook's retries depend on the
        # API.
        if not existing.is_confirmed or (protocol in WEB and not existing.gets_events):
            return False
        return settings.meaning() == SubscriptionSettings.of(existing.attributes).meaning()

    new = Subscribe(protocol, endpoint, settings.stored(), fits, gets_events=True)
    # Retry if the topic or pattern is deleted before its lock is taken.
    for _ in range(_ATTEMPTS):
        async with engine.database.transaction() as tx:
            topic = await _locked_topic(engine, caller, tx, pattern)
            if topic is not None:
                subscription = await find_or_create(engine, caller, tx, topic, new)
        if topic is not None:
            engine.wakeups.topic_changed(topic.topic_id)
            if subscription.is_pattern:
                engine.wakeups.topic_changed(namespace_number(topic.account_id, topic.region))
            return subscription
    raise Unavailable("The topic is being created and deleted by others.")


async def _endpoint(engine: Engine, caller: Caller, request: SubscribeToEvents) -> tuple[str, str]:
    """Return (protocol, endpoint) in SNS's form."""
    if request.log_name is not None:
        if (request.queue_name, request.endpoint, request.protocol) != (None, None, None):
            raise InvalidParameterValue("log_name is all that says where to.")
        log = await find_log(engine, caller, PUBLISH_RECORDS, request.log_name)
        return "log", log.arn
    if (request.queue_name is None) == (request.endpoint is None):
        raise InvalidParameterValue("Say either queue_name or endpoint.")
    if request.endpoint is not None:
        protocol = request.protocol or request.endpoint.partition(":")[0]
        if protocol not in WEB:
            raise InvalidParameterValue("endpoint is a URL that begins with http:// or https://.")
        return protocol, request.endpoint
    if request.protocol is not None:
        raise InvalidParameterValue("protocol goes with endpoint; a queue has none.")
    assert request.queue_name is not None
    queue = await find_own_queue(engine, caller, SEND, request.queue_name)
    if queue.kind.has_groups:
        raise InvalidParameterValue(
            f"'{queue.name}' is a {queue.kind.order} queue. Events have no order: subscribe a "
            "standard queue."
        )
    return "sqs", queue.arn


async def _locked_topic(
    engine: Engine, caller: Caller, tx: Transaction, pattern: str
) -> Topic | None:
    """Lock and return the topic that has the pattern's subscriptions, created if there is none;
    None: retry."""
    topic = await _find_topic(tx, caller, pattern)
    if topic is None:
        place = (caller.account_id, caller.region)
        is_pattern = not is_topic(pattern)
        if is_pattern:
            most = engine.limits.event_patterns
            if await stored_topics.count_patterns(tx, *place, limit=most) >= most:
                raise OverLimit(f"There can be subscriptions to {most} patterns.")
        else:
            await engine.quotas.check_room(tx, caller.account_id, "topics")
        new = stored_topics.NewTopic(*place, pattern, False, {}, {}, None, is_pattern)
        topic = await stored_topics.create(tx, engine.clock.of(caller.account_id).now(), new)
    return None if topic is None else await stored_topics.lock(tx, topic.topic_id)


async def _find_topic(tx: Transaction, caller: Caller, pattern: str) -> Topic | None:
    find = stored_topics.find if is_topic(pattern) else stored_topics.find_pattern
    return await find(tx, caller.account_id, caller.region, pattern)


async def list_of_pattern(
    engine: Engine, caller: Caller, pattern: str, *, after_position: int, limit: int
) -> SubscriptionPage:
    """Return a page of the subscriptions to exactly this pattern. Raises InvalidParameterValue."""
    checked_pattern(pattern)
    async with engine.database.transaction() as tx:
        topic = await _find_topic(tx, caller, pattern)
    if topic is None:
        return SubscriptionPage([], None)
    return await list_of_topic(engine, topic, after_position=after_position, limit=limit)


async def unsubscribe(engine: Engine, caller: Caller, pattern: str, subscription_id: str) -> None:
    """Remove the subscription of that id to exactly this pattern. Raises InvalidParameterValue, and
    NotFound when there is none."""
    async with engine.database.transaction() as tx:
        found = await _locked_subscription(engine, caller, tx, pattern, subscription_id)
        await subscriptions.delete(tx, found)
    engine.wakeups.topic_changed(found.topic_id)


async def set_paused(
    engine: Engine, caller: Caller, pattern: str, subscription_id: str, *, is_paused: bool
) -> None:
    """Pause or resume deliveries to the web hook of that subscription to exactly this pattern.
    Raises InvalidParameterValue, also for a subscription without a web hook, and NotFound."""
    async with engine.database.transaction() as tx:
        found = await _locked_subscription(engine, caller, tx, pattern, subscription_id)
        if found.protocol not in WEB:
            raise InvalidParameterValue(
                "Only subscriptions of web hooks have deliveries that can wait. Pause the queue "
                "instead."
            )
        now = engine.clock.of(caller.account_id).now()
        await subscriptions.set_paused(tx, now, found, is_paused=is_paused)
    engine.wakeups.topic_changed(found.topic_id)


async def _locked_subscription(
    engine: Engine, caller: Caller, tx: Transaction, pattern: str, subscription_id: str
) -> TopicSubscription:
    """Return the locked subscription and its topic. Raises InvalidParameterValue and NotFound."""
    checked_pattern(pattern)
    with refusing(missing_subscription()):
        key = arns.subscription_id(subscription_id)
    topic = await _find_topic(tx, caller, pattern)
    if topic is not None:
        topic = await stored_topics.lock(tx, topic.topic_id)
    now = engine.clock.of(caller.account_id).now()
    found = None if topic is None else await subscriptions.find(tx, key, now)
    if topic is None or found is None or found.topic_id != topic.topic_id:
        raise missing_subscription()
    return found


class EventToPublish(NamedTuple):
    """An event. ``message`` and the values of ``headers`` are JSON texts."""

    routing_key: str
    message: bytes
    headers: Mapping[str, bytes] | None = None
    delay_seconds: int | None = None
    """Delay of copies in queues; None: each queue's own delay. Web hooks have no delay."""


class TopicMessage(NamedTuple):
    """A message for one topic. ``message`` and the values of ``headers`` are JSON texts."""

    topic_name: str
    message: bytes
    headers: Mapping[str, bytes] | None = None
    subject: str | None = None
    group_id: str | None = None
    deduplication_id: str | None = None


async def publish_event(
    engine: Engine, publisher: Publisher, event: EventToPublish
) -> PublishResult:
    """Publish to the topic of that name and to all patterns that match the key; without any,
    publish nothing. Raises InvalidParameterValue."""
    key = event.routing_key
    try:
        routing_keys.check_key(key)
    except Malformed as error:
        raise InvalidParameterValue(str(error)) from None
    delay, most_delay = event.delay_seconds, engine.limits.delay_seconds
    if delay is not None and not 0 <= delay <= most_delay:
        raise DelayOutOfRange(delay, most_delay)
    parts = parts_of(event.message, event.headers)
    check_size(parts, LIMITS.published_bytes, "an event")
    audience = await find_event_audience(engine, publisher.caller, key)
    return await _publish(
        engine, publisher, audience, parts, PublishMessage(None, delay_seconds=delay)
    )


async def publish_to_topic(
    engine: Engine, publisher: Publisher, new: TopicMessage
) -> PublishResult:
    """Publish to the caller's topic of that name. Raises NotFound and InvalidParameterValue."""
    caller = publisher.caller
    parts = parts_of(new.message, new.headers)
    audience = await find_audience(engine, caller, PUBLISH, own_topic(caller, new.topic_name))
    check_size(parts, audience.topic.maximum_message_bytes, "a message of this topic")
    ids = new.group_id, new.deduplication_id
    request = PublishMessage(None, new.subject, None, None, *ids)
    return await _publish(engine, publisher, audience, parts, request)


class _Parts(NamedTuple):
    """The text and the attributes of a message, with the size of each in bytes."""

    text: str
    attributes: Values | None
    text_bytes: int
    attribute_bytes: int


def parts_of(message: bytes, headers: Mapping[str, bytes] | None) -> _Parts:
    text = json_messages.body_of(message)
    attributes, attribute_bytes = json_messages.attributes_of(headers)
    values = None if attributes is None else orjson.loads(attributes)
    return _Parts(text, values, len(text.encode()), attribute_bytes)


def check_size(parts: _Parts, most: int, noun: str) -> None:
    size = parts.text_bytes + parts.attribute_bytes
    if size > most:
        raise InvalidParameterValue(
            f"The message and its headers have {size} bytes; {noun} has at most {most}."
        )


async def _publish(
    engine: Engine, publisher: Publisher, audience: Audience, parts: _Parts, request: PublishMessage
) -> PublishResult:
    message = outgoing(
        engine,
        audience.topic,
        request._replace(message=parts.text, attributes=parts.attributes),
        message_bytes=parts.text_bytes,
        attribute_bytes=parts.attribute_bytes,
    )
    start = partial(publish, wants_places=True)
    published: list[PublishResult] = await answered(start, engine, publisher, audience, [message])
    return published[0]
