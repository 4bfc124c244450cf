"""Remaining capacity of bounded queues.

Every transaction that adds messages to such a queue first reserves capacity here. No other
transaction adds any until it ends, so messages found to fit do fit. The size of a queue never
changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.model import Queue
from queuegate.storage.queries import load
from queuegate.storage.queues.rows import DEDUP_KEY, Row

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_HOLD = load("queues/rooms")["hold"].text


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
    """Reserve capacity for the part, and record its keys as duplicates; return False if it does not
    fit."""
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
