"""Feeds from logs to queues, as the worker uses them: records as messages, waiters, and effects of
a commit."""

from __future__ import annotations

import binascii
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import orjson

from queuegate.gateway.operations.logs.log_records import notify_dead_lettered
from queuegate.gateway.operations.queues import json_messages
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.gateway.operations.runtime.wakeups import (
    ParkedReceive,
    place_of_group,
    place_of_log,
    place_of_partition,
)
from queuegate.gateway.operations.topics.fan_out import PARTITION_KEY
from queuegate.protocol import names
from queuegate.protocol.digests import MOST_OF_RAW_COPIES, counted_bytes
from queuegate.storage.queue_model import NewMessage, Queue, Row
from queuegate.storage.queues.messages import row_of

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.logs.feeds import Moved, Moving
    from queuegate.storage.model import Feed, StoredLog

Whole = Literal["group", "log"]

RECORD_ID = "Queuegate.RecordId"
ENCODING = "Queuegate.Encoding"
FAILURE = "Queuegate.Failure"
_OURS = "Queuegate."


def make_row(moving: Moving, queue: Queue) -> Row | str:
    """Return the message of a record, or the reason why the queue cannot store it. The payload is
    the body, in base64 if a message cannot carry it. Key, id, dead-letter details and metadata are
    message attributes, metadata as far as SQS allows their names, values and number. In queues with
    groups, the key is the message group, and the deduplication id is unique for each record."""
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
        # A recreated log of that name has another number.
        log = feed.log
        deduplication_id = f"{log.name}.{log.log_id}.{moving.number}.{record.offset}"
    message = NewMessage(
        body,
        json_messages.stored(values) if values else None,
        group_id=group_id,
        deduplication_id=deduplication_id,
    )
    return row_of(queue, message, new_id(), feed.log.account_id)


def group_of(key: str) -> str:
    """Return the message group of a key: the key, or its SHA-256 if the key is not a valid group
    id."""
    return key if names.is_fifo_id(key) else sha256(key.encode()).hexdigest()


def _carried(metadata: str | None, most: int) -> dict[str, str]:
    """Return the metadata that message attributes can have."""
    given: dict[str, str] = orjson.loads(metadata) if metadata else {}
    fit = [
        (name, text)
        for name, text in given.items()
        if text and names.attribute_name_fault(name) is None and not name.startswith(_OURS)
    ]
    return dict(fit[:most])


class FeedHints:
    """Waiters for changes of logs, in this process and others."""

    def __init__(self, engine: Engine) -> None:
        self._wakeups = engine.wakeups

    def park(self, waiter: ParkedReceive, feed: Feed, where: int | Whole) -> None:
        self._wakeups.park(_place(feed, where), waiter)

    def leave(self, waiter: ParkedReceive, feed: Feed, where: int | Whole) -> None:
        self._wakeups.leave(_place(feed, where), waiter)


def _place(feed: Feed, where: int | Whole) -> int:
    if where == "group":
        return place_of_group(feed.group.group_id)
    if where == "log":
        return place_of_log(feed.log.log_id)
    return place_of_partition(where)


async def find_queue(engine: Engine, log: StoredLog, name: str) -> Queue | None:
    """Return the queue of that name in the log's account and region; None: there is none."""
    key = log.account_id, log.region, name
    return (await engine.queues.find_many([key]))[key]


def moved(engine: Engine, feed: Feed, queue: Queue, brought: Moved) -> None:
    """Count messages that a feed has committed, and wake their receivers."""
    if brought.count:
        if brought.sent_at is not None:
            engine.standard.lower_marks((queue.queue_id,), brought.sent_at)
        engine.wakeups.arrived(queue.queue_id, brought.count)
        engine.series.copied(queue, brought.count)
        engine.series.groups.of(feed.log, feed.group).fed += brought.count
    if brought.dead:
        notify_dead_lettered(engine, brought.dead, brought.buried)
