"""Keeps the present of statements from going back, and moving while the server's clock is behind.

When the clock of the database steps back, the present stays where it was noted (``present()`` of
functions/present.sql). From there it goes on at nine tenths of its pace, by our own monotonic
clock, until the server's clock has caught up. So whatever waits for an instant waits a ninth
longer, not for as long as the step.

A present was read at some instant before its answer came. Only the time from the answer to the next
question is certain to have passed since, and only that moves the present: a server, a process or an
event loop that stands still slows it down and never puts it ahead.

A clock that steps forward is followed at once. Statements cannot tell a step from time that passed,
and a present that waited for us would jump whenever we are late.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from queuegate.storage.clocks import presents
from queuegate.storage.database import Database

_log = logging.getLogger("queuegate.clock")

_PAUSE_SECONDS = 1.0
_PAUSE_BEHIND_SECONDS = 0.05
_PACE = 0.9
# Whoever was granted a time just before the present moves loses at most this much of it.
_MOST_AT_ONCE_SECONDS = 0.05
# Less is no step: clocks are corrected by milliseconds all the time.
_STEP_SECONDS = 0.1


class Tally(Protocol):
    """Counts for metrics."""

    def stands_behind(self, seconds: float) -> None:
        """The clock is so far behind what it was."""

    def stepped_back(self) -> None:
        """The clock was found behind."""

    def stepped_forward(self) -> None:
        """The clock was found further ahead than time can have passed."""


class KeepTime:
    """Any number of processes may run it: what they ask for is nearly the same instant."""

    name = "keep time"

    def __init__(
        self,
        database: Database,
        tally: Tally,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._tally = tally
        self._monotonic = monotonic
        self._behind: tuple[datetime, float] | None = None
        """While the clock is behind: the present of the last round, and when its answer came."""
        self._looked: tuple[datetime, float] | None = None
        """The clock of the last round, and when it was asked for."""

    @property
    def pause_seconds(self) -> float:
        """While the clock is behind the present moves with our rounds only."""
        return _PAUSE_SECONDS if self._behind is None else _PAUSE_BEHIND_SECONDS

    async def run_round(self, rows: int) -> int:
        """Look at the clock once."""
        asked = self._monotonic()
        at_least = None
        if self._behind is not None:
            present, answered = self._behind
            passed = (asked - answered) * _PACE
            at_least = present + timedelta(seconds=min(passed, _MOST_AT_ONCE_SECONDS))
        async with self._database.statements() as connection:
            found = await presents.keep(connection, at_least)
        answered = self._monotonic()
        self._tell_forward(found.clock, asked, answered)
        self._tell(found, answered)
        return 0

    def _tell_forward(self, clock: datetime, asked: float, answered: float) -> None:
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

    def _tell(self, found: presents.Present, answered: float) -> None:
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
