"""Messages on their way into storage: rows of statements and entries of lanes.

Every new message goes through ``row_of``: sends, copies of topics, schedules, replays, archives and
dead letters of web hooks. A row is a plain tuple: a named tuple costs eight times as much for every
sent message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b, sha256
from json import dumps
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from queuegate.protocol.digests import content_based_id, md5_of_bytes, sha1_of
from queuegate.storage.lanes import Entry, Reply
from queuegate.storage.queries import load
from queuegate.storage.queue_model import (
    GROUP_ID,
    MESSAGE_ID,
    QUEUE_ID,
    Handle,
    Queue,
    ReceiptOutcome,
    Received,
    Row,
    Sent,
    SentMessage,
)
from queuegate.storage.storage_errors import QueueDoesNotExist, QueueFull

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.queue_model import NewMessage


_CHUNK_BYTES = 4 << 20
_CHUNK_ROWS = 2_000

R = TypeVar("R")


def chunked(rows: Iterable[R], size_of: Callable[[R], int]) -> Iterator[list[R]]:
    """Yield the rows in order, in chunks of about 4 MB."""
    chunk: list[R] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += size_of(row)
        if size >= _CHUNK_BYTES or len(chunk) >= _CHUNK_ROWS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


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
    """Add the group id of a standard message to system attributes as JSON."""
    member = f'"MessageGroupId":{dumps(group_id)}}}'
    return f"{system[:-1]},{member}" if system else f"{{{member}"


_GROUPS_PER_SEND = 500
"""Each group of a flush takes an advisory lock in shared memory."""
_UNNUMBERED = SentMessage("", None)[1:]


class Send(Entry[list[SentMessage]]):
    """The messages of one call, in order, all for one queue.

    Refused with QueueDoesNotExist. A standard queue returns sequences only on request.
    ``is_async``: the commit need not reach the disk before the reply. It is granted only if all
    entries of the flush ask for it, on standard queues.
    """

    __slots__ = ("is_async", "messages", "wants_sequences")

    def __init__(
        self,
        messages: list[Row],
        reply: Reply[list[SentMessage]],
        size_bytes: int,
        *,
        wants_sequences: bool = False,
        is_async: bool = False,
    ) -> None:
        super().__init__(reply, size_bytes)
        self.messages = messages
        self.wants_sequences = wants_sequences
        self.is_async = is_async

    def party(self) -> int:
        """Return the queue."""
        return self.messages[0][QUEUE_ID]

    def answer(self, gone: frozenset[int], sequences: Sequence[int | None]) -> None:
        """Answer for rows in a standard queue, with a sequence for each if there are any."""
        if gone and self.party() in gone:
            self.failed(QueueDoesNotExist())
        elif self.wants_sequences:
            pairs = zip(self.messages, sequences, strict=True)
            self.done([SentMessage(row[MESSAGE_ID], one) for row, one in pairs])
        else:
            # Three times as fast as a call of SentMessage.
            new, kind, rest = tuple.__new__, SentMessage, _UNNUMBERED
            self.done([new(kind, (row[MESSAGE_ID], *rest)) for row in self.messages])


class BoundedSend(Entry[list[SentMessage | QueueFull]]):
    """The messages of one call, in order, all for one bounded queue.

    Refused with QueueFull and QueueDoesNotExist. ``is_partial``: messages that fit are sent, and
    the reply has the refusal in place of each other one. Otherwise as ``Send``.
    """

    __slots__ = ("is_partial", "messages", "queue", "wants_sequences")

    def __init__(
        self,
        queue: Queue,
        messages: list[Row],
        reply: Reply[list[SentMessage | QueueFull]],
        size_bytes: int,
    ) -> None:
        super().__init__(reply, size_bytes)
        self.variant = BoundedSend
        self.queue = queue
        self.messages = messages
        self.wants_sequences = False
        self.is_partial = False

    def party(self) -> int:
        """Return the queue."""
        return self.queue.queue_id


class FanOut(Entry[Sent]):
    """Messages for any number of standard queues, all or none of them."""

    __slots__ = ("messages", "wants_sequences")
    is_async = False

    def __init__(
        self,
        messages: list[Row],
        reply: Reply[Sent],
        size_bytes: int,
        *,
        wants_sequences: bool = False,
    ) -> None:
        super().__init__(reply, size_bytes)
        self.messages = messages
        self.wants_sequences = wants_sequences

    def party(self) -> int:
        """Return the first queue."""
        return self.messages[0][QUEUE_ID]

    def answer(self, gone: frozenset[int], sequences: Sequence[int | None]) -> None:
        """Answer with the result of its rows."""
        self.done(Sent(gone, sequences, {}))


class Receive(Entry[list[Received]]):
    """One receive of at most ``limit`` messages, by age or in order; maybe none.

    With ``attempt_id`` a retry gets the same messages for 5 minutes, on queues that support it
    (docs/contract/sqs.md 2.5).
    """

    __slots__ = (
        "attempt_id",
        "is_handed",
        "limit",
        "queue_id",
        "retention_seconds",
        "tries",
        "visibility_ms",
    )

    def __init__(
        self,
        queue_id: int,
        limit: int,
        visibility_ms: int,
        retention_seconds: int,
        reply: Reply[list[Received]],
        attempt_id: str | None = None,
    ) -> None:
        super().__init__(reply)
        self.queue_id = queue_id
        self.limit = limit
        self.visibility_ms = visibility_ms
        self.retention_seconds = retention_seconds
        self.attempt_id = attempt_id
        self.tries = 0
        self.is_handed = False
        """The messages came by direct hand-off, and the queue was not polled for more."""

    def party(self) -> int:
        """Return the queue."""
        return self.queue_id


def divide(mine: list[Received], callers: list[Receive]) -> None:
    """Answer each caller with its part."""
    start = 0
    for entry in callers:
        end = start + entry.limit
        entry.done(mine[start:end])
        start = end


class Delete(Entry[list[ReceiptOutcome]]):
    """Handles of one call, all of one queue.

    ``archives``: the queue archives messages, or the caller asks which existed. The queue's row
    decides at the deletion. Of several such deletes of one message one gets "ok" and the others
    "gone", in one flush or not. Without it a standard queue also returns "ok" for messages deleted
    before.

    On a FIFO queue a message past its retention is "gone", removed by a worker or not.
    """

    __slots__ = ("archives", "found", "handles")

    def __init__(
        self,
        handles: Sequence[Handle],
        reply: Reply[list[ReceiptOutcome]],
        variant: object = None,
        *,
        archives: bool = False,
    ) -> None:
        super().__init__(reply)
        self.variant = variant
        self.handles = handles
        self.archives = archives
        if archives:
            # A flush that fails half way is repeated for entries without an answer.
            self.found: set[tuple[int, int]] = set()

    def party(self) -> int:
        """Return the queue."""
        return self.handles[0][0]


class DeleteLast(Delete):
    """Handles of one call, all of one standard queue, valid only for the last receive. A message
    received again since is "expired"."""

    __slots__ = ()

    def __init__(self, handles: Sequence[Handle], reply: Reply[list[ReceiptOutcome]]) -> None:
        super().__init__(handles, reply, DeleteLast, archives=True)


VisibilityChange = tuple[int, str | None, int, int, int]
"""(*handle, visibility_ms)."""


class ChangeVisibility(Entry[list[ReceiptOutcome]]):
    """Changes of one call, all of one queue."""

    __slots__ = ("rows",)

    def __init__(
        self,
        rows: Sequence[VisibilityChange],
        reply: Reply[list[ReceiptOutcome]],
        variant: object = None,
    ) -> None:
        super().__init__(reply)
        self.variant = variant
        self.rows = rows

    def party(self) -> int:
        """Return the queue."""
        return self.rows[0][0]


S = TypeVar("S", Send, BoundedSend)


def within_groups(batch: list[S]) -> tuple[list[S], list[S]]:
    """Split off as many entries as the limit of groups per flush allows, at least one."""
    groups: set[tuple[int, str | None]] = set()
    for number, entry in enumerate(batch):
        groups.update([(row[QUEUE_ID], row[GROUP_ID]) for row in entry.messages])
        if len(groups) > _GROUPS_PER_SEND and number:
            return batch[:number], batch[number:]
    return batch, []


_SQL = load("queues/messages")


class InFlight(NamedTuple):
    """A FIFO message in flight: its handle without the queue."""

    sequence: int
    group_id: str
    receive_count: int
    """The number of its last receive."""
    looked_at: datetime
    """The ``now`` of the statement."""


async def set_visible_at(
    tx: Transaction, now: datetime | None, queue_id: int, sequence: int, seconds: int
) -> datetime | None:
    """Hide a message of a standard queue until ``seconds`` from now, or show it (0).

    The message may be never received or in flight. Returns the instant; None if it is deleted.
    """
    return await _SQL["set_visible_at"].by_key.value(tx, now, queue_id, sequence, seconds)


async def find_in_flight(
    tx: Transaction, now: datetime | None, queue_id: int, sequences: list[int]
) -> list[InFlight]:
    """Return the messages of a FIFO queue that are in flight.

    Reads each group with a message in flight or delayed. A number not among them, of a deleted or
    unknown message, costs a read of each group of the queue.
    """
    return await _SQL["find_in_flight"].by_key.all(tx, InFlight._make, now, queue_id, sequences)
