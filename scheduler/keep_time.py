"""Keeps the present of statements monotonic when the clock of the database server steps back.

After a step back, the present stays at its noted value (``present()`` of functions/present.sql).
From there it advances at nine tenths of real time, by the process's monotonic clock, until the
server's clock has caught up. So a timeout takes a ninth longer, not longer by the whole step.

The server read a present at some instant before its answer arrived. Only the time from the answer
to the next request is certain to have passed, and only this time advances the present. A server, a
process or an event loop that stalls slows the present down and never puts it ahead.

Steps forward apply at once. Statements cannot tell a step from time that passed. A present that
needed a confirmation from this job would jump whenever the job is late.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from queuegate.storage import stored_clocks
from queuegate.storage.database import Database

_log = logging.getLogger("queuegate.clock")

_PAUSE_SECONDS = 1.0
_PAUSE_BEHIND_SECONDS = 0.05
_PACE = 0.9
# A time granted just before the present advances loses at most this much.
_MOST_AT_ONCE_SECONDS = 0.05
# Clocks are corrected by milliseconds all the time: smaller differences are no step.
_STEP_SECONDS = 0.1


class ClockTally(Protocol):
    """Counters and gauges for metrics."""

    def stands_behind(self, seconds: float) -> None:
        """Set the seconds that the clock is behind its earlier value."""

    def stepped_back(self) -> None:
        """Count a step back."""

    def stepped_forward(self) -> None:
        """Count a step forward."""


class KeepTime:
    """The job that keeps time. Any number of processes may run it: their presents nearly agree."""

    name = "keep time"

    def __init__(
        self, database: Database, tally: ClockTally, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._tally = tally
        self._monotonic = monotonic
        self._behind: tuple[datetime, float] | None = None
        """While the clock is behind: the present of the last round, and the time of its answer."""
        self._looked: tuple[datetime, float] | None = None
        """The clock of the last round, and the time of its request."""

    @property
    def pause_seconds(self) -> float:
        """Return a short pause while the clock is behind: only rounds advance the present then."""
        return _PAUSE_SECONDS if self._behind is None else _PAUSE_BEHIND_SECONDS

    async def run_round(self, rows: int) -> int:
        """Read the clock once."""
        asked = self._monotonic()
        at_least = None
        if self._behind is not None:
            present, answered = self._behind
            passed = (asked - answered) * _PACE
            at_least = present + timedelta(seconds=min(passed, _MOST_AT_ONCE_SECONDS))
        async with self._database.statements() as connection:
            found = await stored_clocks.keep_present(connection, at_least)
        answered = self._monotonic()
        self._report_forward(found.clock, asked, answered)
        self._report_behind(found, answered)
        return 0

    def _report_forward(self, clock: datetime, asked: float, answered: float) -> None:
        looked, self._looked = self._looked, (clock, asked)
        if looked is None:
            return
        stepped = (clock - looked[0]).total_seconds() - (answered - looked[1])
        if stepped >= _STEP_SECONDS:
            self._tally.stepped_forward()
            _log.warning(
                "the clock of the database stepped forward by %.1f s. Timeouts and delays that end "
                "within that have ended.",
                stepped,
            )

    def _report_behind(self, found: stored_clocks.Present, answered: float) -> None:
        is_behind = found.behind_seconds >= _STEP_SECONDS
        self._tally.stands_behind(found.behind_seconds if is_behind else 0.0)
        if is_behind and self._behind is None:
            self._tally.stepped_back()
            _log.warning(
                "the clock of the database stepped back: it is %.1f s behind. Time goes on from "
                "where it was, a tenth slower, until the clock has caught up.",
                found.behind_seconds,
            )
        elif self._behind is not None and not is_behind:
            _log.info("the clock of the database has caught up")
        self._behind = (found.present, answered) if is_behind else None
