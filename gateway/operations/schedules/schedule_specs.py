"""Specifications of schedules in our own form (docs/seeds.md 1.4), and their targets.

A specification has an expression in one of four forms, a target, and options for missed times and
failures. It is stored as written, beside the engine's form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from queuegate.gateway.operations.access.authorization import SEND, find_own_queue
from queuegate.gateway.operations.queues import json_messages, priorities, sends
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.schedules.fired_messages import SCHEDULE_HEADER
from queuegate.gateway.operations.schedules.stored_schedules import text_of
from queuegate.protocol import routing_keys
from queuegate.protocol.malformed import Malformed
from queuegate.storage.queue_model import NewMessage
from queuegate.storage.storage_errors import InvalidParameterValue

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.model import Schedule


FORMS = ("cron", "every", "when", "fire_at")
"""Members for the time; a specification has exactly one."""
DEFAULT_TIMEZONE = "UTC"
DEFAULT_CATCHUP_LIMIT = 100
DEFAULT_FAILURE_THRESHOLD = 10
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}").fullmatch


@dataclass(frozen=True, slots=True)
class Expression:
    """The text of one of FORMS, and its timezone."""

    form: str
    text: str
    timezone: str = DEFAULT_TIMEZONE


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """A message for a queue. ``message`` is JSON text, ``headers`` are JSON texts by name.

    ``delay`` in seconds; None: the queue's.
    """

    queue_name: str
    message: bytes
    headers: Mapping[str, bytes]
    delay: int | None = None
    group_id: str | None = None
    deduplication_id: str | None = None


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """An event for subscriptions that match its routing key."""

    routing_key: str
    message: bytes
    headers: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class WorkflowTarget:
    """A reserved kind, refused at present."""


Target = QueueTarget | TopicTarget | WorkflowTarget


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """Options, whose ranges the face checks.

    ``is_active`` None: active when created, unchanged later. ``failure_threshold`` None: failures
    never pause the schedule.
    """

    catchup: bool = False
    catchup_limit: int = DEFAULT_CATCHUP_LIMIT
    failure_threshold: int | None = DEFAULT_FAILURE_THRESHOLD
    is_active: bool | None = None


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """A whole specification."""

    name: str
    expression: Expression
    target: Target
    options: ScheduleOptions = ScheduleOptions()


def check_name(name: str) -> None:
    """Raise InvalidParameterValue unless the name has 1 to 128 letters, digits, `_`, `.` and
    `-`."""
    if _NAME(name) is None:
        raise InvalidParameterValue(
            "The name of a schedule is 1 to 128 letters, digits, underscores, periods and hyphens."
        )


def expression_of(schedule: Schedule) -> Expression:
    """Return the expression as written."""
    form = next(form for form in FORMS if form in schedule.spec)
    return Expression(form, schedule.spec[form], schedule.spec["timezone"])


def options_of(schedule: Schedule) -> ScheduleOptions:
    """Return the present options."""
    return ScheduleOptions(
        schedule.catchup, schedule.catchup_limit, schedule.failure_threshold, schedule.is_active
    )


# Name, type and value, without the name of the schedule.
_SCHEDULE_HEADER_BYTES = 128
Kept = dict[str, Any]
"""A stored target. With ``error``, every invocation fails with this error."""


def queue_target(place: Mapping[str, str], body: str, **more: Any) -> Kept:
    """Return a message for a queue; ``place`` has its account_id, region and queue_name."""
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
    """Return a message for a topic; ``place`` has its account_id, region and topic_name."""
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
    """Return the stored target of the schedule ``name``. Raises InvalidParameterValue, and the
    error of an absent queue."""
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
    sends.checked(engine, queue, message, size)
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
    """Return stored headers, and their size in bytes with the schedule's header."""
    if SCHEDULE_HEADER in headers:
        raise InvalidParameterValue(
            f"The header {SCHEDULE_HEADER} is added when the schedule fires: leave it out."
        )
    attributes, size = json_messages.attributes_of(headers)
    return attributes, size + _SCHEDULE_HEADER_BYTES + len(name)


def message_of(schedule: Schedule) -> bytes:
    """Return the message as written: JSON text."""
    return text_of(schedule).encode()


def headers_of(schedule: Schedule) -> bytes:
    """Return the headers as a JSON object, without the schedule's header."""
    return json_messages.headers_of(schedule.target["attributes"])
