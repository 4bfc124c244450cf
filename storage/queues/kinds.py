"""The kinds of queues: what differs between them beside the lanes.

A queue has its kind (``Queue.kind``), chosen when it is read; whoever works with queues calls that
and asks no further. Every method is part of its caller's transaction. The lanes of a kind are
``StandardLanes``, ``FifoLanes`` and ``SerialLanes``; the row of a message is made for all kinds by
``row_of``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from queuegate.storage.clocks.whose import EVERYBODYS, Whose
from queuegate.storage.model import Counts, Queue, Received
from queuegate.storage.queues import browsing, fifo, moves, queue_ages, retention, serial, standard
from queuegate.storage.queues.browsing import Page, Place, Wanted
from queuegate.storage.queues.moves import ClaimedTask, FindQueue, MovedBatch
from queuegate.storage.queues.queue_ages import Ages
from queuegate.storage.queues.retention import ExpiredPage, ExpiredQueue
from queuegate.storage.queues.rows import Row
from queuegate.storage.queues.sent import Sent

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


class Asked(NamedTuple):
    """A queue of which somebody waits for something. ``mark``: nothing visible lies left of it."""

    queue_id: int
    mark: datetime
    retention_seconds: int


class NextVisible(NamedTuple):
    """When a queue will have something: now, or in so many milliseconds."""

    queue_id: int
    ready: bool
    in_ms: int


class PurgeStep(NamedTuple):
    """One batch of a purge. ``after``: where the next one begins; None: that was the last."""

    messages: int
    after: int | None


class Lease(Protocol):
    """A message as it was leased last."""

    @property
    def sequence(self) -> int: ...

    @property
    def receive_count(self) -> int: ...

    @property
    def group_id(self) -> str | None: ...


Order = Literal["standard", "FIFO", "serial"]
"""What a queue promises of order: messages move between queues that promise the same."""


class QueueKind(Protocol):
    """What every kind of queue can do."""

    order: Order

    has_groups: bool
    """Messages lie in groups, of which each is in order: what is behind a message waits for it."""

    counts_in_flight: bool
    """Its lane of receives sees to the limit of messages in flight."""

    async def send(
        self,
        tx: Transaction,
        now: datetime | None,
        rows: Iterable[Row],
        *,
        wants_sequences: bool = False,
    ) -> Sent:
        """Write messages, for any queues of this kind; those for queues that are gone are not."""

    async def find_repeats(
        self, tx: Transaction, now: datetime | None, rows: list[Row]
    ) -> set[str]:
        """The deduplication keys of these rows, all for one queue, whose messages would be folded
        if they were sent now. Exact while nobody else sends to the queue, and none is forgotten."""

    async def release(
        self, tx: Transaction, now: datetime | None, messages: list[Received]
    ) -> None:
        """Give back messages of one queue that were leased for a caller who has gone: visible at
        once, uncounted."""

    async def prior_counts(self, tx: Transaction, received: list[Received]) -> dict[int, int]:
        """By sequence, how often messages of one queue were received before a redrive policy moved
        them there; those that none moved may be missing."""

    async def bury(
        self,
        tx: Transaction,
        now: datetime | None,
        queue: Queue,
        target: Queue,
        messages: Sequence[Lease],
    ) -> int:
        """Move leased messages to a dead-letter queue of the same kind; how many moved (0 when that
        is deleted). It may be the queue itself."""

    async def hold(
        self, tx: Transaction, now: datetime | None, queue: Queue, messages: Sequence[Lease]
    ) -> None:
        """Hide leased messages that there is no room for in the dead-letter queue, for the queue's
        visibility timeout, a second at least."""

    async def count(self, tx: Transaction, now: datetime | None, queue_id: int) -> Counts:
        """The three counters of docs/contract/sqs.md 2.12, whatever the queue's depth."""

    async def ages(self, tx: Transaction, now: datetime | None, queue_id: int) -> Ages:
        """How old the oldest and the newest message are."""

    async def next_visible(
        self, tx: Transaction, now: datetime | None, asked: list[Asked]
    ) -> list[NextVisible]:
        """What to wait for; queues of which nobody knows are absent."""

    async def set_delay(
        self, tx: Transaction, now: datetime | None, queue_id: int, delay_seconds: int
    ) -> int:
        """Apply a new DelaySeconds to what was sent before, where it holds for that
        (docs/contract/sqs.md 2.7); how many messages changed."""

    async def last_number(self, tx: Transaction) -> int:
        """A number that splits what is in queues of this kind now from what will be sent.

        In a statement of its own, so that whoever looks afterwards sees all of the former.
        """

    async def purge(
        self, tx: Transaction, queue_id: int, *, up_to: int, after: int, limit: int
    ) -> PurgeStep:
        """Delete a batch of messages with numbers ``up_to``, whatever their state, and all that
        deduplication and receive attempts know of them. Begin with ``after`` 0."""

    async def clear_deleted(self, tx: Transaction, queue_id: int, limit: int) -> int:
        """Remove up to ``limit`` messages of a deleted queue, and what belongs to them; how many
        rows went."""

    async def find_expired(
        self,
        tx: Transaction,
        now: datetime | None,
        *,
        after_queue_id: int,
        limit: int,
        whose: Whose = EVERYBODYS,
    ) -> ExpiredPage:
        """Queues behind ``after_queue_id`` that hold something past its retention. Looks at
        ``limit`` queues that are not empty."""

    async def expire(
        self, tx: Transaction, now: datetime | None, expired: list[ExpiredQueue], limit: int
    ) -> tuple[int, list[ExpiredQueue]]:
        """Delete about ``limit`` messages of these queues past their retention; how many went, and
        the queues that may have more."""

    async def read_page(
        self,
        tx: Transaction,
        now: datetime | None,
        queue: Queue,
        wanted: Wanted,
        *,
        limit: int,
        most_bytes: int,
    ) -> Page:
        """Browse: the next messages, up to ``limit``, and fewer when they are larger than
        ``most_bytes``; one always comes if there is one.

        Looks at 20,000 messages at most, so it may find fewer although there are more. What is past
        its retention is not there.
        """

    async def find_ends(
        self, tx: Transaction, queue_id: int, as_of: int, parts: int
    ) -> list[Place]:
        """Places that cut the queue into at most ``parts`` parts with about as many messages each:
        the last of each but of the last part, ascending.

        Exact up to 50,000 messages. Of more, a sample of the table's pages is read, however large
        it is; where the queue has little of a large table, the parts may be few and uneven.
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
        """Move up to ``limit`` messages that a receive could get now. Without a target each goes to
        the queue that it came from, which ``find`` finds."""


class Standard:
    """Any order, at least once; what is received again may come from anywhere."""

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
        """Every message is a new one."""
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
        """See ``QueueKind``. The lease does not count."""
        seconds = max(queue.visibility_timeout_seconds, 1)
        await standard.hold(tx, now, queue.queue_id, messages, seconds=seconds)

    async def next_visible(
        self, tx: Transaction, now: datetime | None, asked: list[Asked]
    ) -> list[NextVisible]:
        """See ``QueueKind``."""
        return [NextVisible(*row) for row in await standard.next_visible(tx, now, asked)]

    async def set_delay(
        self, tx: Transaction, now: datetime | None, queue_id: int, delay_seconds: int
    ) -> int:
        """It holds for what is sent from now on."""
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
    """The most urgent first, and what expires is gone then. Messages lie where those of other
    standard queues do, so all but sends and receives goes by the same statements."""

    send = staticmethod(standard.send_with_priorities)


class Fifo:
    """Groups in order, one at a time; a deduplication id is new once in five minutes."""

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
        """They stay as they were leased, and their groups wait for them."""

    async def next_visible(
        self, tx: Transaction, now: datetime | None, asked: list[Asked]
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
    """Groups in order, of each one message out at a time; a deduplication id is new in its group
    when its message is deleted. Its messages lie in the tables of FIFO queues."""

    order: Order = "serial"
    find_repeats = staticmethod(serial.find_repeats)


STANDARD: QueueKind = Standard()
PRIORITISED: QueueKind = Prioritised()
FIFO: QueueKind = Fifo()
SERIAL: QueueKind = Serial()
KINDS: tuple[QueueKind, ...] = (STANDARD, PRIORITISED, FIFO, SERIAL)
TABLES: tuple[QueueKind, ...] = (STANDARD, FIFO)
"""One for each table of messages: what goes through a table finds queues of all kinds in it."""


def kind_of(*, is_fifo: bool, is_serial: bool = False, has_priorities: bool = False) -> QueueKind:
    """The kind of a queue as its row says it."""
    if is_serial:
        return SERIAL
    if is_fifo:
        return FIFO
    return PRIORITISED if has_priorities else STANDARD


def prioritised(queue: Queue) -> Queue:
    """A standard queue as it is with a message that has a priority or an end: what sends the first
    one makes it so, for everybody and with the same commit."""
    if queue.kind is not STANDARD:
        return queue
    return replace(queue, kind=PRIORITISED, has_priorities=True)
