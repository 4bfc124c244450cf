"""Deadlines of a connection for receiving requests.

This protocol class is between ``counted_connections.CountedProtocol`` and ``connections``.
"""

from __future__ import annotations

from asyncio.events import TimerHandle
from typing import Any

from queuegate.gateway.http.counted_connections import CountedProtocol

_SHORT_BODY_BYTES = 65_536


class TimedProtocol(CountedProtocol):
    """A connection with deadlines for its requests."""

    reading_seconds = 60.0
    """Longest time from the first to the last byte of a head, or of a request of up to 64 KiB.
    A new connection may be silent as long."""
    body_seconds = 15.0
    """Interval of checks of a longer body, which must arrive at ``least_rate``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._reading_since = 0.0
        self._reading_timer: TimerHandle | None = None
        self._body_bytes = self._body_bytes_before = 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None
        super().connection_lost(exc)

    def _count_body(self, size_bytes: int) -> None:
        before = self._body_bytes
        self._body_bytes += size_bytes
        if before <= _SHORT_BODY_BYTES < self._body_bytes:
            self._watch_body()

    def _begin_reading(self) -> None:
        """Start the deadline. One timer serves many requests: fast ones only reset its time."""
        self._reading_since = self.loop.time()
        self._body_bytes = self._body_bytes_before = 0
        if self._reading_timer is None:
            self._reading_timer = self.loop.call_later(self.reading_seconds, self._check_reading)

    def _watch_body(self) -> None:
        """Check a long body from now on."""
        self._body_bytes_before = self._body_bytes
        self._reading_since = self.loop.time()
        if self._reading_timer is not None:
            self._reading_timer.cancel()
        self._reading_timer = self.loop.call_later(self.body_seconds, self._check_reading)

    def _check_reading(self) -> None:
        """Close a connection whose request is late or too slow."""
        self._reading_timer = None
        since = self._reading_since
        if not since:
            return
        is_long = self._body_bytes_before > 0
        if is_long and self._came_in_time():
            self._watch_body()
            return
        seconds = self.body_seconds if is_long else self.reading_seconds
        left = since + seconds - self.loop.time()
        if left > 0.0:
            self._reading_timer = self.loop.call_later(left, self._check_reading)
        else:
            self.transport.close()

    def _came_in_time(self) -> bool:
        came = self._body_bytes - self._body_bytes_before
        # While reading is paused no data can arrive.
        return self.flow.read_paused or came >= self.least_rate * self.body_seconds
