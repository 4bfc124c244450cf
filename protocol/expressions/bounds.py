"""A timing within a start and an end, and with a window: the next time, and when to fire for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queuegate.protocol.expressions.timing import Timing

_INSTANT = timedelta(microseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC)


def next_within(
    timing: Timing,
    after: datetime,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
) -> datetime | None:
    """The first time strictly after ``after``, not before ``starts_at`` and not later than
    ``ends_at`` (both may be times themselves); None: there is none."""
    if starts_at is not None and after < starts_at:
        after = starts_at - _INSTANT
    found = timing.next_after(after)
    if found is None or (ends_at is not None and found > ends_at):
        return None
    return found


def drawn_due_at(
    time: datetime | None, window_seconds: int, now: datetime, share: float
) -> datetime | None:
    """When to fire for ``time``: somewhere in its window, as far into what is left of it as
    ``share`` says (0 to 1, a random number). Without a window it is the time itself."""
    if time is None or not window_seconds:
        return time
    end = time + min(timedelta(seconds=window_seconds), _LAST - time)
    begin = min(max(time, now), end)
    return begin + (end - begin) * share
