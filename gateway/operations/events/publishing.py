"""Publishing JSON, as an event or to one topic: all copies and deliveries in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson

from queuegate.gateway.operations.access import (
    PUBLISH,
    find_audience,
    find_event_audience,
    own_topic,
)
from queuegate.gateway.operations.events.names import checked_key
from queuegate.gateway.operations.limits import LIMITS
from queuegate.gateway.operations.queues import json_messages
from queuegate.gateway.operations.replies import answered
from queuegate.gateway.operations.topics.publishing import (
    Published,
    PublishMessage,
    outgoing,
    publish,
)
from queuegate.storage.errors import DelayOutOfRange, InvalidParameterValue

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.gateway.operations.queues.message_attributes import Values
    from queuegate.gateway.operations.topics.preparing import Publisher
    from queuegate.gateway.operations.topics.topic_cache import Audience


class Event(NamedTuple):
    """What to publish. ``message`` and the values of ``headers`` are JSON texts."""

    routing_key: str
    message: bytes
    headers: Mapping[str, bytes] | None = None
    delay_seconds: int | None = None
    """Before copies in queues become visible; None: each queue's own. Web hooks do not wait."""


class TopicMessage(NamedTuple):
    """A message for one topic. ``message`` and the values of ``headers`` are JSON texts."""

    topic_name: str
    message: bytes
    headers: Mapping[str, bytes] | None = None
    subject: str | None = None
    group_id: str | None = None
    deduplication_id: str | None = None


async def publish_event(engine: Engine, publisher: Publisher, event: Event) -> Published:
    """Publish to the topic of that name and to all patterns that the key matches; without any of
    them nothing happens. Raises InvalidParameterValue."""
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


async def publish_to_topic(engine: Engine, publisher: Publisher, new: TopicMessage) -> Published:
    """Publish to the caller's topic of that name. Raises NotFound and InvalidParameterValue."""
    caller = publisher.caller
    parts = _parts(new.message, new.headers)
    audience = await find_audience(engine, caller, PUBLISH, own_topic(caller, new.topic_name))
    _check_size(parts, audience.topic.maximum_message_bytes, "a message of this topic")
    ids = new.group_id, new.deduplication_id
    request = PublishMessage(None, new.subject, None, None, *ids)
    return await _publish(engine, publisher, audience, parts, request)


class _Parts(NamedTuple):
    """The text and the attributes of a message, and the bytes that each counts."""

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
) -> Published:
    message = outgoing(
        engine,
        audience.topic,
        request._replace(message=parts.text, attributes=parts.attributes),
        message_bytes=parts.text_bytes,
        attribute_bytes=parts.attribute_bytes,
    )
    start = partial(publish, wants_places=True)
    published: list[Published] = await answered(start, engine, publisher, audience, [message])
    return published[0]
