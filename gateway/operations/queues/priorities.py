"""Priority and time to live of messages, and their effect on queues."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from queuegate.protocol import names
from queuegate.storage.queues.kinds import prioritised
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    PriorityOutOfRange,
    PriorityUnfit,
    TtlOutOfRange,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.queues.json_messages import Values
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.runtime.limits import Limits
    from queuegate.storage.queue_model import NewMessage, Queue

PRIORITY = "Queuegate.Priority"
TTL = "Queuegate.TTL"
"""The message attributes for both, for producers on the AWS faces. Receivers see them like other
attributes."""
_MARK = "Queuegate."
_WHOLE = re.compile(r"[0-9]{1,9}").fullmatch

Urgency = tuple[int | None, int | None]
"""Priority, and time to live in seconds; None: unlimited."""
NOT_URGENT: Urgency = (None, None)


def check(engine: Engine, queue: Queue, priority: int | None, ttl_seconds: int | None) -> None:
    """Raise PriorityUnfit, PriorityOutOfRange or TtlOutOfRange."""
    most = engine.limits.priority
    if priority is not None and queue.kind.has_groups:
        raise PriorityUnfit(priority, queue.name)
    if priority is not None and not 0 <= priority <= most:
        raise PriorityOutOfRange(f"priority is {priority}; allowed is 0 to {most}.")
    most = engine.limits.ttl_seconds
    if ttl_seconds is not None and not 0 < ttl_seconds <= most:
        raise TtlOutOfRange(f"ttl is {ttl_seconds}; allowed is 1 to {most}.")


def queue_for(queue: Queue, message: NewMessage) -> Queue:
    """Return the queue as of the message's arrival: with priorities, if the message has a priority
    or a time to live. Pass it to ``sends.send``."""
    if not message.priority and message.ttl_seconds is None:
        return queue
    return prioritised(queue)


def of_attributes(values: Values, limits: Limits) -> Urgency:
    """Read priority and time to live from message attributes. Raises InvalidParameterValue with the
    attribute's name for an invalid value."""
    priority, ttl = values.get(PRIORITY), values.get(TTL)
    if priority is None and ttl is None:
        return NOT_URGENT
    return (
        None if priority is None else _number(PRIORITY, priority, 0, limits.priority),
        None if ttl is None else _number(TTL, ttl, 1, limits.ttl_seconds),
    )


def of_stored(stored: str | None, limits: Limits) -> Urgency:
    """Read priority and time to live from stored attributes."""
    if stored is None or _MARK not in stored:
        return NOT_URGENT
    return of_attributes(orjson.loads(stored), limits)


def _number(name: str, value: Mapping[str, Any], least: int, most: int) -> int:
    text = value.get("StringValue") or ""
    is_number = names.base_type(value.get("DataType") or "") == "Number"
    if not is_number or not _WHOLE(text) or not least <= int(text) <= most:
        raise InvalidParameterValue(
            f"Value {text} for message attribute {name} is invalid. Reason: {name} must be a whole "
            f"Number >= {least} and <= {most}."
        )
    return int(text)
