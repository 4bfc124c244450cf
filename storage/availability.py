"""Says in the log that the database does not answer: when that begins, once a minute while it
lasts, and when it is over. Whoever fails for it meanwhile is counted, and says nothing itself
(``storage.errors.Away``)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_log = logging.getLogger("queuegate.database")

_DISK_FULL = "53100"
_LINE_SECONDS = 60.0
_QUIET_SECONDS = 1.0
"""Without a failure: a server that stops answers some of its connections a little longer."""
_BETWEEN_SECONDS = 10.0
"""Of two beginnings that are told. Connections that are lost again and again, one at a time, are
many beginnings."""


class Availability:
    """Whether one database answers, as one process sees it.

    ``clock`` is in seconds and never goes back; tests move it.
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
        """So many calls failed because the database does not answer; 0: only an attempt to reach
        it."""
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
        """It answered. Callers look at ``is_away`` first, which costs less than a call."""
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
