"""Where a schedule of the native API fires: checked as its author wrote it, kept as the engine
of schedules reads it (storage.schedules.schedules).

Whatever would make every firing fail is refused at once: a queue that is not there, a message that
it cannot take, ids that it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.operations.queues import native_messages, native_queues, native_sending
from gateway.operations.queues.native_sending import NativeMessage
from gateway.operations.schedules.fired_messages import SCHEDULE_HEADER
from gateway.operations.schedules.specs import QueueTarget, Target, TopicTarget
from gateway.operations.topics import publishing
from protocol import routing_keys
from protocol.errors import Malformed
from storage.errors import InvalidParameterValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from storage.schedules.schedules import Schedule

# Its name, type and value, beside the name of the schedule.
_SCHEDULE_HEADER_BYTES = 128


async def resolve(engine: Engine, caller: Caller, name: str, target: Target) -> dict[str, Any]:
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


async def _of_queue(
    engine: Engine, caller: Caller, name: str, target: QueueTarget
) -> dict[str, Any]:
    queue = await native_queues.find(engine, caller, target.queue_name)
    attributes, size = _attributes(name, target.headers)
    message = NativeMessage(
        native_messages.body_of(target.message),
        attributes,
        size,
        target.delay,
        target.group_id,
        target.deduplication_id,
    )
    native_sending.check(engine, queue, message)
    return {
        "kind": "queue",
        "account_id": queue.account_id,
        "region": queue.region,
        "queue_name": queue.name,
        "body": message.body,
        "attributes": attributes,
        "group_id": target.group_id,
        "deduplication_id": target.deduplication_id,
        "delay_seconds": target.delay,
        "system": None,
        "substitutes": False,
        "schedule_header": True,
    }


def _of_topic(caller: Caller, name: str, target: TopicTarget) -> dict[str, Any]:
    try:
        routing_keys.check_key(target.routing_key)
    except Malformed as malformed:
        raise InvalidParameterValue(str(malformed)) from None
    attributes, size = _attributes(name, target.headers)
    body = native_messages.body_of(target.message)
    size += len(body.encode())
    most = publishing.MOST_BYTES
    if size > most:
        raise InvalidParameterValue(
            f"The message and its headers have {size} bytes; an event takes {most}."
        )
    return {
        "kind": "topic",
        "account_id": caller.account_id,
        "region": caller.region,
        "topic_name": target.routing_key,
        "message": body,
        "subject": None,
        "attributes": attributes,
        "structure": None,
        "group_id": None,
        "deduplication_id": None,
        "is_event": True,
        "substitutes": False,
        "schedule_header": True,
    }


def _attributes(name: str, headers: Mapping[str, bytes]) -> tuple[str | None, int]:
    """The headers as queues keep them, and the bytes that they and the schedule's own one count."""
    if SCHEDULE_HEADER in headers:
        raise InvalidParameterValue(
            f"The header {SCHEDULE_HEADER} is added when the schedule fires: leave it out."
        )
    attributes, size = native_messages.attributes_of(headers)
    return attributes, size + _SCHEDULE_HEADER_BYTES + len(name)


def message_of(schedule: Schedule) -> bytes:
    """The message as its author wrote it: JSON text."""
    target = schedule.target
    text: str = target["body"] if target["kind"] == "queue" else target["message"]
    return text.encode()


def headers_of(schedule: Schedule) -> bytes:
    """The headers, without the schedule's own: the text of a JSON object."""
    return native_messages.headers_of(schedule.target["attributes"])
