"""Messages that wait for capacity in bounded queues.

A full queue refuses sends. Messages that cannot be sent again are diverted or wait: copies of
topics, and dead letters of web hooks and schedules. Waiting messages enter before later ones, in
order; a message waits at most for the retention of its queue.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.clocks.whose import ALL_ACCOUNTS, AccountFilter
from queuegate.storage.errors import QueueFull
from queuegate.storage.model import Queue
from queuegate.storage.planning import probe_by_key
from queuegate.storage.queries import load
from queuegate.storage.queues.rooms import RemainingCapacity
from queuegate.storage.queues.rows import TTL_SECONDS, Row

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("queues/waiting")
_MOST_BYTES = 4 << 20
_DIGEST = 7
_EVER = (1 << 63) - 1


class Addressed(NamedTuple):
    """A message for a queue, as its row."""

    queue: Queue
    row: Row


class CopyToQueue(NamedTuple):
    """A message for a queue that may be full."""

    wanted: Addressed
    otherwise: Addressed | None = None
    """The alternative if the queue is full."""
    must_fit: bool = False
    """Refuse it with QueueFull if the queue is full."""


async def place_copies(
    tx: Transaction, now: datetime | None, held: RemainingCapacity, copies: Sequence[CopyToQueue]
) -> list[Addressed | None]:
    """Return the destination of each copy, in order; None: it waits. ``held``: capacity of all
    queues.

    No message overtakes those waiting for a queue with groups.
    """
    placed: list[Addressed | None] = []
    waiting: list[Addressed] = []
    for copy in copies:
        found = next((one for one in copy[:2] if one is not None and held.take(one.queue)), None)
        placed.append(found)
        if found is None:
            if copy.must_fit:
                raise QueueFull(copy.wanted.queue)
            held.wait(copy.wanted.queue)
            waiting.append(copy.wanted)
    if waiting:
        ids = [one.queue.queue_id for one in waiting]
        await tx.execute(_SQL["insert"].text, now, ids, [_stored(one.row) for one in waiting])
    return placed


class Arrived(NamedTuple):
    """The result of messages that were sent or wait."""

    counts: Counter[int]
    """By queue id, the number received."""
    gone: frozenset[int]
    """Deleted queues: nothing was written for them."""


async def send_or_wait(
    tx: Transaction, now: datetime | None, messages: Sequence[Addressed]
) -> Arrived:
    """Send messages in order; those for a full queue wait."""
    bounded = {one.queue.queue_id for one in messages if one.queue.most_messages is not None}
    placed: Sequence[Addressed | None] = messages
    if bounded:
        held = await RemainingCapacity.hold(tx, now, bounded)
        placed = await place_copies(tx, now, held, [CopyToQueue(one) for one in messages])
    found = [one for one in placed if one is not None]
    gone: frozenset[int] = frozenset()
    for kind in {one.queue.kind for one in found}:
        rows = [one.row for one in found if one.queue.kind is kind]
        gone |= (await kind.send(tx, now, rows)).gone
    ids = [one.queue.queue_id for one in found]
    return Arrived(Counter([one for one in ids if one not in gone]), gone)


class WaitingQueues(NamedTuple):
    """Queues with waiting messages."""

    due: list[int]
    """Queues with work."""
    last_queue_id: int | None
    """Continue behind this queue; None: no more."""


async def find_waiting(
    tx: Transaction,
    now: datetime | None,
    *,
    after_queue_id: int,
    limit: int,
    whose: AccountFilter = ALL_ACCOUNTS,
) -> WaitingQueues:
    """Find the next queues behind that one."""
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["find"].text, now, after_queue_id, limit, *whose)
    last = rows[-1]["queue_id"] if len(rows) == limit else None
    return WaitingQueues([row["queue_id"] for row in rows if row["is_due"]], last)


class WaitingSent(NamedTuple):
    """The result for waiting messages."""

    sent: int
    dropped: int
    """Messages past retention or expiry."""


async def send_waiting(
    tx: Transaction, now: datetime | None, queue: Queue, limit: int
) -> WaitingSent:
    """Send at most ``limit`` messages that wait for the queue, as capacity allows."""
    held = await RemainingCapacity.hold(tx, now, [queue.queue_id])
    await probe_by_key(tx)
    dropped: int = await tx.fetchval(
        _SQL["drop_outdated"].text, now, queue.queue_id, queue.retention_seconds, limit
    )
    room = min(held.empty_places(queue), limit)
    if room <= 0:
        return WaitingSent(0, dropped)
    taken = await tx.fetch(_SQL["take"].text, now, queue.queue_id, room, _MOST_BYTES)
    rows = [row for one in taken if (row := _row(one["message"], one["waited"])) is not None]
    if rows:
        await queue.kind.send(tx, now, rows)
    return WaitingSent(len(rows), dropped + len(taken) - len(rows))


async def last_waiting(tx: Transaction, queue_id: int) -> int:
    """Return a number that separates messages waiting for the queue from later ones."""
    await probe_by_key(tx)
    found: int = await tx.fetchval(_SQL["last"].text, queue_id)
    return found


async def drop_waiting(tx: Transaction, queue_id: int, limit: int, *, up_to: int = _EVER) -> int:
    """Remove at most ``limit`` messages that wait for a deleted queue, or for one purged up to
    ``up_to``; return the count."""
    await probe_by_key(tx)
    gone: int = await tx.fetchval(_SQL["drop"].text, queue_id, up_to, limit)
    return gone


def _row(message: str, waited_seconds: int) -> Row | None:
    """Return the row to send now; None: it has expired."""
    values = json.loads(message)
    ttl = values[TTL_SECONDS]
    if ttl is not None:
        values[TTL_SECONDS] = ttl - waited_seconds
        if ttl <= waited_seconds:
            return None
    digest = values[_DIGEST]
    values[_DIGEST] = None if digest is None else bytes.fromhex(digest)
    row: Row = tuple(values)
    return row


def _stored(row: Row) -> str:
    values = [value.hex() if isinstance(value, bytes) else value for value in row]
    return json.dumps(values, ensure_ascii=False)
