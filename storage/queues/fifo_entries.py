"""FIFO queues: what callers hand to the lanes."""

from __future__ import annotations

from collections.abc import Callable

from storage.lanes import Entry
from storage.queues.rows import BODY, QUEUE_ID, Row

Handle = tuple[int, str, int, int]
"""(queue_id, group_id, sequence, receive_count): what a receipt handle says."""


class FifoSend(Entry):
    """The messages of one call, in order, all for one queue.

    Result: list of (message_id, sequence, was_duplicate), or QueueDoesNotExist. A duplicate within
    five minutes of the first send has that one's id and number.
    """

    __slots__ = ("messages",)

    def __init__(
        self,
        messages: list[Row],
        reply: Callable[[object], None],
        size_bytes: int = 0,
    ) -> None:
        super().__init__(reply, size_bytes or sum([len(row[BODY]) for row in messages]))
        self.messages = messages

    def party(self) -> int:
        """The queue."""
        return self.messages[0][QUEUE_ID]


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
