"""No more messages a second than were asked for."""

from __future__ import annotations

import time
from collections.abc import Callable


class RateLimit:
    """Holds a sender back. Time in which it sent less is not made up for by a burst. ``None``: no
    limit. Not to be shared between threads."""

    def __init__(
        self,
        per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._pause = pause
        self._next_at = 0.0

    def wait(self, count: int) -> None:
        """Return when so many may be sent: at once for the first, then when the time of those
        before is over."""
        if self._per_second is None:
            return
        now = self._clock()
        if self._next_at > now:
            self._pause(self._next_at - now)
        self._next_at = max(now, self._next_at) + count / self._per_second
