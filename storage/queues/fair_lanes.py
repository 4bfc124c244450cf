"""Fair queues: the lane of receives by message group, and samples and backlogs of groups."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.database import RELAXED_PLANNER, probe_by_key
from queuegate.storage.lanes import Lane
from queuegate.storage.queries import load
from queuegate.storage.queue_model import Received
from queuegate.storage.queues.messages import Receive
from queuegate.storage.queues.standard_lanes import (
    BEGINNING,
    WATERMARK_LAG,
    StandardLanes,
    Watermarks,
    divide,
)

if TYPE_CHECKING:
    from queuegate.storage.database import Connection, Transaction


_SQL = load("queues/fair_lanes")
_MOST_IN_FLIGHT = 10_000
"""Messages that a sample of a queue counts."""
_MOST_SHOWN = 20_000
"""Messages of a queue that its metrics count."""


class GroupSample(NamedTuple):
    """One message group of a queue at an instant; ``group`` None: all messages without one."""

    queue_id: int
    group: str | None
    in_flight: int
    sent_at: datetime | None
    now: datetime


class QuietDepth(NamedTuple):
    """Messages of a queue that are in no noisy group."""

    queue_id: int
    visible: int
    in_flight: int
    delayed: int
    oldest_seconds: float


class NotedQueue(NamedTuple):
    """A queue that had messages with groups."""

    queue_id: int
    account_id: str
    region: str
    name: str


async def sample(tx: Transaction, now: datetime | None, queue_ids: list[int]) -> list[GroupSample]:
    """Return the groups of these queues with their messages in flight, 10,000 a queue at most."""
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["sample"].text, now, queue_ids, _MOST_IN_FLIGHT)
    return [GroupSample(*row) for row in rows]


async def backlogs(
    tx: Transaction, now: datetime | None, groups: Sequence[tuple[int, str, datetime, datetime]]
) -> list[bool]:
    """Return whether each (queue, group, received_from, fresh_from) may have visible messages."""
    if not groups:
        return []
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["backlogs"].text, now, *map(list, zip(*groups, strict=True)))
    return [row[0] for row in rows]


async def note(tx: Transaction, queue_ids: list[int]) -> None:
    """Note that these queues have messages with groups."""
    await tx.execute(_SQL["note"].text, queue_ids)


async def noted(tx: Transaction, most: int) -> list[NotedQueue]:
    """Return the ``most`` oldest live queues that had messages with groups."""
    return [NotedQueue(*row) for row in await tx.fetch(_SQL["noted"].text, most)]


async def quiet_depths(
    tx: Transaction, now: datetime | None, queue_ids: list[int], noisy: Sequence[tuple[int, str]]
) -> dict[int, QuietDepth]:
    """Count the messages of these queues in groups that are not ``noisy``, 20,000 of a queue."""
    await probe_by_key(tx)
    ids, groups = [one for one, _ in noisy], [group for _, group in noisy]
    rows = await tx.fetch(_SQL["quiet_depths"].text, now, queue_ids, ids, groups, _MOST_SHOWN)
    return {row[0]: QuietDepth(*row) for row in rows}


_RECEIVE = _SQL["receive"].text
_GROUP = re.compile(r'"MessageGroupId": ?"((?:[^"\\]|\\.)*)"')
_MICROSECOND = timedelta(microseconds=1)
_FEW_SECONDS = timedelta(seconds=10)

Cursor = tuple[datetime, datetime]
"""The start of the next scan: among messages received before, and among fresh ones."""
_START: Cursor = (BEGINNING, BEGINNING)


def group_of(system: str | None) -> str | None:
    """Return the message group of a standard message, escaped as ``standard_group`` returns it."""
    found = _GROUP.search(system) if system else None
    return found[1] if found else None


class FairMarks(Watermarks):
    """Cursors of one queue with noisy groups, beside the watermarks of all its messages.

    Every visible message of a quiet group lies right of ``quiet``, unless its commit was late:
    ``late`` follows from the left, a part at each receive, and finds those.
    """

    __slots__ = ("groups", "late", "late_until", "quiet")

    def __init__(self, before: Watermarks | None = None) -> None:
        super().__init__()
        if before is not None:
            self.fresh, self.received = before.fresh, before.received
        self.quiet: Cursor = (self.received, self.fresh)
        self.late: Cursor = _START
        self.late_until: Cursor = _START
        self.groups: dict[str, Cursor] = {}

    def reaches(
        self, time: float, noisy: list[str]
    ) -> tuple[list[datetime], list[datetime | None]]:
        """Return the start and the end of each range of ``fair_receive``."""
        if all(at >= end for at, end in zip(self.late, self.late_until, strict=True)):
            self._start_late(self.reach(time))
        cursors = [self.groups.setdefault(group, (self.received, self.fresh)) for group in noisy]
        starts = [self.quiet, self.late, *cursors, (self.received, self.fresh)]
        ends: list[datetime | None] = [None, None, *self.late_until]
        froms = [instant for cursor in starts for instant in cursor]
        return froms, ends + [None] * (len(froms) - len(ends))

    def _start_late(self, reach: timedelta | None) -> None:
        """Begin another scan left of ``quiet``, if one is due."""
        if reach == timedelta():
            return
        received, fresh = self.quiet
        self.late_until = (received - _MICROSECOND, fresh - _MICROSECOND)
        self.late = _START if reach is None else (received - _FEW_SECONDS, fresh - _FEW_SECONDS)

    def follow(self, noisy: list[str], reached: list[datetime], now: datetime | None) -> None:
        """Begin the next scan at the end of this one. ``now``: nothing visible was left then."""
        self.quiet = (reached[0], reached[1])
        self.late = (reached[2], reached[3])
        for place, group in enumerate(noisy, 2):
            self.groups[group] = (reached[2 * place], reached[2 * place + 1])
        if now is not None:
            self.rise([], now, is_drained=True)

    def lower(self, sent_at: datetime) -> None:
        """Lower the cursors: a commit slower than the lag may leave its message left of them."""
        super().lower(sent_at)
        before = sent_at - WATERMARK_LAG
        received, fresh = self.quiet
        if sent_at < fresh:
            self.quiet = (received, before)
        for group, (received, fresh) in self.groups.items():
            if sent_at < fresh:
                self.groups[group] = (received, before)


class FairLane:
    """The write batcher of receives from queues with noisy groups, one statement for each queue."""

    def __init__(self, standard: StandardLanes) -> None:
        self._standard = standard
        self.noisy: dict[int, dict[str, int]] = {}
        """By queue, its noisy groups with their messages in flight; empty without any."""
        self.receive: Lane[Receive] = Lane(
            "fair_receive", standard._database, self._flush, settings=RELAXED_PLANNER
        )

    def cursor_of(self, queue_id: int, group: str) -> Cursor:
        """Return the first position of visible messages of a noisy group."""
        marks = self._standard._marks.get(queue_id)
        if isinstance(marks, FairMarks):
            return marks.groups.get(group, _START)
        return _START

    async def _flush(self, connection: Connection, batch: list[Receive]) -> list[Receive]:
        chosen, left = self._standard.choose(batch)
        now = self.receive.now_of(batch[0].queue_id, self._standard._now)
        for queue_id, callers in chosen.items():
            await self._receive(connection, now, queue_id, callers)
        return left

    async def _receive(
        self, connection: Connection, now: datetime | None, queue_id: int, callers: list[Receive]
    ) -> None:
        in_flight = self.noisy.get(queue_id, {})
        noisy = sorted(in_flight, key=lambda group: in_flight[group])
        all_marks = self._standard._marks
        marks = all_marks.get(queue_id)
        if not isinstance(marks, FairMarks):
            marks = all_marks[queue_id] = FairMarks(marks)
        limit = sum([entry.limit for entry in callers])
        first = callers[0]
        looked, *rows = await connection.fetch(
            _RECEIVE,
            now,
            queue_id,
            limit,
            first.retention_seconds,
            first.visibility_ms,
            noisy,
            *marks.reaches(asyncio.get_running_loop().time(), noisy),
        )
        mine = [Received(*row[:-1]) for row in rows]
        # Marks removed or replaced while the statement ran stay as they are.
        if all_marks.get(queue_id) is marks:
            is_drained = len(mine) < limit
            marks.follow(noisy, looked["reached"], looked["leased_at"] if is_drained else None)
        places = {group: place for place, group in enumerate(noisy, 1)}
        placed = []
        for message in mine:
            group = group_of(message.system)
            if group in in_flight:
                in_flight[group] += 1
            placed.append((places.get(group or "", 0), message.sequence, message))
        # The sort compares no messages: sequences are unique.
        divide([message for _, _, message in sorted(placed)], callers)
