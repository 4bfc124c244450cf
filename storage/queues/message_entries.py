"""Lane entries for queues of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from queuegate.storage.errors import QueueDoesNotExist, QueueFull
from queuegate.storage.lanes import Entry, Reply
from queuegate.storage.model import Handle, Queue, ReceiptOutcome, Received, SentMessage
from queuegate.storage.queues.rows import GROUP_ID, MESSAGE_ID, QUEUE_ID, Row
from queuegate.storage.queues.sent import Sent

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        *,
        archives: bool = False,
    ) -> None:
        super().__init__(reply)
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
        # Flushed with deletes that ask which messages existed, apart from the others.
        super().__init__(handles, reply, archives=True)


class ChangeVisibility(Entry[list[ReceiptOutcome]]):
    """(*handle, visibility_ms) rows of one call, all of one queue."""

    __slots__ = ("rows",)

    def __init__(
        self,
        rows: Sequence[tuple[int, str | None, int, int, int]],
        reply: Reply[list[ReceiptOutcome]],
    ) -> None:
        super().__init__(reply)
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
