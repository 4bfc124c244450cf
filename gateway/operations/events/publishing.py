"""Publishing an event: copies in queues and deliveries to web hooks, all in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import orjson

from gateway.operations.events.names import checked_key
from gateway.operations.queues import native_messages
from gateway.operations.queues.messages import answered
from gateway.operations.topics import publish_checks
from gateway.operations.topics.fan_out import choose_gently
from gateway.operations.topics.publishing import Published, PublishMessage, check, publish_message
from gateway.operations.topics.subscription_endpoints import WEB
from storage.errors import InvalidParameterValue
from storage.model import Queue

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from gateway.operations.topics.preparing import Publisher
    from gateway.operations.topics.topic_cache import Audience


class Event(NamedTuple):
    """What to publish. ``message`` and the values of ``headers`` are JSON texts."""

    routing_key: str
    message: bytes
    headers: Mapping[str, bytes] | None = None
    delay_seconds: int | None = None
    """Before copies in queues become visible; None: each queue's own. Web hooks do not wait."""


class PublishedEvent(NamedTuple):
    """Where an event went."""

    message_id: str
    places: Sequence[tuple[Queue, int]]
    """One for each copy in a queue: the queue, and the number of the message in it."""
    delivery_count: int
    """Deliveries to web hooks that were written."""


async def publish_event(engine: Engine, publisher: Publisher, event: Event) -> PublishedEvent:
    """Publish to the topic of that name and to all patterns that the key matches; without any of
    them nothing happens. Raises InvalidParameterValue."""
    key = checked_key(event.routing_key)
    request = _request(engine, event)
    caller = publisher.caller
    audience = await engine.topics.event_audience(caller.account_id, caller.region, key)
    if audience.has_filters and not audience.only_queues:
        audience = await _chosen(engine, audience, request)
    published: Published = await answered(publish_message, engine, publisher, audience, request)
    delivery_count = sum([target.protocol in WEB for target in audience.targets])
    return PublishedEvent(published.message_id, published.places, delivery_count)


def _request(engine: Engine, event: Event) -> PublishMessage:
    delay, most_delay = event.delay_seconds, engine.limits.delay_seconds
    if delay is not None and not 0 <= delay <= most_delay:
        raise InvalidParameterValue(f"delay is {delay}; allowed is 0 to {most_delay}.")
    body = native_messages.body_of(event.message)
    attributes, attribute_bytes = native_messages.attributes_of(event.headers)
    size, most = len(body.encode()) + attribute_bytes, publish_checks.MESSAGE_BYTES
    if size > most:
        raise InvalidParameterValue(
            f"The message and its headers have {size} bytes; an event has at most {most}."
        )
    values = None if attributes is None else orjson.loads(attributes)
    return PublishMessage(body, attributes=values, delay_seconds=delay, wants_places=True)


async def _chosen(engine: Engine, audience: Audience, request: PublishMessage) -> Audience:
    """Those whose filters let the message pass, so that it is known how many web hooks get it."""
    targets = tuple(await choose_gently(audience.targets, check(engine, audience, request)))
    only_queues = all(target.queue is not None for target in targets)
    return audience._replace(targets=targets, has_filters=False, only_queues=only_queues)
