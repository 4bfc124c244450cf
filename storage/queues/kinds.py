"""The kinds of queues and their differences besides the lanes.

A queue gets its kind (``Queue.kind``) when its row is read; callers use only that. Every method is
part of its caller's transaction. The lanes of a kind are ``StandardLanes``, ``FifoLanes`` and
``SerialLanes``; ``row_of`` builds the row of a message for all kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from queuegate.storage.clocks.whose import ALL_ACCOUNTS, AccountFilter
from queuegate.storage.model import Counts, Queue, Received
from queuegate.storage.queues import browsing, fifo, moves, queue_ages, retention, serial, standard
from queuegate.storage.queues.browsing import BrowsedMessages, BrowseFilter, BrowsePosition
from queuegate.storage.queues.moves import ClaimedTask, FindQueue, MovedBatch
from queuegate.storage.queues.queue_ages import Ages
from queuegate.storage.queues.retention import ExpiredPage, ExpiredQueue
from queuegate.storage.queues.rows import Row
from queuegate.storage.queues.sent import Sent

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


class WatchedQueue(NamedTuple):
    """A queue with parked receivers. ``mark``: nothing visible is stored before this position."""

    queue_id: int
    mark: datetime
    retention_seconds: int


class NextVisible(NamedTuple):
    """The next visible message of a queue: now, or in so many milliseconds."""

    queue_id: int
    ready: bool
    in_ms: int


class PurgeStep(NamedTuple):
    """One batch of a purge. ``after``: the start of the next one; None: the last batch."""

    messages: int
    after: int | None


class Lease(Protocol):
    """A message and its last lease."""

    @property
    def sequence(self) -> int: ...

    @property
    def receive_count(self) -> int: ...

    @property
    def group_id(self) -> str | None: ...


Order = Literal["standard", "FIFO", "serial"]
"""The ordering guarantee of a queue: messages move between queues with the same one."""


class QueueKind(Protocol):
    """The interface of every kind of queue."""

    order: Order

    has_groups: bool
    """Messages are in ordered groups: each message blocks those behind it."""

    counts_in_flight: bool
    """The lane of receives enforces the limit of messages in flight."""

    async def send(
        self,
        tx: Transaction,
        now: datetime | None,
        rows: Iterable[Row],
        *,
        wants_sequences: bool = False,
    ) -> Sent:
        """Write messages for any queues of this kind, except for deleted queues."""

    async def find_repeats(
        self, tx: Transaction, now: datetime | None, rows: list[Row]
    ) -> set[str]:
        """Return the deduplication keys of these rows, all for one queue, that would be duplicates.
        Exact while no other client sends to the queue and no key is deleted."""

    async def release(
        self, tx: Transaction, now: datetime | None, messages: list[Received]
    ) -> None:
        """Release messages of one queue leased for a disconnected caller: visible at once,
        uncounted."""

    async def prior_counts(self, tx: Transaction, received: list[Received]) -> dict[int, int]:
        """Return by sequence the receives of messages of one queue before a redrive policy moved
        them there; messages never moved may be missing."""

    async def bury(
        self,
        tx: Transaction,
        now: datetime | None,
        queue: Queue,
        target: Queue,
        messages: Sequence[Lease],
    ) -> int:
        """Move leased messages to a dead-letter queue of the same kind; return the count. Returns 0
        if the target is deleted. The target may be the queue itself."""

    async def hold(
        self, tx: Transaction, now: datetime | None, queue: Queue, messages: Sequence[Lease]
    ) -> None:
        """Hide leased messages that do not fit into the dead-letter queue, for the queue's
        visibility timeout, at least 1 s."""

    async def count(self, tx: Transaction, now: datetime | None, queue_id: int) -> Counts:
        """Return the three counters of docs/contract/sqs.md 2.12, in bounded work."""

    async def ages(self, tx: Transaction, now: datetime | None, queue_id: int) -> Ages:
        """Return the ages of the oldest and the newest message."""

    async def next_visible(
        self, tx: Transaction, now: datetime | None, asked: list[WatchedQueue]
    ) -> list[NextVisible]:
        """Return the next visible message of each queue; unknown queues are absent."""

    async def set_delay(
        self, tx: Transaction, now: datetime | None, queue_id: int, delay_seconds: int
    ) -> int:
        """Apply a new DelaySeconds to messages sent before, where the contract says so
        (docs/contract/sqs.md 2.7); return the number changed."""

    async def last_number(self, tx: Transaction) -> int:
        """Return a number that separates present messages of this kind from later ones.

        A statement of its own, so that later reads see all present messages.
        """

    async def purge(
        self, tx: Transaction, queue_id: int, *, up_to: int, after: int, limit: int
    ) -> PurgeStep:
        """Delete a batch of messages up to number ``up_to`` in any state, with their deduplication
        ids and receive attempts. Begin with ``after`` 0."""

    async def clear_deleted(self, tx: Transaction, queue_id: int, limit: int) -> int:
        """Remove at most ``limit`` messages of a deleted queue and their related rows; return the
        rows."""

    async def find_expired(
        self,
        tx: Transaction,
        now: datetime | None,
        *,
        after_queue_id: int,
        limit: int,
        whose: AccountFilter = ALL_ACCOUNTS,
    ) -> ExpiredPage:
        """Find queues behind ``after_queue_id`` with messages past their retention. Examines at
        most ``limit`` queues that are not empty."""

    async def expire(
        self, tx: Transaction, now: datetime | None, expired: list[ExpiredQueue], limit: int
    ) -> tuple[int, list[ExpiredQueue]]:
        """Delete about ``limit`` messages of these queues past their retention. Returns the count,
        and the queues that may have more."""

    async def read_page(
        self,
        tx: Transaction,
        now: datetime | None,
        queue: Queue,
        wanted: BrowseFilter,
        *,
        limit: int,
        most_bytes: int,
    ) -> BrowsedMessages:
        """Browse the next messages, at most ``limit`` and ``most_bytes``, at least one if any.

        Examines at most 20,000 messages, so it may find fewer than exist. Messages past their
        retention are left out.
        """

    async def find_ends(
        self, tx: Transaction, queue_id: int, as_of: int, parts: int
    ) -> list[BrowsePosition]:
        """Return positions that divide the queue into at most ``parts`` parts of similar size.

        Returns the last position of each part except the last part, ascending. Exact up to 50,000
        messages. Above, it samples the table's pages at a bounded cost; for a queue that is a small
        part of a large table, parts may be few and uneven.
        """

    async def move_batch(
        self,
        tx: Transaction,
        now: datetime | None,
        task: ClaimedTask,
        *,
        source: Queue,
        target: Queue | None,
        find: FindQueue,
        limit: int,
    ) -> MovedBatch:
        """Move at most ``limit`` receivable messages. Without a target each returns to its source
        queue, which ``find`` finds."""


class Standard:
    """Any order, at least once; redelivery may come in any order."""

    order: Order = "standard"
    has_groups = False
    counts_in_flight = False
    send = staticmethod(standard.send)
    release = staticmethod(standard.release)
    prior_counts = staticmethod(standard.prior_counts)
    count = staticmethod(standard.counts)
    clear_deleted = staticmethod(retention.clear_deleted_standard)
    find_expired = staticmethod(retention.find_expired_standard)
    expire = staticmethod(retention.expire_standard)
    last_number = staticmethod(browsing.last_standard)
    read_page = staticmethod(browsing.standard_page)
    find_ends = staticmethod(browsing.standard_ends)
    ages = staticmethod(queue_ages.standard_ages)
    move_batch = staticmethod(moves.move_standard_batch)

    async def find_repeats(
        self, tx: Transaction, now: datetime | None, rows: list[Row]
    ) -> set[str]:
        """Return nothing: every message is new."""
        return set()

    async def bury(
        self,
        tx: Transaction,
        now: datetime | None,
        queue: Queue,
        target: Queue,
        messages: Sequence[Lease],
    ) -> int:
        """See ``QueueKind``."""
        return await standard.move_to_dead_letter(
            tx,
            now,
            source_id=queue.queue_id,
            target_id=target.queue_id,
            source_arn=queue.arn,
            messages=messages,
        )

    async def hold(
        self, tx: Transaction, now: datetime | None, queue: Queue, messages: Sequence[Lease]
    ) -> None:
        """See ``QueueKind``. The lease is not counted."""
        seconds = max(queue.visibility_timeout_seconds, 1)
        await standard.hold(tx, now, queue.queue_id, messages, seconds=seconds)

    async def next_visible(
        self, tx: Transaction, now: datetime | None, asked: list[WatchedQueue]
    ) -> list[NextVisible]:
        """See ``QueueKind``."""
        return [NextVisible(*row) for row in await standard.next_visible(tx, now, asked)]

    async def set_delay(
        self, tx: Transaction, now: datetime | None, queue_id: int, delay_seconds: int
    ) -> int:
        """Change nothing: the delay applies to later messages only."""
        return 0

    async def purge(
        self, tx: Transaction, queue_id: int, *, up_to: int, after: int, limit: int
    ) -> PurgeStep:
        """See ``QueueKind``."""
        return PurgeStep(
            *await standard.purge_batch(
                tx, queue_id, after_sequence=after, last_sequence=up_to, limit=limit
            )
        )


class Prioritised(Standard):
    """A standard queue with priorities: most urgent first, expired messages excluded. Messages are
    stored with those of other standard queues, so only sends and receives differ."""

    send = staticmethod(standard.send_with_priorities)


class Fifo:
    """Groups in order, one at a time; a deduplication id is unique within 5 minutes."""

    order: Order = "FIFO"
    has_groups = True
    counts_in_flight = True
    send = staticmethod(fifo.send)
    find_repeats = staticmethod(fifo.find_repeats)
    release = staticmethod(fifo.release)
    prior_counts = staticmethod(fifo.prior_counts)
    count = staticmethod(fifo.counts)
    clear_deleted = staticmethod(fifo.delete_batch_of_deleted_queue)
    find_expired = staticmethod(retention.find_expired_fifo)
    set_delay = staticmethod(fifo.set_delay)
    last_number = staticmethod(browsing.last_fifo)
    read_page = staticmethod(browsing.fifo_page)
    find_ends = staticmethod(browsing.fifo_ends)
    ages = staticmethod(queue_ages.fifo_ages)
    move_batch = staticmethod(moves.move_fifo_batch)

    async def bury(
        self,
        tx: Transaction,
        now: datetime | None,
        queue: Queue,
        target: Queue,
        messages: Sequence[Lease],
    ) -> int:
        """See ``QueueKind``."""
        return await fifo.move_to_dead_letter(
            tx,
            now,
            source_queue_id=queue.queue_id,
            target_queue_id=target.queue_id,
            source_arn=queue.arn,
            rows=[(m.group_id or "", m.sequence, m.receive_count) for m in messages],
        )

    async def hold(
        self, tx: Transaction, now: datetime | None, queue: Queue, messages: Sequence[Lease]
    ) -> None:
        """Keep the leases: the groups stay blocked until these end."""

    async def next_visible(
        self, tx: Transaction, now: datetime | None, asked: list[WatchedQueue]
    ) -> list[NextVisible]:
        """See ``QueueKind``."""
        found = await fifo.next_ready(tx, now, [one.queue_id for one in asked])
        return [
            NextVisible(one.queue_id, one.ready, one.in_ms or 0)
            for one in found
            if one.ready or one.in_ms is not None
        ]

    async def purge(
        self, tx: Transaction, queue_id: int, *, up_to: int, after: int, limit: int
    ) -> PurgeStep:
        """See ``QueueKind``."""
        purged = await fifo.purge_counted(tx, queue_id, up_to=up_to, limit=limit)
        return PurgeStep(purged.messages, after if purged.rows else None)

    async def expire(
        self, tx: Transaction, now: datetime | None, expired: list[ExpiredQueue], limit: int
    ) -> tuple[int, list[ExpiredQueue]]:
        """See ``QueueKind``."""
        first, *others = expired
        gone = await fifo.expire(tx, now, first.queue_id, first.retention_seconds, limit)
        return gone, others


class Serial(Fifo):
    """A strict FIFO queue: one message in flight per group. A deduplication id is new in its group
    when its message is deleted. Messages are stored in the tables of FIFO queues."""

    order: Order = "serial"
    find_repeats = staticmethod(serial.find_repeats_in_groups)


STANDARD: QueueKind = Standard()
PRIORITISED: QueueKind = Prioritised()
FIFO: QueueKind = Fifo()
SERIAL: QueueKind = Serial()
KINDS: tuple[QueueKind, ...] = (STANDARD, PRIORITISED, FIFO, SERIAL)
TABLES: tuple[QueueKind, ...] = (STANDARD, FIFO)
"""One kind for each table of messages; an operation on a table covers queues of all its kinds."""


def kind_of(*, is_fifo: bool, is_serial: bool = False, has_priorities: bool = False) -> QueueKind:
    """Return the kind of a queue from its row."""
    if is_serial:
        return SERIAL
    if is_fifo:
        return FIFO
    return PRIORITISED if has_priorities else STANDARD


def prioritised(queue: Queue) -> Queue:
    """Return a standard queue as its first message with a priority or an expiry makes it. The
    commit of that message changes the queue for every process."""
    if queue.kind is not STANDARD:
        return queue
    return replace(queue, kind=PRIORITISED, has_priorities=True)
