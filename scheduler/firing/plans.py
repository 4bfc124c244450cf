"""Times for which a due schedule fires, and its next time.

    next_fire_at          now - window       now
    ----|------|------|------|-----------------|------>
        (   missed    )        (its window is open: not missed, it is the next time)

Without catch-up, the missed times collapse to one fire, for the first of them. With catch-up, they
fire in order, oldest first, up to the limit. Times beyond the limit are skipped.
"""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from queuegate.protocol.expressions import Timing
from queuegate.protocol.expressions.timing import drawn_due_at, next_within

if TYPE_CHECKING:
    from queuegate.storage.schedule_fires import ClaimedSchedule

_MOST_COUNTED = 1_000
"""Limit for counting skipped times: counting many years of minutes would take minutes."""


class Plan(NamedTuple):
    """The plan of a due schedule."""

    times: list[datetime]
    """Times to fire for, in order; at least one."""
    skipped_count: int
    """Missed times beyond the catch-up limit, counted up to 1,000."""
    next_fire_at: datetime | None
    due_at: datetime | None


def plan(claimed: ClaimedSchedule) -> Plan:
    """Return the times to fire for and the next time. Raise Unparsable for an invalid timing."""
    times = [claimed.next_fire_at]
    skipped = 0
    now = claimed.claimed_at
    upto = now - timedelta(seconds=claimed.window_seconds)
    following = _next(claimed, claimed.next_fire_at)
    while claimed.catchup and following is not None and following <= upto:
        if len(times) < claimed.catchup_limit:
            times.append(following)
        elif skipped < _MOST_COUNTED:
            skipped += 1
        else:
            break
        following = _next(claimed, following)
    if following is not None and following <= upto:
        following = _next(claimed, upto)
    due_at = drawn_due_at(following, claimed.window_seconds, now, random.random())
    return Plan(times, skipped, following, due_at)


def _next(claimed: ClaimedSchedule, after: datetime) -> datetime | None:
    return _next_time(claimed.timing, after, claimed.starts_at, claimed.ends_at)


# Thousands of schedules may share a timing and be due at once.
@lru_cache(maxsize=4096)
def _next_time(
    timing: str, after: datetime, starts_at: datetime | None, ends_at: datetime | None
) -> datetime | None:
    return next_within(_timing(timing), after, starts_at, ends_at)


@lru_cache(maxsize=4096)
def _timing(text: str) -> Timing:
    return Timing.from_json(json.loads(text))
