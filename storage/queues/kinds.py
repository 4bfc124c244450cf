"""The kinds of queues and their differences besides the lanes.

A queue gets its kind (``Queue.kind``) when its row is read; callers use only that. Every method is
part of its caller's transaction. The lanes of a kind are ``StandardLanes`` or ``FifoLanes``, which
choose statements by the kind; ``row_of`` builds the row of a message for all kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.storage.queue_model import (
    ExpiredQueue,
    Lease,
    NextVisible,
    Order,
    PurgeStep,
    Queue,
    QueueKind,
    Row,
    WatchedQueue,
)
from queuegate.storage.queues import (
    browsing,
    depths,
    fifo_queues,
    message_retention,
    moves,
    standard_queues,
)

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


class Standard:
    """Any order, at least once; redelivery may come in any order."""

    order: Order = "standard"
    has_groups = False
    counts_in_flight = False
    send = staticmethod(standard_queues.send)
    release = staticmethod(standard_queues.release)
    prior_counts = staticmethod(standard_queues.prior_counts)
    count = staticmethod(standard_queues.counts)
    clear_deleted = staticmethod(message_retention.clear_deleted_standard)
    find_expired = staticmethod(message_retention.find_expired_standard)
    expire = staticmethod(message_retention.expire_standard)
    last_number = staticmethod(browsing.last_standard)
    read_page = staticmethod(browsing.standard_page)
    find_ends = staticmethod(browsing.standard_ends)
    ages = staticmethod(depths.standard_ages)
    move_batch = staticmethod(moves.move_standard_batch)
    hold = staticmethod(standard_queues.hold)
    next_visible = staticmethod(standard_queues.next_visible)

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
        return await standard_queues.move_to_dead_letter(
            tx,
            now,
            source_id=queue.queue_id,
            target_id=target.queue_id,
            source_arn=queue.arn,
            messages=messages,
        )

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
            *await standard_queues.purge_batch(
                tx, queue_id, after_sequence=after, last_sequence=up_to, limit=limit
            )
        )


class Prioritised(Standard):
    """A standard queue with priorities: most urgent first, expired messages excluded. Messages are
    stored with those of other standard queues, so only sends and receives differ."""

    send = staticmethod(standard_queues.send_with_priorities)


class Fifo:
    """Groups in order, one at a time; a deduplication id is unique within 5 minutes."""

    order: Order = "FIFO"
    has_groups = True
    counts_in_flight = True
    send = staticmethod(fifo_queues.send)
    find_repeats = staticmethod(fifo_queues.find_repeats)
    release = staticmethod(fifo_queues.release)
    prior_counts = staticmethod(fifo_queues.prior_counts)
    count = staticmethod(fifo_queues.counts)
    clear_deleted = staticmethod(fifo_queues.delete_batch_of_deleted_queue)
    find_expired = staticmethod(message_retention.find_expired_fifo)
    set_delay = staticmethod(fifo_queues.set_delay)
    last_number = staticmethod(browsing.last_fifo)
    read_page = staticmethod(browsing.fifo_page)
    find_ends = staticmethod(browsing.fifo_ends)
    ages = staticmethod(depths.fifo_ages)
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
        return await fifo_queues.move_to_dead_letter(
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
        found = await fifo_queues.next_ready(tx, now, [one.queue_id for one in asked])
        return [
            NextVisible(one.queue_id, one.ready, one.in_ms or 0)
            for one in found
            if one.ready or one.in_ms is not None
        ]

    async def purge(
        self, tx: Transaction, queue_id: int, *, up_to: int, after: int, limit: int
    ) -> PurgeStep:
        """See ``QueueKind``."""
        purged = await fifo_queues.purge_counted(tx, queue_id, up_to=up_to, limit=limit)
        return PurgeStep(purged.messages, after if purged.rows else None)

    async def expire(
        self, tx: Transaction, now: datetime | None, expired: list[ExpiredQueue], limit: int
    ) -> tuple[int, list[ExpiredQueue]]:
        """See ``QueueKind``."""
        first, *others = expired
        gone = await fifo_queues.expire(tx, now, first.queue_id, first.retention_seconds, limit)
        return gone, others


class Serial(Fifo):
    """A strict FIFO queue: one message in flight per group. A deduplication id is new in its group
    when its message is deleted. Messages are stored in the tables of FIFO queues."""

    order: Order = "serial"
    find_repeats = staticmethod(fifo_queues.find_repeats_in_groups)


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
