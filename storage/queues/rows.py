"""The row of a message: from what is to be sent to what the statement of its queue takes.

Everything that writes a new message goes through ``row_of``: sends, copies of topics, schedules,
replays, archives and dead letters of web hooks. A row is a plain tuple, as a send makes one for
every message and hands them over column by column; a named one costs eight times as much.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from hashlib import blake2b
from json import dumps
from typing import TYPE_CHECKING, Final

from protocol.digests import content_based_id, md5_of_bytes

if TYPE_CHECKING:
    from storage.model import NewMessage, Queue

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
]
"""(queue_id, message_id, body, sender_id, attributes, system, delay_seconds, body_md5, group_id,
deduplication_id, dedup_key). The last three are of FIFO queues, which keep no body_md5."""

QUEUE_ID: Final = 0
MESSAGE_ID: Final = 1
BODY: Final = 2
GROUP_ID: Final = 8
DEDUP_KEY: Final = 10


def row_of(
    queue: Queue,
    message: NewMessage,
    message_id: str,
    sender_id: str,
    instant: Callable[[], datetime] | None = None,
) -> Row:
    """The row of a message for a queue, whatever its kind. It was checked before.

    On a FIFO queue a message without a deduplication id has one by its content, if the queue wants
    that, else its own message id: nothing is a duplicate of it. The delay there is the queue's. On
    a standard queue the group id is a system attribute. ``instant`` tells the present, and is asked
    only where the scope of the queue's deduplication was changed; it may be missing where the
    deduplication id is new.
    """
    body, attributes, system, delay, group_id, deduplication_id, digest, key, *_ = message
    if not queue.kind.has_groups:
        if group_id is not None:
            system = with_group(system, group_id)
        return (
            queue.queue_id,
            message_id,
            body,
            sender_id,
            attributes,
            system,
            queue.delay_seconds if delay is None else delay,
            md5_of_bytes(body.encode()) if digest is None else digest,
            None,
            None,
            None,
        )
    if deduplication_id is None:
        is_by_content = queue.content_based_deduplication
        deduplication_id = content_based_id(body) if is_by_content else message_id
    if key is None:
        is_grouped = queue.deduplication_per_group and (
            queue.grouped_from is None or instant is None or queue.deduplicates_per_group(instant())
        )
        key = dedup_key(group_id if is_grouped else None, deduplication_id)
    return (
        queue.queue_id,
        message_id,
        body,
        sender_id,
        attributes,
        system,
        queue.delay_seconds,
        None,
        group_id,
        deduplication_id,
        key,
    )


def dedup_key(group_id: str | None, deduplication_id: str) -> str:
    """The key under which a deduplication id is unique within its queue: 128 bits as hex.

    ``group_id`` is given only when the queue's DeduplicationScope is messageGroup.
    """
    if group_id is None:
        return blake2b(deduplication_id.encode(), digest_size=16).hexdigest()
    # Neither of the two holds a NUL.
    scoped = f"{group_id}\0{deduplication_id}".encode()
    return blake2b(scoped, digest_size=16, person=b"group").hexdigest()


def with_group(system: str | None, group_id: str) -> str:
    """System attributes, as JSON, with the group id that a message on a standard queue has: there
    it names a tenant."""
    member = f'"MessageGroupId":{dumps(group_id)}}}'
    return f"{system[:-1]},{member}" if system else f"{{{member}"
