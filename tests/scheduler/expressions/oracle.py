"""Cron by brute force: every minute of a stretch of local time is looked at."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
_MARGIN = 2 * DAY
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


def numbers(text: str, low: int, high: int, names: list[str], first: int) -> set[int]:
    """The numbers of a field whose names count from ``first``."""

    def number(word: str) -> int:
        return names.index(word.lower()) + first if word.lower() in names else int(word)

    found: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        if span == "*":
            start, stop = low, high
        elif "-" in span:
            start, stop = map(number, span.split("-"))
        else:
            start, stop = number(span), high if step else number(span)
        found |= {n for n in range(start, stop + 1) if (n - start) % int(step or 1) == 0}
    return found


def means(expression: str) -> Callable[[datetime], bool]:
    """Return a check of local times against the five fields."""
    minute, hour, monthday, month, weekday = expression.split()
    minutes, hours = numbers(minute, 0, 59, [], 0), numbers(hour, 0, 23, [], 0)
    monthdays, months = numbers(monthday, 1, 31, [], 1), numbers(month, 1, 12, _MONTHS, 1)
    weekdays = {day % 7 for day in numbers(weekday, 0, 7, _DAYS, 0)}

    def test(wall: datetime) -> bool:
        if wall.minute not in minutes or wall.hour not in hours or wall.month not in months:
            return False
        by_number, by_name = wall.day in monthdays, wall.isoweekday() % 7 in weekdays
        if monthday[0] != "*" and weekday[0] != "*":
            return by_number or by_name
        return by_number and by_name

    return test


@cache
def clock(zone: str, start: datetime, days: int) -> tuple[tuple[datetime, datetime], ...]:
    """(instant, local time) of every minute from two days before to two days after."""
    first, count = start - _MARGIN, (days * DAY + 2 * _MARGIN) // MINUTE
    instants = [first + n * MINUTE for n in range(count)]
    return tuple((one, one.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for one in instants)


def fires(expression: str, zone: str, start: datetime, days: int) -> list[datetime]:
    """Every time of a cron expression from an instant on, for so many days."""
    shown = clock(zone, start, days)
    is_meant = means(expression)
    hour = expression.split()[1]
    is_repeated = hour == "*" or (hour.startswith("*/") and "," not in hour)
    found: set[datetime] = set()
    seen: set[datetime] = set()
    highest = shown[0][1] - MINUTE
    for instant, wall in shown:
        if is_meant(wall) and (is_repeated or wall not in seen):
            found.add(instant)
        seen.add(wall)
        # Local times between the highest so far and this one were skipped.
        skipped = highest + MINUTE
        while skipped < wall:
            if is_meant(skipped) and hour not in ("*", "*/1"):
                found.add(instant)
            skipped += MINUTE
        highest = max(highest, wall)
    return sorted(one for one in found if start <= one < start + days * DAY)


def aws_day(monthday: str, weekday: str) -> Callable[[date], bool]:
    """Return a check of days against the two day fields of an AWS expression."""

    def is_workday(day: date) -> bool:
        return day.isoweekday() < 6

    def test(day: date) -> bool:
        month = [one for n in range(-31, 32) if (one := day + n * DAY).month == day.month]
        month = [one for one in month if one.year == day.year]
        aws_weekday = day.isoweekday() % 7 + 1
        if weekday.endswith("L") and weekday != "L":
            return aws_weekday == int(weekday[:-1]) and day + 7 * DAY not in month
        if "#" in weekday:
            which, nth = map(int, weekday.split("#"))
            return aws_weekday == which and len([d for d in month if d <= day]) in range(
                nth * 7 - 6, nth * 7 + 1
            )
        if weekday != "?":
            return aws_weekday in numbers(weekday, 1, 7, _DAYS, 1)
        if monthday == "L":
            return day == max(month)
        if monthday == "LW":
            return day == max(filter(is_workday, month))
        if monthday.endswith("W"):
            target = int(monthday[:-1])
            if target > len(month):
                return False
            return day == min(filter(is_workday, month), key=lambda one: abs(one.day - target))
        return day.day in numbers(monthday, 1, 31, [], 1)

    return test


def at(text: str) -> datetime:
    """An instant of UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
