"""What a due schedule fires for, and what it waits for then.

    next_fire_at          now - window       now
    ----|------|------|------|-----------------|------>
        (   missed    )        (its window is open: not missed, it is the next time)

Without catch-up the missed times collapse to one fire, for the first of them. With catch-up they
are fired in order, the oldest first, up to the limit; those behind it are passed over.
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
    from queuegate.storage.schedules.schedule_fires import Claimed

_MOST_COUNTED = 1_000
"""Of the times that one fire passes over: counting many years of minutes would take minutes."""


class Plan(NamedTuple):
    """What to do with a due schedule."""

    times: list[datetime]
    """To fire for now, in order; one at least."""
    skipped_count: int
    """Missed times beyond the limit of catch-up, of which the first thousand are counted."""
    next_fire_at: datetime | None
    due_at: datetime | None


def plan(claimed: Claimed) -> Plan:
    """The times to fire for and the next one. Raises Unparsable when the timing is no timing."""
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


def _next(claimed: Claimed, after: datetime) -> datetime | None:
    return _next_time(claimed.timing, after, claimed.starts_at, claimed.ends_at)


# Thousands of schedules may have the same rule, and be due at the same time.
@lru_cache(maxsize=4096)
def _next_time(
    timing: str, after: datetime, starts_at: datetime | None, ends_at: datetime | None
) -> datetime | None:
    return next_within(_timing(timing), after, starts_at, ends_at)


@lru_cache(maxsize=4096)
def _timing(text: str) -> Timing:
    return Timing.from_json(json.loads(text))
