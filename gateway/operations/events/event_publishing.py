"""Publishing JSON, as an event or to one topic: all copies and deliveries in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson

from queuegate.gateway.operations.access.authorization import (
    PUBLISH,
    find_audience,
    find_event_audience,
    own_topic,
)
from queuegate.gateway.operations.queues import json_messages
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.gateway.operations.topics.topic_publishing import (
    PublishMessage,
    PublishResult,
    outgoing,
    publish,
)
from queuegate.protocol import routing_keys
from queuegate.protocol.malformed import Malformed
from queuegate.storage.storage_errors import DelayOutOfRange, InvalidParameterValue

if TYPE_CHECKING:
    from queuegate.gateway.operations.queues.json_messages import Values
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.topics.prepared_copies import Publisher
    from queuegate.gateway.operations.topics.topic_cache import Audience


def checked_key(text: str) -> str:
    """Return the routing key if it is valid. Raises InvalidParameterValue."""
    try:
        routing_keys.check_key(text)
    except Malformed as error:
        raise InvalidParameterValue(str(error)) from None
    return text


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
    key = checked_key(event.routing_key)
    delay, most_delay = event.delay_seconds, engine.limits.delay_seconds
    if delay is not None and not 0 <= delay <= most_delay:
        raise DelayOutOfRange(delay, most_delay)
    parts = _parts(event.message, event.headers)
    _check_size(parts, LIMITS.published_bytes, "an event")
    audience = await find_event_audience(engine, publisher.caller, key)
    return await _publish(
        engine, publisher, audience, parts, PublishMessage(None, delay_seconds=delay)
    )


async def publish_to_topic(
    engine: Engine, publisher: Publisher, new: TopicMessage
) -> PublishResult:
    """Publish to the caller's topic of that name. Raises NotFound and InvalidParameterValue."""
    caller = publisher.caller
    parts = _parts(new.message, new.headers)
    audience = await find_audience(engine, caller, PUBLISH, own_topic(caller, new.topic_name))
    _check_size(parts, audience.topic.maximum_message_bytes, "a message of this topic")
    ids = new.group_id, new.deduplication_id
    request = PublishMessage(None, new.subject, None, None, *ids)
    return await _publish(engine, publisher, audience, parts, request)


class _Parts(NamedTuple):
    """The text and the attributes of a message, with the size of each in bytes."""

    text: str
    attributes: Values | None
    text_bytes: int
    attribute_bytes: int


def _parts(message: bytes, headers: Mapping[str, bytes] | None) -> _Parts:
    text = json_messages.body_of(message)
    attributes, attribute_bytes = json_messages.attributes_of(headers)
    values = None if attributes is None else orjson.loads(attributes)
    return _Parts(text, values, len(text.encode()), attribute_bytes)


def _check_size(parts: _Parts, most: int, noun: str) -> None:
    size = parts.text_bytes + parts.attribute_bytes
    if size > most:
        raise InvalidParameterValue(
            f"The message and its headers have {size} bytes; {noun} has at most {most}."
        )


async def _publish(
    engine: Engine,
    publisher: Publisher,
    audience: Audience,
    parts: _Parts,
    request: PublishMessage,
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
