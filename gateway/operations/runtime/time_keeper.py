"""Keeps the present continuous when the clock of the database server steps.

The present of all processes is one line of time: the server's clock plus an offset, which all
processes read from the database. Each process continues the line by its own monotonic clock and
gives statements their instant, so the server's clock decides nothing between two rounds. A round
compares both. If the server's clock moved by more than the time that certainly passed, it has
stepped, and one process changes the offset by as much. The others then find the line where they
expect it.

A round knows the server's clock only within its round trip: the clock was read between the request
and the answer. So the line has an earliest and a latest bound. Sends use the earliest bound and
everything else the latest. A message is then never ahead of the process that receives it. A server,
a process or an event loop that stands still widens the bounds of one round and moves nothing. If
the monotonic clock of a process stood still, the mark of the others is ahead: it follows them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage import stored_clocks
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.telemetry.series import ClockSeries
    from queuegate.storage.database import Database


_log = logging.getLogger("queuegate.clock")

_PAUSE_SECONDS = 1.0
_PAUSE_AHEAD_SECONDS = 0.25
_PAUSE_UNSURE_SECONDS = 0.05
# Two clocks drift apart by less: NTP corrects a clock by at most 500 millionths.
_DRIFT = 0.001
# Smaller steps are followed.
_SMALLEST_STEP_SECONDS = 0.02
# A longer step forward is time that passed: a virtual machine was paused with all its clocks.
_LONGEST_STEP_SECONDS = 10_800.0
# Steps are measured by shorter round trips than the first; on a busy machine, than the second.
_EXACT_SECONDS = 0.004
_MOST_UNSURE_SECONDS = 0.05
# Clocks are corrected by milliseconds all the time: smaller differences are not reported.
_STEP_SECONDS = 0.1
# The offset shrinks by these parts of the time that passes. Time that loses a fiftieth makes waits
# longer; time that gains would end leases early, so it gains as little as NTP allows a clock.
_LOSES = 1 / 50
_GAINS = 1 / 2_000
# Allows for drift and for a change of the offset that this process has not read yet.
_MARGIN_SECONDS = 0.002
_MARGIN_OFF_SECONDS = 0.012
_WAIT_FOR_OTHERS_SECONDS = 1.5
# A mark that is older shows that no process keeps the time.
_SILENCE_SECONDS = 2.0
_MOST_READINGS = 3
_MICROSECONDS = 1e6
# On Linux it counts while the machine sleeps.
_MONOTONIC = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ClockBounds(NamedTuple):
    """Bounds of the seconds between a clock and the monotonic clock of this process."""

    low: float
    high: float

    def moved(self, seconds: float) -> ClockBounds:
        return ClockBounds(self.low + seconds, self.high + seconds)

    def widened(self, seconds: float) -> ClockBounds:
        return ClockBounds(self.low - seconds, self.high + seconds)

    def within(self, other: ClockBounds) -> ClockBounds:
        """Return what both allow; ``low`` is above ``high`` if they contradict each other."""
        return ClockBounds(max(self.low, other.low), min(self.high, other.high))

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


class LineReading(NamedTuple):
    """The server's clock and the offset of the line, as one round found them."""

    clock: ClockBounds
    offset_us: int
    mark: float
    """Seconds since the epoch; 0: no process has ever kept the time."""
    answered: float

    @property
    def line(self) -> ClockBounds:
        return self.clock.moved(self.offset_us / _MICROSECONDS)


class TimeKeeper:
    """The line of time of this process, and the job that compares it with the database."""

    name = "keep time"

    def __init__(
        self,
        database: Database,
        tally: ClockSeries,
        monotonic: Callable[[], float] = _MONOTONIC,
    ) -> None:
        self._database = database
        self._tally = tally
        self._monotonic = monotonic
        self._line = ClockBounds(0.0, 0.0)
        self._offset_us = 0
        self._offset_since = 0.0
        self._compared_at = 0.0
        self._earliest = self._latest = 0.0
        self._unsure_count = 0
        """Rounds in a row that could not tell what happened."""
        self._round = asyncio.Lock()
        self.reports_distance = False
        """One process reports the distance of the server's clock: metrics sum it up."""

    @property
    def pause_seconds(self) -> float:
        """Return the pause between two rounds."""
        if self._unsure_count:
            return _PAUSE_UNSURE_SECONDS
        return _PAUSE_AHEAD_SECONDS if self._offset_us > 0 else _PAUSE_SECONDS

    def now(self) -> datetime:
        """Return the present, which no process that sends is ahead of."""
        return datetime.fromtimestamp(self._monotonic() + self._latest, UTC)

    def now_of_sends(self) -> datetime:
        """Return the present, which is not ahead of any process that receives."""
        return datetime.fromtimestamp(self._monotonic() + self._earliest, UTC)

    def now_of_clock(self) -> datetime:
        """Return what the server's clock shows, but not before the present of sends: a message that
        is due is not sent before that."""
        behind = min(self._offset_us, 0) / _MICROSECONDS
        return datetime.fromtimestamp(self._monotonic() + self._earliest - behind, UTC)

    async def begin(self) -> None:
        """Continue the line of the other processes, or where the last one left it.

        The server's clock may have stepped and no process have found it yet. So if other processes
        keep the time, one of them confirms the line first.
        """
        found = await self._read()
        if found.mark and await self._is_kept():
            found = await self._confirmed(found)
        elif (
            found.offset_us < 0
            and found.line.low + found.answered - found.mark > _SILENCE_SECONDS
            and await self._change_offset(found.offset_us, 0)
        ):
            # The clock is ahead since a step. Nobody has a present that it could contradict.
            found = await self._read()
        late = found.mark - found.line.high - found.answered
        if late > 0.0:
            offset_us = found.offset_us + round(late * _MICROSECONDS)
            if await self._change_offset(found.offset_us, offset_us):
                self._report_step(-late)
            found = await self._read()
        self._set(found.line, found)
        for _ in range(_MOST_READINGS):
            if self._line.width > _EXACT_SECONDS:
                await self.run_round()

    async def _is_kept(self) -> bool:
        async with self._database.statements() as connection:
            return await stored_clocks.is_time_kept(connection)

    async def _confirmed(self, first: LineReading) -> LineReading:
        async with self._database.transaction() as tx:
            await stored_clocks.ask_for_time(tx)
        deadline = self._monotonic() + _WAIT_FOR_OTHERS_SECONDS
        found = first
        while found.mark == first.mark and self._monotonic() < deadline:
            await asyncio.sleep(_PAUSE_UNSURE_SECONDS)
            found = await self._read()
        # The process that raised the mark changes the offset in the same round.
        await asyncio.sleep(_PAUSE_UNSURE_SECONDS)
        return await self._read()

    async def run_round(self, rows: int = 1) -> int:
        """Compare the line with the database once."""
        async with self._round:
            found = await self._read(self.now_of_sends())
            passed = found.answered - self._compared_at
            await self._compare(found, self._line.widened(max(passed, 0.0) * _DRIFT))
            if self.reports_distance:
                behind = self._offset_us / _MICROSECONDS
                self._tally.behind_seconds = behind if abs(behind) >= _STEP_SECONDS else 0.0
        return 0

    async def asked_for_time(self) -> None:
        """Confirm the line for a process that starts."""
        try:
            await self.run_round()
        except Unavailable as error:
            _log.log(error.log_level, "cannot confirm the time: %s", error)

    async def _read(self, kept: datetime | None = None) -> LineReading:
        async with self._database.statements() as connection:
            asked = self._monotonic()
            found = await stored_clocks.read_present(connection, kept)
            answered = self._monotonic()
        clock = found.clock.timestamp()
        mark = 0.0 if found.mark is None else found.mark.timestamp()
        return LineReading(
            ClockBounds(clock - answered, clock - asked), found.offset_us, mark, answered
        )

    async def _compare(self, found: LineReading, line: ClockBounds) -> None:
        """Follow the line, or keep it and correct the offset if the clock has stepped.

        Another process may have changed the offset. It moves the line with it, unless it has
        corrected a step.
        """
        moved = (found.offset_us - self._offset_us) / _MICROSECONDS
        fitting = [shift for shift in {moved, 0.0} if _fits(found.line, line.moved(shift))]
        is_large = abs(moved) >= _SMALLEST_STEP_SECONDS
        unsure, self._unsure_count = self._unsure_count + 1, 0
        # Far from the database every round trip is long.
        exact = min(_EXACT_SECONDS * 2 ** min(unsure, 4), _MOST_UNSURE_SECONDS)
        exact = max(exact, _EXACT_SECONDS * unsure)
        if len(fitting) > 1 and is_large and found.line.width > exact:
            self._unsure_count = unsure
        elif fitting:
            shift = moved if moved in fitting else 0.0
            both = found.line.within(line.moved(shift))
            if both == line.moved(shift):
                # A long round trip says nothing.
                both = self._line.moved(shift)
                found = found._replace(answered=self._compared_at)
            self._set(both if both.width >= 0.0 else found.line, found)
            if not moved:
                await self._approach(found)
        elif found.line.width > exact:
            self._unsure_count = unsure
        elif line.high + _STEP_SECONDS < found.mark - found.answered <= found.line.high:
            _log.warning(
                "this process stood still, also its monotonic clock, as in a virtual machine that "
                "was paused. It goes on with the time of the other processes."
            )
            self._set(found.line, found)
        elif found.line.middle - line.moved(moved).middle > _LONGEST_STEP_SECONDS:
            _log.warning(
                "the clock of the database went forward by %.0f s, as after a pause of the "
                "machine: this counts as time that passed",
                found.line.middle - line.moved(moved).middle,
            )
            self._tally.forward_count += 1
            self._set(found.line, found)
        else:
            # A large change has corrected a step, and the clock has stepped again.
            is_done = await self._correct(found, line if is_large else line.moved(moved))
            self._unsure_count = 0 if is_done else unsure

    async def _correct(self, found: LineReading, line: ClockBounds) -> bool:
        step = found.line.middle - line.middle
        offset_us = found.offset_us - round(step * _MICROSECONDS)
        if not await self._change_offset(found.offset_us, offset_us):
            return False
        self._report_step(step)
        found = found._replace(offset_us=offset_us)
        self._set(found.line, found)
        return True

    async def _approach(self, found: LineReading) -> None:
        """Let the present approach the server's clock, if no other process has meanwhile."""
        kept = max(found.answered - self._offset_since, 0.0)
        least = -min(kept, _PAUSE_AHEAD_SECONDS) * _LOSES * _MICROSECONDS
        most = min(kept, _PAUSE_SECONDS) * _GAINS * _MICROSECONDS
        change = int(min(max(-self._offset_us, least), most))
        if change and await self._change_offset(found.offset_us, found.offset_us + change):
            changed = found._replace(offset_us=found.offset_us + change)
            self._set(self._line.moved(change / _MICROSECONDS), changed)
            if not changed.offset_us:
                _log.info("the clock of the database and the present are the same again")

    async def _change_offset(self, seen_us: int, offset_us: int) -> bool:
        async with self._database.statements() as connection:
            return await stored_clocks.change_offset(connection, seen_us, offset_us)

    def _set(self, line: ClockBounds, found: LineReading) -> None:
        if found.offset_us != self._offset_us:
            self._offset_since = self._monotonic()
        self._line, self._offset_us = line, found.offset_us
        self._compared_at = found.answered
        margin = _MARGIN_OFF_SECONDS if found.offset_us else _MARGIN_SECONDS
        half = min(line.width, _MOST_UNSURE_SECONDS) / 2
        self._earliest, self._latest = line.middle - half - margin, line.middle + half + margin

    def _report_step(self, seconds: float) -> None:
        if seconds >= _STEP_SECONDS:
            self._tally.forward_count += 1
            _log.warning(
                "the clock of the database stepped forward by %.1f s. Time goes on from where it "
                "was, so no timeout ends early. It gains a second in %d until it has caught up.",
                seconds,
                round(1 / _GAINS),
            )
        elif seconds <= -_STEP_SECONDS:
            self._tally.step_count += 1
            _log.warning(
                "the clock of the database stepped back by %.1f s. Time goes on from where it was, "
                "a fiftieth slower, until the clock has caught up.",
                -seconds,
            )


def _fits(found: ClockBounds, expected: ClockBounds) -> bool:
    return found.within(expected).width > -_SMALLEST_STEP_SECONDS
