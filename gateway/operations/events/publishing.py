"""Publishing an event: copies in queues and deliveries to web hooks, all in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson

from gateway.operations.access import find_event_audience
from gateway.operations.events.names import checked_key
from gateway.operations.limits import LIMITS
from gateway.operations.queues import json_messages
from gateway.operations.replies import answered
from gateway.operations.topics.publishing import (
    Published,
    PublishMessage,
    outgoing,
    publish,
)
from storage.errors import DelayOutOfRange, InvalidParameterValue

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from gateway.operations.topics.preparing import Publisher


class Event(NamedTuple):
    """What to publish. ``message`` and the values of ``headers`` are JSON texts."""

    routing_key: str
    message: bytes
    headers: Mapping[str, bytes] | None = None
    delay_seconds: int | None = None
    """Before copies in queues become visible; None: each queue's own. Web hooks do not wait."""


async def publish_event(engine: Engine, publisher: Publisher, event: Event) -> Published:
    """Publish to the topic of that name and to all patterns that the key matches; without any of
    them nothing happens. Raises InvalidParameterValue."""
    key = checked_key(event.routing_key)
    delay, most_delay = event.delay_seconds, engine.limits.delay_seconds
    if delay is not None and not 0 <= delay <= most_delay:
        raise DelayOutOfRange(delay, most_delay)
    body = json_messages.body_of(event.message)
    attributes, attribute_bytes = json_messages.attributes_of(event.headers)
    message_bytes = len(body.encode())
    if message_bytes + attribute_bytes > LIMITS.published_bytes:
        raise InvalidParameterValue(
            f"The message and its headers have {message_bytes + attribute_bytes} bytes; an event "
            f"has at most {LIMITS.published_bytes}."
        )
    values = None if attributes is None else orjson.loads(attributes)
    caller = publisher.caller
    audience = await find_event_audience(engine, caller, key)
    message = outgoing(
        engine,
        audience.topic,
        PublishMessage(body, attributes=values, delay_seconds=delay),
        message_bytes=message_bytes,
        attribute_bytes=attribute_bytes,
    )
    start = partial(publish, wants_places=True)
    published: list[Published] = await answered(start, engine, publisher, audience, [message])
    return published[0]
