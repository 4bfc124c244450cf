"""Intervals: `5m`, `2 hours`, `every day`."""

from __future__ import annotations

import re
from datetime import datetime

from queuegate.protocol.expressions.refusal import Unparsable, shown
from queuegate.protocol.expressions.timing import Timing

_UNITS = {
    "second": (1, ("s", "sec", "secs", "second", "seconds")),
    "minute": (60, ("m", "min", "mins", "minute", "minutes")),
    "hour": (3600, ("h", "hr", "hrs", "hour", "hours")),
    "day": (86400, ("d", "day", "days")),
    "week": (604800, ("w", "week", "weeks")),
}
_SECONDS = {word: seconds for seconds, words in _UNITS.values() for word in words}
_WORDS = "|".join(sorted(_SECONDS, key=len, reverse=True))
_PARTS = re.compile(rf"(\d{{1,9}}) ?({_WORDS})(?![a-z])", re.ASCII)
_MOST_SECONDS = 3650 * 86400


def interval_seconds(text: str) -> int | None:
    """Seconds of `90s`, `1h30m`, `2 hours` or `day`; None for anything else."""
    if text in _UNITS:
        return _UNITS[text][0]
    found = _PARTS.findall(text)
    if not found or _PARTS.sub("", text).strip():
        return None
    return sum(int(count) * _SECONDS[unit] for count, unit in found)


def parse_every(text: str, *, timezone: str, now: datetime) -> Timing:
    """The interval as a timing.

    It becomes cron in ``timezone`` when cron can say it without a jump at the end of the hour, day
    or week: 1, 2, 3, 4, 5, 6, 10, 12, 15, 20 and 30 minutes; 1, 2, 3, 4, 6, 8 and 12 hours; a day
    (at midnight); a week (Sunday at midnight). Any other interval is a rate: elapsed time
    from ``now`` (whole seconds), whatever the zone. From one second to ten years.
    """
    plain = " ".join(text.lower().split()).removeprefix("every ")
    seconds = interval_seconds(plain)
    if seconds is None:
        raise Unparsable(
            f"every: {shown(text)} is not understood; write a number and a unit (s, m, h, d, w, or "
            "seconds, minutes, hours, days, weeks), such as 30s, 5m, 1h30m, '2 hours' or 'day'."
        )
    if not 1 <= seconds <= _MOST_SECONDS:
        raise Unparsable(
            f"every: {shown(text)} is out of range; an interval is at least a second and at most "
            "3650 days."
        )
    cron = interval_cron(seconds)
    if cron is None:
        return Timing("rate", seconds=seconds, anchor=now.replace(microsecond=0))
    return Timing("cron", expression=cron, timezone=timezone)


def interval_cron(seconds: int) -> str | None:
    """The cron expression that fires at equal distances of so many seconds, if there is one."""
    minutes, rest = divmod(seconds, 60)
    if rest:
        return None
    if minutes < 60:
        step = "*" if minutes == 1 else f"*/{minutes}"
        return None if 60 % minutes else f"{step} * * * *"
    hours, rest = divmod(minutes, 60)
    if rest:
        return None
    if hours < 24:
        step = "*" if hours == 1 else f"*/{hours}"
        return None if 24 % hours else f"0 {step} * * *"
    return {24: "0 0 * * *", 168: "0 0 * * 0"}.get(hours)
