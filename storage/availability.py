"""Logs outages of the database: at the start, once a minute during it, and at the end. Failed calls
are counted and log nothing themselves (``storage.errors.Away``)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_log = logging.getLogger("queuegate.database")

_DISK_FULL = "53100"
_LINE_SECONDS = 60.0
_QUIET_SECONDS = 1.0
"""Without a failure: a stopping server answers some connections a little longer."""
_BETWEEN_SECONDS = 10.0
"""Interval between two logged starts. Connections lost repeatedly, one at a time, are many
starts."""


class Availability:
    """The availability of one database, as one process observes it.

    ``clock`` is monotonic, in seconds; tests move it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.is_away = False
        self.on_disk_full: Callable[[], None] = lambda: None
        """Called when a call failed because the database's disk is full."""
        self._since = 0.0
        self._failed_at = 0.0
        self._is_told = False
        self._next_line_at = float("-inf")
        self._failed = 0

    def failed(self, reason: BaseException | str, calls: int = 1) -> None:
        """Record so many calls that failed without an answer of the database; 0: only an attempt to
        connect."""
        now = self.clock()
        if getattr(reason, "sqlstate", None) == _DISK_FULL:
            self.on_disk_full()
        if not self.is_away:
            self.is_away = True
            self._since = now
        self._failed_at = now
        self._failed += calls
        if now < self._next_line_at:
            return
        self._next_line_at = now + _LINE_SECONDS
        why = str(reason) or type(reason).__name__
        if self._is_told:
            seconds = now - self._since
            text = "the database has not answered for %.0f s, %d calls failed: %s"
            _log.warning(text, seconds, self._failed, why)
        else:
            self._is_told = True
            _log.warning("the database does not answer: %s", why)

    def answered(self) -> None:
        """Record an answer. Callers check ``is_away`` first, which costs less than a call."""
        now = self.clock()
        if not self.is_away or now - self._failed_at < _QUIET_SECONDS:
            return
        self.is_away = False
        if self._is_told:
            self._is_told = False
            seconds = now - self._since
            _log.warning(
                "the database answers again after %.1f s, %d calls failed", seconds, self._failed
            )
            self._failed = 0
            self._next_line_at = self._since + _BETWEEN_SECONDS
