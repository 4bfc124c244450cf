"""Scan watermarks of standard queues: receives skip the dead index entries of consumed messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from queuegate.storage.queries import load
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Database
    from queuegate.storage.queue_model import Received

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
# The distance of a mark behind a receive: a send takes time before it commits.
WATERMARK_LAG = timedelta(milliseconds=250)
_NEAR_SECONDS = 1.0
NEAR_REACH = timedelta(seconds=10)
_NO_REACH = timedelta()
_FAR_SECONDS = 30.0
_SCAN_SHARE = 200.0
LONG_SCAN_SECONDS = _FAR_SECONDS / _SCAN_SHARE
_MOST_FAR_SECONDS = 900.0


class Watermarks:
    """Scan watermarks: nothing visible lies left of these instants, as this process knows."""

    __slots__ = ("far_at", "fresh", "is_due", "is_slow", "near_at", "received")

    def __init__(self) -> None:
        self.fresh = BEGINNING
        self.received = BEGINNING
        self.near_at = 0.0
        self.far_at = 0.0
        self.is_slow = False
        """The last scan from the far left was long: receives leave the next one to ``FarScans``."""
        self.is_due = False
        """That scan is due."""

    def reach(self, time: float) -> timedelta | None:
        """Return the distance to scan left of the marks now; None: from the far left."""
        if time >= self.far_at:
            self.far_at = time + _FAR_SECONDS
            self.near_at = time + _NEAR_SECONDS
            return None
        if time >= self.near_at:
            self.near_at = time + _NEAR_SECONDS
            return NEAR_REACH
        return _NO_REACH

    def took(self, time: float, seconds: float) -> None:
        """Note how long the scan of this time took."""
        if self.far_at == time + _FAR_SECONDS:
            self.put_off(time, seconds)

    def put_off(self, time: float, seconds: float) -> None:
        """Put off the next scan from the far left, after one that took so long.

        While vacuum is held back, dead entries stay: these scans get half a percent of the time.
        """
        self.is_slow = seconds >= LONG_SCAN_SECONDS
        self.far_at = time + min(max(seconds * _SCAN_SHARE, _FAR_SECONDS), _MOST_FAR_SECONDS)

    def begin(self, time: float, fresh: list[object], received: list[object]) -> None:
        """Append the start of a scan."""
        reach = self.reach(time)
        if reach is None and self.is_slow:
            self.is_due, reach = True, NEAR_REACH
        if reach is None:
            fresh.append(BEGINNING)
            received.append(BEGINNING)
        else:
            fresh.append(self.fresh - reach)
            received.append(self.received - reach)

    def rise(self, found: list[Received], now: datetime, *, is_drained: bool) -> None:
        """Raise the marks: left of the first message found, everything is consumed or hidden.
        ``is_drained``: so is everything else."""
        if is_drained:
            self.fresh = self.received = now - WATERMARK_LAG
            return
        fresh = [message.sent_at_ms for message in found if message.receive_count == 1]
        if fresh:
            oldest = datetime.fromtimestamp(min(fresh) / 1000, UTC) - WATERMARK_LAG
            self.fresh = max(self.fresh, oldest)
        if len(fresh) == len(found):
            self.received = max(self.received, now - WATERMARK_LAG)

    def look_near(self) -> None:
        """Start the next scan a little further left: messages came from elsewhere."""
        self.near_at = 0.0

    def lower(self, sent_at: datetime) -> None:
        """Lower the marks for a send whose commit took longer than the lag."""
        if sent_at < self.fresh:
            self.fresh = sent_at - WATERMARK_LAG

    def bound(self) -> datetime:
        """Return the mark left of which nothing visible lies."""
        return min(self.fresh, self.received)


# In receive order; None: sent before the queue had priorities.
_LEVELS: tuple[int | None, ...] = (*range(10, 0, -1), None, 0)
_PLACES = {priority: place for place, priority in enumerate(_LEVELS)}


class PriorityMarks(Watermarks):
    """The marks of each priority, in receive order."""

    __slots__ = ("levels",)

    def __init__(self) -> None:
        super().__init__()
        self.levels = [Watermarks() for _ in _LEVELS]

    def took(self, time: float, seconds: float) -> None:
        for level in self.levels:
            level.took(time, seconds)
            level.is_slow = False

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


_MICROSECOND = timedelta(microseconds=1)
_FEW_SECONDS = timedelta(seconds=10)

Cursor = tuple[datetime, datetime]
"""The start of the next scan: among messages received before, and among fresh ones."""
START: Cursor = (BEGINNING, BEGINNING)


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
        self.late: Cursor = START
        self.late_until: Cursor = START
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
        self.late = START if reach is None else (received - _FEW_SECONDS, fresh - _FEW_SECONDS)

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


_log = logging.getLogger("queuegate.lanes")
_IS_LEFT = load("queues/standard_queues")["is_left"].text
_AT_MOST = "SET LOCAL statement_timeout = '60s'"
"""A longer transaction would lose its connection, and count as an outage (``storage.database``)."""


class FarScans:
    """Looks left of the marks of queues that have many dead entries there.

    A receive that reads them all holds up the others for seconds, so it is made only once, and
    again after something was found here.
    """

    def __init__(
        self,
        database: Database,
        marks: dict[int, Watermarks],
        now_of: Callable[[int], datetime | None],
    ) -> None:
        self._database = database
        self._marks = marks
        self._now_of = now_of
        self._due: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self, queue_id: int, retention_seconds: int) -> None:
        """Look at a queue, after those that are due before it."""
        self._due[queue_id] = retention_seconds
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="far scans")

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._due:
                queue_id = next(iter(self._due))
                await self._look(queue_id, self._due.pop(queue_id))
        except Unavailable as error:
            _log.debug("scan from the far left: %s", error)
        finally:
            self._task = None

    async def _look(self, queue_id: int, retention_seconds: int) -> None:
        clock = asyncio.get_running_loop().time
        marks, began = self._marks.get(queue_id), clock()
        if marks is None:
            return
        # Receives look at what lies nearer themselves.
        ends = marks.fresh - NEAR_REACH, marks.received - NEAR_REACH
        now, least_seconds = self._now_of(queue_id), LONG_SCAN_SECONDS
        try:
            async with self._database.transaction() as tx:
                await tx.execute(_AT_MOST)
                is_left = await tx.fetchval(_IS_LEFT, now, queue_id, *ends, retention_seconds)
            least_seconds = 0.0
        finally:
            # A scan that failed stays with this task, and is no more frequent.
            marks.put_off(began, max(clock() - began, least_seconds))
        if is_left and self._marks.get(queue_id) is marks:
            del self._marks[queue_id]
