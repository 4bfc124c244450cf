"""What a group that feeds a queue needs of its gateway: messages of records, and where to wait."""

from __future__ import annotations

import binascii
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import orjson

from queuegate.gateway.operations.identifiers import new_id
from queuegate.gateway.operations.logs.dead_letters import tell_buried
from queuegate.gateway.operations.logs.places import (
    place_of_group,
    place_of_log,
    place_of_partition,
)
from queuegate.gateway.operations.queues import message_attributes
from queuegate.gateway.operations.topics.log_copies import PARTITION_KEY
from queuegate.gateway.operations.waiters import Waiter
from queuegate.protocol import names
from queuegate.protocol.attribute_values import MOST_OF_RAW_COPIES, counted_bytes
from queuegate.storage.model import NewMessage
from queuegate.storage.queues.rows import row_of

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.log_model import Feed, Log
    from queuegate.storage.logs.feeds import Moved, Moving
    from queuegate.storage.model import Queue
    from queuegate.storage.queues.rows import Row

Whole = Literal["group", "log"]

RECORD_ID = "Queuegate.RecordId"
ENCODING = "Queuegate.Encoding"
FAILURE = "Queuegate.Failure"
_OURS = "Queuegate."


def make_row(moving: Moving, queue: Queue) -> Row | str:
    """The message that a record becomes in a queue, or why the queue cannot take it.

    The payload is the body, in base64 where a message could not carry it. Key and id are message
    attributes, and so is what is known of a dead letter, and metadata as far as names, values and
    their number are SQS's. In queues with groups the key is the group, and a record is a duplicate
    of itself only.
    """
    record, feed = moving.record, moving.feed
    if not record.payload:
        return "Messages are not empty."
    attributes = {PARTITION_KEY: moving.key} if moving.key else {}
    if record.record_id is not None:
        attributes[RECORD_ID] = record.record_id
    if record.failure is not None:
        attributes[FAILURE] = record.failure
    try:
        body = record.payload.decode()
    except UnicodeDecodeError:
        body = ""
    if not body or names.invalid_characters(body):
        body = binascii.b2a_base64(record.payload, newline=False).decode()
        attributes[ENCODING] = "base64"
    attributes |= _carried(record.metadata, MOST_OF_RAW_COPIES - len(attributes))
    values = {
        name: {"DataType": "String", "StringValue": text}
        for name, text in attributes.items()
        if not names.invalid_characters(text)
    }
    size = len(body.encode()) + counted_bytes(values)
    if size > queue.maximum_message_size_bytes:
        return f"It has {size} bytes; {queue.maximum_message_size_bytes} are the most."
    group_id = deduplication_id = None
    if queue.kind.has_groups:
        group_id = group_of(moving.key)
        # A log that is made anew under its name has another number.
        log = feed.log
        deduplication_id = f"{log.name}.{log.log_id}.{moving.number}.{record.offset}"
    message = NewMessage(
        body,
        message_attributes.stored(values) if values else None,
        group_id=group_id,
        deduplication_id=deduplication_id,
    )
    return row_of(queue, message, new_id(), feed.log.account_id)


def group_of(key: str) -> str:
    """The message group of a key: the key itself, or its SHA-256 where it is no id of a group."""
    return key if names.is_fifo_id(key) else sha256(key.encode()).hexdigest()


def _carried(metadata: str | None, most: int) -> dict[str, str]:
    """The metadata that message attributes can have."""
    given: dict[str, str] = orjson.loads(metadata) if metadata else {}
    fit = [
        (name, text)
        for name, text in given.items()
        if text and names.attribute_name_fault(name) is None and not name.startswith(_OURS)
    ]
    return dict(fit[:most])


class FeedHints:
    """Waiting for what happens to logs, here and in other processes."""

    def __init__(self, engine: Engine) -> None:
        self._wakeups = engine.wakeups

    def park(self, waiter: Waiter, feed: Feed, where: int | Whole) -> None:
        """Wait for records in a partition, or for what concerns the group or the log."""
        self._wakeups.park(_place(feed, where), waiter)

    def leave(self, waiter: Waiter, feed: Feed, where: int | Whole) -> None:
        """Wait no longer."""
        self._wakeups.leave(_place(feed, where), waiter)


def _place(feed: Feed, where: int | Whole) -> int:
    if where == "group":
        return place_of_group(feed.group.group_id)
    if where == "log":
        return place_of_log(feed.log.log_id)
    return place_of_partition(where)


async def find_queue(engine: Engine, log: Log, name: str) -> Queue | None:
    """The queue of that name beside a log; None: there is none."""
    key = log.account_id, log.region, name
    return (await engine.queues.find_many([key]))[key]


def moved(engine: Engine, feed: Feed, queue: Queue, brought: Moved) -> None:
    """Messages of a feed were committed: wake who waits for them, and count."""
    if brought.count:
        if brought.sent_at is not None:
            engine.standard.lower_marks((queue.queue_id,), brought.sent_at)
        engine.wakeups.arrived(queue.queue_id, brought.count)
        engine.series.copied(queue, brought.count)
        engine.series.groups.of(feed.log, feed.group).fed += brought.count
    if brought.dead:
        tell_buried(engine, brought.dead, brought.buried)
