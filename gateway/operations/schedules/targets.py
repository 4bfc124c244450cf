"""Where a schedule fires, as whoever fires it reads it, and how one gets there from what was
written in our own form.

Whatever would make every firing fail is refused at once: a queue that is not there, a message that
it cannot take, ids that it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queuegate.gateway.operations.access import SEND, find_own_queue
from queuegate.gateway.operations.limits import LIMITS
from queuegate.gateway.operations.queues import json_messages, priorities, sending
from queuegate.gateway.operations.schedules.fired_messages import SCHEDULE_HEADER
from queuegate.gateway.operations.schedules.keeping import text_of
from queuegate.gateway.operations.schedules.specs import QueueTarget, Target, TopicTarget
from queuegate.protocol import routing_keys
from queuegate.protocol.errors import Malformed
from queuegate.storage.errors import InvalidParameterValue
from queuegate.storage.model import NewMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.model import Schedule

# Its name, type and value, beside the name of the schedule.
_SCHEDULE_HEADER_BYTES = 128


Kept = dict[str, Any]
"""A target as it is kept beside its schedule. ``error`` in it: every firing fails with that."""


def queue_target(place: Mapping[str, str], body: str, **more: Any) -> Kept:
    """A message for a queue: ``place`` has its account_id, region and queue_name."""
    return {
        "kind": "queue",
        **place,
        "body": body,
        "attributes": None,
        "group_id": None,
        "deduplication_id": None,
        "delay_seconds": None,
        "system": None,
        "substitutes": False,
        "schedule_header": False,
        **more,
    }


def topic_target(place: Mapping[str, str], message: str, **more: Any) -> Kept:
    """A message for a topic: ``place`` has its account_id, region and topic_name."""
    return {
        "kind": "topic",
        **place,
        "message": message,
        "subject": None,
        "attributes": None,
        "structure": None,
        "group_id": None,
        "deduplication_id": None,
        "is_event": False,
        "substitutes": False,
        "schedule_header": False,
        **more,
    }


async def resolve(engine: Engine, caller: Caller, name: str, target: Target) -> Kept:
    """The target of the schedule ``name`` as it is kept. Raises InvalidParameterValue, and the
    refusal of a queue that does not exist."""
    if isinstance(target, QueueTarget):
        return await _of_queue(engine, caller, name, target)
    if isinstance(target, TopicTarget):
        return _of_topic(caller, name, target)
    raise InvalidParameterValue(
        "There are no workflows yet that a schedule could start. The kind of a target is queue or "
        "topic."
    )


async def _of_queue(engine: Engine, caller: Caller, name: str, target: QueueTarget) -> Kept:
    queue = await find_own_queue(engine, caller, SEND, target.queue_name)
    attributes, size = _attributes(name, target.headers)
    priority, ttl_seconds = priorities.of_stored(attributes, engine.limits)
    message = NewMessage(
        json_messages.body_of(target.message),
        attributes,
        delay_seconds=target.delay,
        group_id=target.group_id,
        deduplication_id=target.deduplication_id,
        priority=priority,
        ttl_seconds=ttl_seconds,
    )
    sending.checked(engine, queue, message, size)
    place = {"account_id": queue.account_id, "region": queue.region, "queue_name": queue.name}
    return queue_target(
        place,
        message.body,
        attributes=attributes,
        group_id=target.group_id,
        deduplication_id=target.deduplication_id,
        delay_seconds=target.delay,
        schedule_header=True,
    )


def _of_topic(caller: Caller, name: str, target: TopicTarget) -> Kept:
    try:
        routing_keys.check_key(target.routing_key)
    except Malformed as malformed:
        raise InvalidParameterValue(str(malformed)) from None
    attributes, size = _attributes(name, target.headers)
    body = json_messages.body_of(target.message)
    size += len(body.encode())
    most = LIMITS.published_bytes
    if size > most:
        raise InvalidParameterValue(
            f"The message and its headers have {size} bytes; an event takes {most}."
        )
    place = {
        "account_id": caller.account_id,
        "region": caller.region,
        "topic_name": target.routing_key,
    }
    return topic_target(place, body, attributes=attributes, is_event=True, schedule_header=True)


def _attributes(name: str, headers: Mapping[str, bytes]) -> tuple[str | None, int]:
    """The headers as queues keep them, and the bytes that they and the schedule's own one count."""
    if SCHEDULE_HEADER in headers:
        raise InvalidParameterValue(
            f"The header {SCHEDULE_HEADER} is added when the schedule fires: leave it out."
        )
    attributes, size = json_messages.attributes_of(headers)
    return attributes, size + _SCHEDULE_HEADER_BYTES + len(name)


def message_of(schedule: Schedule) -> bytes:
    """The message as its author wrote it: JSON text."""
    return text_of(schedule).encode()


def headers_of(schedule: Schedule) -> bytes:
    """The headers, without the schedule's own: the text of a JSON object."""
    return json_messages.headers_of(schedule.target["attributes"])
