"""Timings in short English."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC

from queuegate.protocol.expressions.calendars import (
    Fields,
    LastDay,
    NearestWorkday,
    NthWeekday,
    OnDays,
)
from queuegate.protocol.expressions.cron_fields import aws_fields, vixie_fields
from queuegate.protocol.expressions.phrases import DAY_NAMES, MONTH_NAMES
from queuegate.protocol.expressions.timing import Timing

_DAYS = [name.capitalize() for name in DAY_NAMES]
_MONTHS = [name.capitalize() for name in MONTH_NAMES]
_NTH = ("last", "first", "second", "third", "fourth", "fifth")
_UNITS = ((604800, "week"), (86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_MOST_CLOCKS = 6
_WEEKDAYS, _WEEKEND = frozenset(range(1, 6)), frozenset({0, 6})


def human_readable(timing: Timing) -> str:
    """Describe the timing in short English, times of day with their zone. A cron expression that
    needs a long sentence is quoted instead."""
    if timing.kind == "once":
        assert timing.instant is not None
        return f"Once at {timing.instant.astimezone(UTC).replace(tzinfo=None)} UTC"
    if timing.kind == "rate":
        return f"Every {_interval(timing.seconds)}"
    fields = (vixie_fields if timing.kind == "cron" else aws_fields)(timing.expression)
    days, clocks = _days(fields), _clocks(fields)
    if days is None or clocks is None:
        kind = "cron expression " if timing.kind == "cron" else ""
        return f"As {kind}{timing.expression} says ({timing.timezone})"
    is_interval = clocks.startswith("every") and " from " not in clocks
    if is_interval and not days and (timing.timezone == "UTC" or "hour" not in clocks):
        return clocks.capitalize()
    if clocks.startswith("every"):
        said = f"{clocks}, {days[0].lower()}{days[1:]}" if days else clocks
    else:
        said = f"{days or 'Every day'} {clocks}"
    return f"{said[0].upper()}{said[1:]} ({timing.timezone})"


def _interval(seconds: int) -> str:
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return unit if seconds == size else f"{seconds // size} {unit}s"


def _clocks(fields: Fields) -> str | None:
    """Describe the times of a day: "every 5 minutes", "at 09:00 and 17:00"; None: no short form."""
    minutes, hours = _step(fields.minutes, 60), _step(fields.hours, 24)
    if hours == 1 and minutes:
        return "every minute" if minutes == 1 else f"every {minutes} minutes"
    if hours and len(fields.minutes) == 1:
        past = f" at minute {fields.minutes[0]}" if fields.minutes[0] else ""
        return f"every hour{past}" if hours == 1 else f"every {hours} hours{past}"
    if len(fields.minutes) * len(fields.hours) <= _MOST_CLOCKS:
        clocks = [f"{hour:02}:{minute:02}" for hour in fields.hours for minute in fields.minutes]
        return f"at {_joined(clocks)}"
    first, last = fields.hours[0], fields.hours[-1]
    if minutes and last - first == len(fields.hours) - 1:
        often = "every minute" if minutes == 1 else f"every {minutes} minutes"
        return f"{often} from {first:02}:00 to {last:02}:{fields.minutes[-1]:02}"
    if len(fields.minutes) == 1 and last - first == len(fields.hours) - 1:
        minute = fields.minutes[0]
        return f"every hour from {first:02}:{minute:02} to {last:02}:{minute:02}"
    return None


def _days(fields: Fields) -> str | None:
    """Describe the days: "Every weekday", "On the 1st of every month"; empty for all days."""
    months = _months(fields)
    years = _years(fields)
    match fields.rule:
        case OnDays(monthdays=None, weekdays=None):
            return f"Every day{months}{years}" if months or years else ""
        case OnDays(monthdays=None, weekdays=frozenset() as weekdays):
            return f"Every {_weekdays(weekdays)}{months}{years}"
        case OnDays(monthdays=frozenset() as monthdays, weekdays=None):
            which = _joined([_ordinal(day) for day in sorted(monthdays)])
            if len(monthdays) > _MOST_CLOCKS:
                return None
        case OnDays():
            return None
        case LastDay(is_workday=is_workday):
            which = "last weekday" if is_workday else "last day"
        case NearestWorkday(monthday=monthday):
            which = f"weekday nearest the {_ordinal(monthday)}"
        case NthWeekday(weekday=weekday, nth=nth):
            which = f"{_NTH[nth]} {_DAYS[weekday]}"
        case _:
            return None
    return f"On the {which} of {months.removeprefix(' in ') or 'every month'}{years}"


def _weekdays(weekdays: frozenset[int]) -> str:
    if weekdays == _WEEKDAYS:
        return "weekday"
    if weekdays == _WEEKEND:
        return "Saturday and Sunday"
    # Weeks start on Monday here, so weekends stay together.
    return _joined([_DAYS[day] for day in sorted(weekdays, key=lambda day: (day - 1) % 7)])


def _months(fields: Fields) -> str:
    if len(fields.months) == 12:
        return ""
    return f" in {_joined([_MONTHS[month - 1] for month in sorted(fields.months)])}"


def _years(fields: Fields) -> str:
    years = fields.years
    if years is None:
        return ""
    if len(years) > 2 and years[-1] - years[0] == len(years) - 1:
        return f" from {years[0]} to {years[-1]}"
    shown = [*map(str, years[:_MOST_CLOCKS]), *(["later"] if len(years) > _MOST_CLOCKS else [])]
    return f" in {_joined(shown)}"


def _step(numbers: Sequence[int], size: int) -> int | None:
    """Return n if the numbers are 0, n, 2n up to the size, which n divides."""
    step = size // len(numbers)
    is_even = len(numbers) > 1 and [*numbers] == [*range(0, size, step)] and size % step == 0
    return step if is_even else None


def _joined(words: Sequence[str]) -> str:
    return " and ".join([*filter(None, [", ".join(words[:-1])]), words[-1]])


def _ordinal(day: int) -> str:
    suffix = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{suffix}"
