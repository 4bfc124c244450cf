"""FIFO queues: what callers hand to the lanes, and how a deduplication id becomes a key."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from storage.lanes import Entry

Handle = tuple[int, str, int, int]
"""(queue_id, group_id, sequence, receive_count): what a receipt handle says."""


def dedup_key(group_id: str | None, deduplication_id: str) -> str:
    """The key under which a deduplication id is unique within its queue: 128 bits as hex.

    ``group_id`` is given only when the queue's DeduplicationScope is messageGroup.
    """
    if group_id is None:
        return blake2b(deduplication_id.encode(), digest_size=16).hexdigest()
    # Neither of the two holds a NUL.
    scoped = f"{group_id}\0{deduplication_id}".encode()
    return blake2b(scoped, digest_size=16, person=b"group").hexdigest()


class FifoMessage(NamedTuple):
    """One message to send, in the order of the columns of the statement."""

    message_id: str
    group_id: str
    dedup_key: str
    deduplication_id: str
    body: str
    sender_id: str
    attributes: str | None
    system: str | None
    delay_seconds: int


class FifoSend(Entry):
    """The messages of one call, in order, all for one queue.

    Result: list of (message_id, sequence, was_duplicate), or QueueDoesNotExist. A duplicate within
    five minutes of the first send has that one's id and number.
    """

    __slots__ = ("messages", "queue_id")

    def __init__(
        self,
        queue_id: int,
        messages: list[FifoMessage],
        reply: Callable[[object], None],
        size_bytes: int = 0,
    ) -> None:
        super().__init__(reply, size_bytes or sum([len(message.body) for message in messages]))
        self.queue_id = queue_id
        self.messages = messages

    def party(self) -> int:
        """The queue."""
        return self.queue_id


class FifoReceive(Entry):
    """One receive of up to ``limit`` messages. Result: list[Received] in order, maybe empty.

    With ``attempt_id`` the same messages come again for five minutes (docs/contract/sqs.md 2.5).
    """

    __slots__ = ("attempt_id", "limit", "queue_id", "retention_seconds", "tries", "visibility_ms")

    def __init__(
        self,
        queue_id: int,
        limit: int,
        visibility_ms: int,
        retention_seconds: int,
        reply: Callable[[object], None],
        attempt_id: str | None = None,
    ) -> None:
        super().__init__(reply)
        self.queue_id = queue_id
        self.limit = limit
        self.visibility_ms = visibility_ms
        self.retention_seconds = retention_seconds
        self.attempt_id = attempt_id
        self.tries = 0

    def party(self) -> int:
        """The queue."""
        return self.queue_id


class FifoDelete(Entry):
    """Handles of one call. Result: list of "ok", "gone" (before) or "expired" (it stays).

    A message that its retention has ended is gone, whether or not a worker has removed it yet.
    """

    __slots__ = ("handles",)
    archives = False

    def __init__(self, handles: list[Handle], reply: Callable[[object], None]) -> None:
        super().__init__(reply)
        self.handles = handles

    def party(self) -> int:
        """The queue: all handles have the same."""
        return self.handles[0][0]


class ArchivingFifoDelete(FifoDelete):
    """A delete of messages that their queue archives, or whose caller asks what was there.

    Whether the queue archives is what its row says when the messages are deleted. Of several
    deletes of one message one is told "ok", the others "gone".
    """

    __slots__ = ()
    archives = True


class FifoChangeVisibility(Entry):
    """(*handle, visibility_ms) rows of one call. Result: as for FifoDelete."""

    __slots__ = ("rows",)

    def __init__(
        self, rows: list[tuple[int, str, int, int, int]], reply: Callable[[object], None]
    ) -> None:
        super().__init__(reply)
        self.rows = rows

    def party(self) -> int:
        """The queue: all rows have the same."""
        return self.rows[0][0]
