"""Forms of schedules: our own four (cron, every, when, fire_at), the expressions of EventBridge
Scheduler (docs/contract/scheduler.md 4.3), and descriptions in short English."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from queuegate.protocol.calendars import (
    Fields,
    LastDay,
    NearestWorkday,
    NthWeekday,
    OnDays,
    Unparsable,
    aws_fields,
    local_to_instant,
    shown,
    vixie_fields,
    vixie_text,
    zone_named,
)
from queuegate.protocol.malformed import refusing
from queuegate.protocol.phrases import DAY_NAMES, MONTH_NAMES, parse_when
from queuegate.protocol.timing import Timing, parse_every, written

_INSTANT = re.compile(
    r"(?P<wall>\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(?P<zone>[Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)
_LATE = timedelta(minutes=1)
_LONGEST = 1_000
"""Maximum length of any form with its spaces: it is stored and shown as written."""


def parse_form(
    *,
    cron: str | None = None,
    every: str | None = None,
    when: str | None = None,
    fire_at: str | None = None,
    timezone: str = "UTC",
    now: datetime,
) -> Timing:
    """The timing that exactly one of four forms says, read in ``timezone`` at ``now`` (aware).

    cron      five fields as in crontab(5), or an alias such as @hourly
    every     an interval; it becomes cron where cron can say it, else a rate from ``now``
    when      plain English: `phrases.PHRASES` has the list; a single time has to be in the future
    fire_at   RFC 3339, or a local time in ``timezone``; up to a minute in the past, for clocks
              differ: an older one is taken for a slip of the pen

    Unparsable says what is wrong and what would be right; also for an unknown zone and for a cron
    expression that never fires (30 February).
    """
    forms = {"cron": cron, "every": every, "when": when, "fire_at": fire_at}
    given = [name for name, text in forms.items() if text is not None]
    if len(given) != 1:
        raise Unparsable(
            "Give exactly one of cron, every, when and fire_at; "
            + (f"found {' and '.join(given)}." if given else "found none.")
        )
    [form] = given
    if len(forms[form] or "") > _LONGEST:
        raise Unparsable(f"{form}: an expression has at most {_LONGEST} characters.")
    zone = zone_named(timezone)
    if cron is not None:
        if not vixie_fields(cron).ever_fires():
            raise Unparsable(
                f"Cron expression {shown(cron)} never fires: none of its months has such a day."
            )
        return Timing("cron", expression=vixie_text(cron), timezone=timezone)
    if every is not None:
        return parse_every(every, timezone=timezone, now=now)
    if when is not None:
        return parse_when(when, zone=zone, now=now)
    instant = read_instant(fire_at or "", zone)
    if instant < now - _LATE:
        raise Unparsable(
            f"fire_at: {written(instant)} is in the past; now is "
            f"{written(now.replace(microsecond=0))}. Is the year right?"
        )
    return Timing("once", instant=instant)


def read_instant(text: str, zone: ZoneInfo) -> datetime:
    """Return the instant (UTC) of RFC 3339 text; without offset it is a local time in the zone."""
    found = _INSTANT.fullmatch(text.strip())
    try:
        if not found:
            raise ValueError
        wall = datetime.fromisoformat(found["wall"].upper())
        if not found["zone"]:
            return local_to_instant(wall, zone)
        return datetime.fromisoformat(found[0].upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Unparsable(
            f"fire_at: {shown(text)} is no instant; write it as 2026-12-01T09:00:00Z, with an "
            "offset (+01:00), or without one as a local time in the timezone."
        ) from None


_RATE = re.compile(r"rate\((\d{1,9}) (minute|hour|day)s?\)", re.ASCII)
_AT = re.compile(r"at\((\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})\)", re.ASCII)
_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


def parse_aws(expression: str, *, timezone: str = "UTC", anchor: datetime) -> Timing:
    """Parse `rate(...)`, `cron(...)` or `at(...)`, without spaces at either end.

    ``timezone`` applies to cron and at; a rate counts elapsed time from ``anchor``, which is its
    first time. An at() in the past is accepted. Cron has a precision of one minute, at() of one
    second. Ranges may wrap (`20-2`), as in the examples of AWS's user guide. Unparsable has AWS's
    text, or names the unknown zone.
    """
    zone = zone_named(timezone)
    if rate := _RATE.fullmatch(expression):
        seconds = int(rate[1]) * _SECONDS[rate[2]]
        if seconds:
            return Timing("rate", seconds=seconds, anchor=anchor)
    elif at := _AT.fullmatch(expression):
        with refusing(_invalid(expression), ValueError, OverflowError):
            return Timing("once", instant=local_to_instant(datetime.fromisoformat(at[1]), zone))
    else:
        with refusing(_invalid(expression), Unparsable):
            aws_fields(expression)
        return Timing("aws_cron", expression=expression, timezone=timezone)
    raise _invalid(expression)


def _invalid(expression: str) -> Unparsable:
    return Unparsable(f"Invalid Schedule Expression {expression}.")


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
