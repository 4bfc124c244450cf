"""Rows of messages: conversion of a new message to parameters of its queue's statement.

Every new message goes through ``row_of``: sends, copies of topics, schedules, replays, archives and
dead letters of web hooks. A row is a plain tuple: a named tuple costs eight times as much for every
sent message.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from hashlib import blake2b, sha256
from json import dumps
from typing import TYPE_CHECKING, Final

from queuegate.protocol.digests import content_based_id, md5_of_bytes, sha1_of

if TYPE_CHECKING:
    from queuegate.storage.model import NewMessage, Queue

Row = tuple[
    int,
    str,
    str,
    str,
    str | None,
    str | None,
    int,
    bytes | None,
    str | None,
    str | None,
    str | None,
    int | None,
    int | None,
]
"""(queue_id, message_id, body, sender_id, attributes, system, delay_seconds, body_md5, group_id,
deduplication_id, dedup_key, priority, ttl_seconds). Only queues with groups use group and
deduplication; they store no body_md5 and have no priorities."""

QUEUE_ID: Final = 0
MESSAGE_ID: Final = 1
BODY: Final = 2
ATTRIBUTES: Final = 4
DELAY_SECONDS: Final = 6
GROUP_ID: Final = 8
DEDUP_KEY: Final = 10
PRIORITY: Final = 11
TTL_SECONDS: Final = 12


def row_of(
    queue: Queue,
    message: NewMessage,
    message_id: str,
    sender_id: str,
    instant: Callable[[], datetime] | None = None,
) -> Row:
    """Build the row of a validated message for a queue of any kind.

    On a FIFO queue a message without a deduplication id gets one by its content, if the queue says
    so, else its own message id: nothing is a duplicate of it. On a strict FIFO queue it gets one by
    its content, and without a group it is a group of its own. The delay in groups is the queue's.
    On a standard queue the group id is a system attribute. ``instant`` returns the present, and is
    called only if the scope of the queue's deduplication was changed; it may be missing if the
    deduplication id is new.
    """
    body, attributes, system, delay, group_id, deduplication_id, digest, key, priority, ttl = (
        message
    )
    if queue.kind.has_groups:
        delay = queue.delay_seconds
        digest = priority = None
        if queue.is_serial:
            group_id = group_id or message_id
            deduplication_id, key = _serial_ids(queue, message, group_id)
        elif deduplication_id is None:
            is_by_content = queue.content_based_deduplication
            deduplication_id = content_based_id(body) if is_by_content else message_id
        if key is None:
            is_grouped = queue.deduplication_per_group and (
                queue.grouped_from is None
                or instant is None
                or queue.deduplicates_per_group(instant())
            )
            key = dedup_key(group_id if is_grouped else None, deduplication_id)
    else:
        if group_id is not None:
            system = with_group(system, group_id)
        if delay is None:
            delay = queue.delay_seconds
        if digest is None:
            digest = md5_of_bytes(body.encode())
        group_id = deduplication_id = key = None
    return (
        queue.queue_id,
        message_id,
        body,
        sender_id,
        attributes,
        system,
        delay,
        digest,
        group_id,
        deduplication_id,
        key,
        priority,
        ttl,
    )


def _serial_ids(queue: Queue, message: NewMessage, group_id: str) -> tuple[str, str]:
    """Return deduplication id and key of a message of a strict FIFO queue."""
    made = message.deduplication_id or sha1_of(message.body)
    return made, message.dedup_key or serial_key(queue.queue_id, group_id, made)


def dedup_key(group_id: str | None, deduplication_id: str) -> str:
    """Return the key that identifies a deduplication id within its queue: 128 bits as hex.

    ``group_id`` is given only if the queue's DeduplicationScope is messageGroup.
    """
    if group_id is None:
        return blake2b(deduplication_id.encode(), digest_size=16).hexdigest()
    # Neither of the two contains a NUL.
    scoped = f"{group_id}\0{deduplication_id}".encode()
    return blake2b(scoped, digest_size=16, person=b"group").hexdigest()


def serial_key(queue_id: int, group_id: str, deduplication_id: str) -> str:
    """Return the key that identifies a deduplication id in its group of a strict FIFO queue: 128
    bits as hex. Deletes compute it in SQL (``serial_key`` in storage/functions/serial.sql)."""
    group = group_id.encode()
    text = b"%d:%d:%b%b" % (queue_id, len(group), group, deduplication_id.encode())
    return sha256(text).hexdigest()[:32]


def with_group(system: str | None, group_id: str) -> str:
    """Add the group id of a standard message, which names a tenant, to system attributes as
    JSON."""
    member = f'"MessageGroupId":{dumps(group_id)}}}'
    return f"{system[:-1]},{member}" if system else f"{{{member}"
