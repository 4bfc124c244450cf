"""Bounded queues: their remaining capacity, their sends, and the messages that wait for capacity.

Every transaction that adds messages to such a queue first reserves capacity here. No other
transaction adds any until it ends, so messages found to fit do fit. The size of a queue never
changes. A full queue refuses sends. Messages that cannot be sent again are diverted or wait: copies
of topics, and dead letters of web hooks and schedules. Waiting messages enter before later ones, in
order; a message waits at most for the retention of its queue.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.queries import load
from queuegate.storage.queue_model import DEDUP_KEY, TTL_SECONDS, Queue, QueueKind, Row, SentMessage
from queuegate.storage.queues.messages import BoundedSend, within_groups
from queuegate.storage.storage_errors import QueueDoesNotExist, QueueFull

if TYPE_CHECKING:
    from queuegate.storage.database import Connection, Transaction


_SQL = load("queues/capacity")
_HOLD = _SQL["hold"].text
_MOST_BYTES = 4 << 20
_DIGEST = 7
_EVER = (1 << 63) - 1


class RemainingCapacity:
    """The remaining capacity of locked queues, updated as the transaction fills them."""

    def __init__(self, rooms: dict[int, int], waiting: dict[int, int]) -> None:
        self._rooms = rooms
        self._waiting = waiting

    @classmethod
    async def hold(
        cls, tx: Transaction, now: datetime | None, queue_ids: Iterable[int]
    ) -> RemainingCapacity:
        """Lock the bounded ones of these queues against other additions, in the order of their ids,
        until the transaction ends. Messages expired by ``now`` need no capacity.

        Call once in a transaction, for all queues, before it locks topics, messages or groups.
        """
        row = await tx.fetchrow(_HOLD, now, sorted(set(queue_ids)))
        assert row is not None
        ids, rooms, waiting = (one or () for one in row)
        return cls(dict(zip(ids, rooms, strict=True)), dict(zip(ids, waiting, strict=True)))

    @property
    def room(self) -> dict[int, int]:
        """Capacity by bounded queue for new messages: waiting messages come first."""
        return {
            queue_id: max(room - self._waiting[queue_id], 0)
            for queue_id, room in self._rooms.items()
        }

    @property
    def are_overfull(self) -> bool:
        """Return True if a queue exceeds its capacity."""
        return min(self._rooms.values(), default=0) < 0

    def empty_places(self, queue: Queue) -> int:
        """Return the capacity of a bounded queue for waiting messages."""
        return self._rooms.get(queue.queue_id, 0)

    def take(self, queue: Queue) -> bool:
        """Reserve capacity for one message; return False if there is none."""
        queue_id = queue.queue_id
        if queue_id not in self._rooms:
            return True
        waiting = self._waiting[queue_id]
        if (waiting and queue.kind.has_groups) or self._rooms[queue_id] <= waiting:
            return False
        self._rooms[queue_id] -= 1
        return True

    def wait(self, queue: Queue) -> None:
        """Count a message as waiting for the queue."""
        self._waiting[queue.queue_id] += 1


async def capacity_of(
    tx: Transaction, queue_ids: Iterable[int], now: datetime | None = None
) -> dict[int, int]:
    """Return the capacity as in ``RemainingCapacity.hold``; unbounded queues are absent."""
    return (await RemainingCapacity.hold(tx, now, queue_ids)).room


class Part(NamedTuple):
    """Messages for one queue, written all or none."""

    queue: Queue
    rows: Sequence[Row]


class Fitting(NamedTuple):
    """The parts that fit."""

    fits: list[bool]
    """One for each part."""
    doubtful: frozenset[int]
    """Queues in which some messages fit only as duplicates. If their deduplication ids were deleted
    meanwhile, the queues are overfull after the send (``RemainingCapacity.are_overfull``)."""


async def find_fitting(
    tx: Transaction, now: datetime | None, parts: Sequence[Part], *, folds_repeats: bool = True
) -> Fitting:
    """Lock the bounded queues of these parts and choose the parts that fit, in order.

    A part that does not fit leaves its capacity to later ones. ``folds_repeats``: duplicates need
    no capacity.
    """
    room = await capacity_of(tx, {part.queue.queue_id for part in parts}, now)
    wanted: Counter[int] = Counter()
    for part in parts:
        wanted[part.queue.queue_id] += len(part.rows)
    short = {queue_id for queue_id, left in room.items() if wanted[queue_id] > left}
    if not short:
        return Fitting([True] * len(parts), frozenset())
    repeats: dict[int, set[str | None]] = {}
    if folds_repeats:
        for queue_id in short:
            mine = [part for part in parts if part.queue.queue_id == queue_id]
            rows = [row for part in mine for row in part.rows]
            repeats[queue_id] = {*await mine[0].queue.kind.find_repeats(tx, now, rows)}
    doubtful = frozenset(queue_id for queue_id, keys in repeats.items() if keys)
    return Fitting([_takes(room, repeats, part) for part in parts], doubtful)


def _takes(room: dict[int, int], repeats: dict[int, set[str | None]], part: Part) -> bool:
    """Reserve capacity for the part and note its keys; return False if it does not fit."""
    queue_id = part.queue.queue_id
    if queue_id not in room:
        return True
    known = repeats.get(queue_id)
    count = len(part.rows)
    keys = {row[DEDUP_KEY] for row in part.rows} if part.queue.kind.has_groups else set()
    if known is not None and keys:
        count = len(keys - known)
    if count > room[queue_id]:
        return False
    room[queue_id] -= count
    if known is not None:
        known |= keys
    return True


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
        await _SQL["insert"].run(tx, now, ids, [_stored(one.row) for one in waiting])
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


async def find_waiting(
    tx: Transaction, now: datetime | None, after: int, limit: int, *whose: object
) -> tuple[list[int], int | None]:
    """Find the next queues with waiting messages and work. Also return the queue to continue
    behind; None: no more. ``whose`` is the account filter."""
    rows = await _SQL["find"].by_key.rows(tx, now, after, limit, *whose)
    last = rows[-1]["queue_id"] if len(rows) == limit else None
    return [row["queue_id"] for row in rows if row["is_due"]], last


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
    dropped: int = await _SQL["drop_outdated"].by_key.value(
        tx, now, queue.queue_id, queue.retention_seconds, limit
    )
    room = min(held.empty_places(queue), limit)
    if room <= 0:
        return WaitingSent(0, dropped)
    taken = await _SQL["take"].rows(tx, now, queue.queue_id, room, _MOST_BYTES)
    rows = [row for one in taken if (row := _row(one["message"], one["waited"])) is not None]
    if rows:
        await queue.kind.send(tx, now, rows)
    return WaitingSent(len(rows), dropped + len(taken) - len(rows))


async def last_waiting(tx: Transaction, queue_id: int) -> int:
    """Return a number that separates messages waiting for the queue from later ones."""
    return await _SQL["last"].by_key.value(tx, queue_id)


async def drop_waiting(tx: Transaction, queue_id: int, limit: int, *, up_to: int = _EVER) -> int:
    """Remove at most ``limit`` messages that wait for a deleted queue, or for one purged up to
    ``up_to``; return the count."""
    return await _SQL["drop"].by_key.value(tx, queue_id, up_to, limit)


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


_Outcome = SentMessage | QueueFull | None
"""The outcome of one message; None: its queue is deleted."""


class _Written(NamedTuple):
    """The result of one flush."""

    outcomes: list[_Outcome]
    """One for each message, in order."""
    prioritised: list[int]
    """As in ``Sent``."""


class _Overfilled(Exception):
    """A message taken for a duplicate was none: roll back the flush."""


OnSent = Callable[[Iterable[int], datetime], None]
"""Receives the standard queues written to, before the commit."""


async def send_bounded(
    connection: Connection,
    now: datetime | None,
    batch: list[BoundedSend],
    on_sent: OnSent,
    on_gone: Callable[[int], None],
) -> list[BoundedSend]:
    """Send messages to bounded queues and answer the entries; return those for the next flush.

    ``on_gone`` is called with queues found deleted or changed to another kind.
    """
    batch, left = within_groups(batch)
    parts = [part for entry in batch for part in _parts(entry)]
    try:
        async with connection.transaction():
            written = await _write(connection, now, parts, on_sent, folds_repeats=True)
    except _Overfilled:
        async with connection.transaction():
            written = await _write(connection, now, parts, on_sent, folds_repeats=False)
    for queue_id in written.prioritised:
        on_gone(queue_id)
    answers = iter(written.outcomes)
    for entry in batch:
        outcomes = [next(answers) for _ in entry.messages]
        if None in outcomes:
            on_gone(entry.party())
        _answer(entry, outcomes)
    return left


async def _write(
    tx: Transaction,
    now: datetime | None,
    parts: list[Part],
    on_sent: OnSent,
    *,
    folds_repeats: bool,
) -> _Written:
    found = await find_fitting(tx, now, parts, folds_repeats=folds_repeats)
    rows: dict[QueueKind, list[Row]] = {}
    for part, fits in zip(parts, found.fits, strict=True):
        if fits:
            rows.setdefault(part.queue.kind, []).extend(part.rows)
    written: dict[QueueKind, Iterator[SentMessage | None]] = {}
    prioritised: list[int] = []
    for kind, some in rows.items():
        sent = await kind.send(tx, now, some, wants_sequences=True)
        written[kind] = iter(sent.messages(some))
        prioritised += sent.prioritised
        for queue_id, sent_at in sent.sent_at.items():
            on_sent((queue_id,), sent_at)
    if found.doubtful and (await RemainingCapacity.hold(tx, now, found.doubtful)).are_overfull:
        raise _Overfilled
    outcomes: list[_Outcome] = []
    for part, fits in zip(parts, found.fits, strict=True):
        queue = part.queue
        for _ in part.rows:
            outcomes.append(next(written[queue.kind]) if fits else QueueFull(queue))
    return _Written(outcomes, prioritised)


def _answer(entry: BoundedSend, outcomes: list[_Outcome]) -> None:
    told: list[SentMessage | QueueFull] = []
    tells_sequences = entry.wants_sequences or entry.queue.kind.has_groups
    for one in outcomes:
        if one is None:
            entry.failed(QueueDoesNotExist())
            return
        if isinstance(one, QueueFull) and not entry.is_partial:
            entry.failed(one)
            return
        if isinstance(one, SentMessage) and not tells_sequences:
            one = one._replace(sequence=None)
        told.append(one)
    entry.done(told)


def _parts(entry: BoundedSend) -> list[Part]:
    """Return the parts of an entry; the messages of a part are sent all or none."""
    if entry.is_partial:
        return [Part(entry.queue, [row]) for row in entry.messages]
    return [Part(entry.queue, entry.messages)]
