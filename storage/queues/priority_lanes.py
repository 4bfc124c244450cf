"""Lanes of sends and receives for standard queues with priorities or expiring messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.storage.database import RECEIVE_PLANNER, RELAXED_PLANNER, SEND_PLANNER, probe_by_key
from queuegate.storage.lanes import Lane
from queuegate.storage.queries import load
from queuegate.storage.queue_model import Received
from queuegate.storage.queues.messages import FanOut, Receive, Send
from queuegate.storage.queues.standard_lanes import (
    NoParkedReceives,
    StandardLanes,
    Watermarks,
    divide,
)
from queuegate.storage.queues.standard_queues import send_rows_with_priorities

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("queues/priority_lanes")
_RECEIVE = _SQL["receive"].text
_PRIORITY_DEPTHS = _SQL["priority_depths"].text

# In receive order; None: sent before the queue had priorities.
_LEVELS: tuple[int | None, ...] = (*range(10, 0, -1), None, 0)
_PLACES = {priority: place for place, priority in enumerate(_LEVELS)}


class _LevelMarks(Watermarks):
    """The marks of each priority, in receive order."""

    __slots__ = ("levels",)

    def __init__(self) -> None:
        super().__init__()
        self.levels = [Watermarks() for _ in _LEVELS]

    def begin(self, time: float, fresh: list[object], received: list[object]) -> None:
        for level in self.levels:
            level.begin(time, fresh, received)

    def rise(self, found: list[Received], now: datetime, *, is_drained: bool) -> None:
        """Raise the marks before the last priority reached: nothing visible is left there."""
        places = [_PLACES[message.priority] for message in found]
        last = len(_LEVELS) if is_drained else max(places)
        # The last two are scanned together, up to the limit.
        first_of_last = last - 1 if last == _PLACES[0] else last
        for level in self.levels[:first_of_last]:
            level.rise([], now, is_drained=True)
        at_last = [one for one, place in zip(found, places, strict=True) if place == last]
        for level in self.levels[first_of_last : last + 1]:
            level.rise(at_last, now, is_drained=False)

    def look_near(self) -> None:
        for level in self.levels:
            level.look_near()

    def lower(self, sent_at: datetime) -> None:
        for level in self.levels:
            level.lower(sent_at)

    def bound(self) -> datetime:
        return min([level.bound() for level in self.levels])


class PriorityLanes(StandardLanes):
    """Lanes of sends and receives; deletes and visibility changes use those of ``standard``.

    Both share their state of queues: a queue moves to these lanes at its first message with a
    priority or an expiry.
    """

    _send_rows = staticmethod(send_rows_with_priorities)
    _receive_text = _RECEIVE
    _receive_in_one_text = None
    _make_marks = _LevelMarks

    def __init__(self, standard: StandardLanes) -> None:
        self._now = standard._now
        self._marks = standard._marks
        self.on_gone = standard.on_gone
        # No hand-off: only a poll can choose among parked receives by priority.
        self.waiting = NoParkedReceives()
        database = standard._database
        self.send: Lane[Send | FanOut] = Lane(
            "priority_send",
            database,
            self._flush_sends,
            settings=SEND_PLANNER,
            linger_seconds=standard._linger_seconds,
        )
        self.receive: Lane[Receive] = Lane(
            "priority_receive", database, self._flush_receives, settings=RELAXED_PLANNER
        )
        self.lease: Lane[Receive] = Lane(
            "priority_lease", database, self._flush_receives, settings=RECEIVE_PLANNER
        )
        self.delete = standard.delete
        self.visibility = standard.visibility

    @property
    def lanes(self) -> tuple[Lane[Any], ...]:
        """Its own lanes."""
        return self.send, self.receive, self.lease

    def _hand_out(self, chosen: dict[int, list[Receive]], records: Sequence[Iterable[Any]]) -> None:
        found = [Received._make(record) for record in records]
        now = found[0].leased_at
        assert now is not None
        messages: dict[int, list[Received]] = {queue_id: [] for queue_id in chosen}
        for message in found:
            if message.sequence is not None:
                messages[message.queue_id].append(message)
        for queue_id, callers in chosen.items():
            mine = messages[queue_id]
            mine.sort(key=_by_urgency)
            marks = self._marks.get(queue_id)
            # Otherwise the marks were removed or replaced while the statement ran.
            if marks.__class__ is _LevelMarks:
                assert marks is not None
                limit = sum([entry.limit for entry in callers])
                marks.rise(mine, now, is_drained=len(mine) < limit)
            divide(mine, callers)


def _by_urgency(message: Received) -> tuple[int, int]:
    return -(message.priority or 0), message.sequence


class PriorityDepth(NamedTuple):
    """One priority of a queue."""

    priority: int
    visible: int
    """Receivable messages, counted up to a limit, separately for received and fresh ones."""
    oldest_at: datetime | None
    """The send time of the next message."""
    now: datetime


async def priority_depths(
    tx: Transaction, now: datetime | None, queue_id: int, *, most: int
) -> list[PriorityDepth]:
    """Return the depths of a queue, most urgent first, in time independent of its depth."""
    await probe_by_key(tx)
    rows = await tx.fetch(_PRIORITY_DEPTHS, now, queue_id, most)
    return [PriorityDepth(*row) for row in rows]
