"""Queues that hold only so many messages: how many more each may take.

Whoever adds messages to such a queue asks here first, in the same transaction: from then on nobody
else adds any until it ends, so what was found to fit does fit. The size of a queue never changes.
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


class Rooms:
    """The room in queues that the transaction has locked, as it fills them."""

    def __init__(self, rooms: dict[int, int], waiting: dict[int, int]) -> None:
        self._rooms = rooms
        self._waiting = waiting

    @classmethod
    async def hold(cls, tx: Transaction, now: datetime | None, queue_ids: Iterable[int]) -> Rooms:
        """Lock the bounded ones among these queues against all others that add to them, in the
        order of their ids, to the end of the transaction. What has expired by ``now`` takes no
        room.

        Once in a transaction, for all queues: before it locks topics, messages or groups.
        """
        row = await tx.fetchrow(_HOLD, now, sorted(set(queue_ids)))
        assert row is not None
        ids, rooms, waiting = (one or () for one in row)
        return cls(dict(zip(ids, rooms, strict=True)), dict(zip(ids, waiting, strict=True)))

    @property
    def room(self) -> dict[int, int]:
        """What each bounded queue has for whoever comes now: others wait before them."""
        return {
            queue_id: max(room - self._waiting[queue_id], 0)
            for queue_id, room in self._rooms.items()
        }

    @property
    def are_overfull(self) -> bool:
        """Whether one holds more than it may."""
        return min(self._rooms.values(), default=0) < 0

    def empty_places(self, queue: Queue) -> int:
        """How many messages more a bounded queue may hold, for those that wait."""
        return self._rooms.get(queue.queue_id, 0)

    def take(self, queue: Queue) -> bool:
        """Whether there is room for a message; then it is taken."""
        queue_id = queue.queue_id
        if queue_id not in self._rooms:
            return True
        waiting = self._waiting[queue_id]
        if (waiting and queue.kind.has_groups) or self._rooms[queue_id] <= waiting:
            return False
        self._rooms[queue_id] -= 1
        return True

    def wait(self, queue: Queue) -> None:
        """A message waits for the queue."""
        self._waiting[queue.queue_id] += 1


async def rooms(
    tx: Transaction, queue_ids: Iterable[int], now: datetime | None = None
) -> dict[int, int]:
    """``Rooms.hold``: how many more messages each of these queues may hold for whoever asks, as
    long as the transaction lasts; those that hold any number are absent."""
    return (await Rooms.hold(tx, now, queue_ids)).room


class Part(NamedTuple):
    """Messages for one queue, of which all or none are to be written."""

    queue: Queue
    rows: Sequence[Row]


class Fitting(NamedTuple):
    """Which parts fit."""

    fits: list[bool]
    """One for each."""
    doubtful: frozenset[int]
    """Queues where some fit only as repeats of what is there: when these were forgotten meanwhile,
    the queues are overfull after the send (``Rooms.are_overfull``)."""


async def find_fitting(
    tx: Transaction, now: datetime | None, parts: Sequence[Part], *, folds_repeats: bool = True
) -> Fitting:
    """Lock the queues of these parts that are bounded, and choose what fits, in order. A part that
    does not fit leaves its room to later ones.

    ``folds_repeats``: what deduplication folds takes no room.
    """
    room = await rooms(tx, {part.queue.queue_id for part in parts}, now)
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
    """Whether the part fits; then its room is taken, and its messages can be repeated."""
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
