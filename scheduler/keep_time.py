"""Keeps the present of statements from going back, and moving while the server's clock is behind.

When the clock of the database steps back, the present stays where it was (``present()`` of
migration 0007) and goes on from there at nine tenths of its pace, by our own monotonic clock, until
the server's clock has caught up. So whatever waits for an instant waits a ninth longer, not for as
long as the step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from storage.clocks import presents
from storage.database import Database

_log = logging.getLogger("queuegate.clock")

_PAUSE_SECONDS = 1.0
_PAUSE_BEHIND_SECONDS = 0.2
_PACE = 0.9
# Less is no step: clocks are corrected by milliseconds all the time.
_STEP_SECONDS = 0.1


class Tally(Protocol):
    """Counts for metrics."""

    def stands_behind(self, seconds: float) -> None:
        """The clock is so far behind what it was."""

    def stepped_back(self) -> None:
        """The clock was found behind."""


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
        self._seen: tuple[datetime, float] | None = None
        self._is_behind = False

    @property
    def pause_seconds(self) -> float:
        """While the clock is behind the present moves with our rounds only."""
        return _PAUSE_BEHIND_SECONDS if self._is_behind else _PAUSE_SECONDS

    async def run_round(self, rows: int) -> int:
        """Look at the clock once."""
        at_least = None
        began = self._monotonic()
        if self._seen is not None:
            present, at = self._seen
            at_least = present + timedelta(seconds=(began - at) * _PACE)
        async with self._database.statements() as connection:
            found = await presents.keep(connection, at_least)
        self._seen = (found.present, began)
        self._tell(found.behind_seconds)
        return 0

    def _tell(self, behind_seconds: float) -> None:
        is_behind = behind_seconds >= _STEP_SECONDS
        self._tally.stands_behind(behind_seconds if is_behind else 0.0)
        if is_behind and not self._is_behind:
            self._tally.stepped_back()
            _log.warning(
                "the clock of the database stepped back: it is %.1f s behind. Time goes on from "
                "where it was, a tenth slower, until the clock has caught up.",
                behind_seconds,
            )
        elif self._is_behind and not is_behind:
            _log.info("the clock of the database has caught up")
        self._is_behind = is_behind
