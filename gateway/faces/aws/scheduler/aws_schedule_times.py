"""Fire times of EventBridge Scheduler (docs/contract/scheduler.md 4.2 and 4.3).

A rate starts with the schedule or at its StartDate, and counts from there. StartDate and EndDate
have no effect on `at`. An `at` in the past never fires.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import random
from typing import Any

from queuegate.protocol.calendars import Unparsable
from queuegate.protocol.expression_forms import parse_aws
from queuegate.protocol.malformed import refusing
from queuegate.protocol.timing import Timing, drawn_due_at, next_within
from queuegate.storage.model import Schedule
from queuegate.storage.storage_errors import ScheduleInvalid

Members = Mapping[str, Any]
_LATEST_START = timedelta(minutes=5)
_INSTANT = timedelta(microseconds=1)
_SOME_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Times:
    """A timing within its bounds. ``next_fire_at`` and ``due_at`` None: it does not fire."""

    timing: Timing
    starts_at: datetime | None
    ends_at: datetime | None
    window_seconds: int
    is_enabled: bool
    next_fire_at: datetime | None = None
    due_at: datetime | None = None


def window_seconds(members: Members) -> int:
    """Return the length of the flexible window, 0 if it is off. Raises ScheduleInvalid."""
    window = members["FlexibleTimeWindow"]
    minutes: int | None = window.get("MaximumWindowInMinutes")
    if window["Mode"] == "OFF":
        if minutes is not None:
            raise ScheduleInvalid(
                "FlexibleTimeWindow has MaximumWindowInMinutes, which goes with the mode FLEXIBLE "
                "only."
            )
        return 0
    if minutes is None:
        raise ScheduleInvalid(
            "FlexibleTimeWindow has the mode FLEXIBLE, which needs MaximumWindowInMinutes."
        )
    return minutes * 60


def timing_of(members: Members, anchor: datetime) -> Timing:
    """Parse the expression; a rate counts from the anchor. Raises ScheduleInvalid."""
    with refusing(ScheduleInvalid, Unparsable):
        return parse_aws(
            members["ScheduleExpression"],
            timezone=members.get("ScheduleExpressionTimezone", "UTC"),
            anchor=anchor,
        )


def check_expression(members: Members) -> None:
    """Check the expression before the target, as AWS does (docs/contract/scheduler.md 4.2). Raises
    ScheduleInvalid."""
    timing_of(members, members.get("StartDate") or _SOME_INSTANT)


def first_times(members: Members, now: datetime, *, kept_start: datetime | None) -> Times:
    """Return the times of a new schedule or a new expression. Raises ScheduleInvalid.

    ``kept_start`` is the present StartDate of the schedule. It may lie more than 5 minutes in the
    past.
    """
    window = window_seconds(members)
    timing = timing_of(members, members.get("StartDate") or now)
    starts_at, ends_at = _bounds(members, timing)
    if starts_at is not None and starts_at != kept_start and starts_at < now - _LATEST_START:
        raise ScheduleInvalid("The StartDate you specify cannot be earlier than 5 minutes ago.")
    times = Times(timing, starts_at, ends_at, window, _is_enabled(members))
    return _waiting(times, now)


def changed_times(members: Members, now: datetime, schedule: Schedule) -> Times:
    """Return the times of a schedule with the same expression, time zone and StartDate.

    A due time stays due. A disabled schedule continues with its next time in the future. Raises
    ScheduleInvalid.
    """
    window = window_seconds(members)
    timing = Timing.from_json(schedule.timing)
    starts_at, ends_at = _bounds(members, timing)
    times = Times(timing, starts_at, ends_at, window, _is_enabled(members))
    found = schedule.next_fire_at if schedule.is_active else None
    if found is None or not times.is_enabled:
        return _waiting(times, now)
    if ends_at is not None and found > ends_at:
        return times
    is_drawn = window == schedule.window_seconds
    due_at = schedule.due_at if is_drawn else drawn_due_at(found, window, now, random())
    return replace(times, next_fire_at=found, due_at=due_at)


def _is_enabled(members: Members) -> bool:
    return members.get("State") != "DISABLED"


def _bounds(members: Members, timing: Timing) -> tuple[datetime | None, datetime | None]:
    """Return StartDate and EndDate if they apply to the timing. Raises ScheduleInvalid."""
    if timing.kind == "once":
        return None, None
    starts_at, ends_at = members.get("StartDate"), members.get("EndDate")
    if starts_at is not None and ends_at is not None and starts_at >= ends_at:
        raise ScheduleInvalid("The StartDate you specify must be earlier than the EndDate.")
    return starts_at, ends_at


def _waiting(times: Times, now: datetime) -> Times:
    """Return the times with the first one from now on; none for a disabled schedule."""
    if not times.is_enabled:
        return times
    found = next_within(times.timing, now - _INSTANT, times.starts_at, times.ends_at)
    due_at = drawn_due_at(found, times.window_seconds, now, random())
    return replace(times, next_fire_at=found, due_at=due_at)
