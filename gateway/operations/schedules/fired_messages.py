"""Messages of invocations: text, attributes, ids and checks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson

from queuegate.gateway.operations.queues import priorities, sends
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.protocol import arns
from queuegate.protocol.digests import counted_bytes, md5_of_bytes, with_bytes
from queuegate.storage.model import NewOutboxMessage
from queuegate.storage.queue_model import NewMessage
from queuegate.storage.queues.capacity import Addressed, CopyToQueue
from queuegate.storage.queues.messages import row_of
from queuegate.storage.topics.publishing import Copies, Message

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.queue_model import Queue
    from queuegate.storage.schedule_fires import Fire

SCHEDULE_HEADER = "_schedule"
"""Header of a schedule's messages: its name, the time, and manual or not."""

_PLACEHOLDER = "<aws.scheduler."
_FILLED = ("body", "message", "subject", "attributes", "group_id", "deduplication_id")
_DEFAULT_GROUP = "default"
_JSON = "String.json"
_LOCKS = 2
"""Maximum advisory locks of a message for a FIFO queue: group and deduplication id."""


def written(instant: datetime) -> str:
    """Return the time in RFC 3339 and UTC, with a fraction only if there is one."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def filled(fire: Fire) -> Fire:
    """Return the invocation with the placeholders of EventBridge Scheduler filled in, where its
    target allows them (docs/contract/scheduler.md 4.2)."""
    target = fire.target
    if not target.get("substitutes"):
        return fire
    changed = {
        name: _filled(fire, text)
        for name in _FILLED
        if (text := target.get(name)) and _PLACEHOLDER in text
    }
    return fire._replace(target={**target, **changed}) if changed else fire


def _filled(fire: Fire, text: str) -> str:
    group = fire.group_name or _DEFAULT_GROUP
    for name, value in (
        ("schedule-arn", arns.schedule_arn(fire.region, fire.account_id, group, fire.name)),
        ("scheduled-time", written(fire.scheduled_for)),
        ("execution-id", fire.execution_id),
        ("attempt-number", str(fire.attempt)),
    ):
        text = text.replace(f"<aws.scheduler.{name}>", value)
    return text


def text_of(fire: Fire) -> str:
    """Return the text for the target."""
    target = fire.target
    text: str = target["body"] if target["kind"] == "queue" else target["message"]
    return text


def attributes_of(fire: Fire) -> tuple[str | None, int]:
    """Return the stored message attributes and their size in bytes, with the schedule's header if
    the target asks for it (docs/seeds.md 1.4)."""
    kept: str | None = fire.target.get("attributes")
    has_header = fire.target.get("schedule_header")
    if not kept and not has_header:
        return None, 0
    values: dict[str, dict[str, str]] = orjson.loads(kept) if kept else {}
    if has_header:
        values[SCHEDULE_HEADER] = {"DataType": _JSON, "StringValue": _header(fire)}
        kept = orjson.dumps(values).decode()
    return kept, counted_bytes(with_bytes(values))


def _header(fire: Fire) -> str:
    return orjson.dumps(
        {
            "name": fire.name,
            "scheduled_for": written(fire.scheduled_for),
            "out_of_band": fire.out_of_band,
        }
    ).decode()


def message_for(engine: Engine, fire: Fire, queue: Queue) -> Message:
    """Return the message of an invocation for its queue, sent now. Raises a refusal if the queue
    has changed since the schedule was created, and cannot store the message."""
    text = text_of(fire)
    stored, attribute_bytes = attributes_of(fire)
    encoded = sends.utf8_of(text)
    target = fire.target
    system, group_id = target.get("system"), target.get("group_id")
    deduplication_id = None
    if queue.kind.has_groups:
        deduplication_id = target.get("deduplication_id")
        if deduplication_id is None and fire.group_name is None:
            # A deduplication id from the content would make all invocations within five minutes
            # duplicates.
            deduplication_id = own_deduplication_id(fire)
    elif system:
        # The group id is that of the target when the queue was checked.
        group_id = None
    priority, ttl_seconds = priorities.of_stored(stored, engine.limits)
    new = NewMessage(
        text,
        stored,
        system,
        target.get("delay_seconds"),
        group_id,
        deduplication_id,
        md5_of_bytes(encoded),
        priority=priority,
        ttl_seconds=ttl_seconds,
    )
    sends.check(engine, queue, new, len(encoded) + attribute_bytes)
    message_id = new_id()
    instant = engine.clock.of(queue.account_id).instant
    row = row_of(queue, new, message_id, fire.account_id, instant)
    if queue.most_messages is not None:
        copy = CopyToQueue(Addressed(queue, row), must_fit=not target.get("may_wait"))
        ids = frozenset((queue.queue_id,))
        return Message(message_id, None, lambda _: Copies(bounded=[copy]), _LOCKS, ids)
    copies = Copies({queue.kind: [row]})
    return Message(message_id, None, lambda _: copies, _LOCKS if queue.kind.has_groups else 0)


def kept_message(fire: Fire) -> Message:
    """Return the message for a target that cannot be invoked here, for the outbox."""
    target, message_id = fire.target, new_id()
    row = NewOutboxMessage(
        fire.account_id,
        fire.region,
        target["protocol"],
        target["arn"],
        "Invocation",
        None,
        None,
        message_id,
        None,
        text_of(fire),
        None,
    )
    return Message(message_id, None, lambda _: Copies(outbox=[row]))


def own_deduplication_id(fire: Fire) -> str:
    """Return the deduplication id of a schedule and a time, the same in every process."""
    if fire.out_of_band:
        return f"run-{fire.execution_id}"
    return f"schedule-{fire.schedule_id}-{fire.scheduled_for.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"
