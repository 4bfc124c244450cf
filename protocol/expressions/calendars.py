"""Calendars: time zones, days of a month, and the instants of a cron expression in a zone.

The days of a month depend on its first weekday and its length only. There are 28 such shapes, so
the days of each rule are cached. Weekdays are numbered as in cron: 0 is Sunday.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal, Protocol
from zoneinfo import ZoneInfo


class Unparsable(ValueError):
    """A text that no schedule expression matches. `str(error)` is for its author: it quotes the
    text and names the allowed forms."""


def shown(text: str, most: int = 60) -> str:
    """Return the text in quotes, cut after ``most`` characters, for a refusal."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


_SECOND = timedelta(seconds=1)
# A pseudo zone of the list, for computers without a setup.
_NO_ZONES = frozenset({"Factory"})


def zone_named(name: str) -> ZoneInfo:
    """Return the zone of the IANA list. Unparsable has similar names for an unknown one. The list
    decides, and not the files of the machine, so every machine accepts the same names."""
    if name not in _names():
        raise Unparsable(
            f"Unknown timezone {shown(name)}: use an IANA name such as 'UTC' or 'Europe/Berlin'."
            + _suggestion(name)
        )
    return ZoneInfo(name)


def wall_time(day: date, hour: int, minute: int) -> datetime:
    """Return a local time without a zone."""
    return datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001 - see above


def local_to_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant (UTC) of a local time: the first of two, or the first after the change if
    it was skipped."""
    first, last = offsets(wall, zone)
    return end_of_gap(wall, zone) if first < last else (wall - first).replace(tzinfo=UTC)


def offsets(wall: datetime, zone: ZoneInfo) -> tuple[timedelta, timedelta]:
    """Return the UTC offsets before and after a change that touches this local time. They are equal
    without a change, falling if the local time occurs twice, rising if it is skipped."""
    local = wall.replace(tzinfo=zone)
    return local.utcoffset() or timedelta(), local.replace(fold=1).utcoffset() or timedelta()


def end_of_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of the clock change that skipped this local time."""
    before, after = offsets(wall, zone)
    low = (wall - after).replace(tzinfo=UTC)  # Before the change,
    high = (wall - before).replace(tzinfo=UTC)  # and not before it.
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        if middle.astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    # Bisection leaves fractions, and changes fall on whole seconds.
    return high if high.microsecond == 0 else high.replace(microsecond=0)


@cache
def _names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text("ascii").split()) - _NO_ZONES


@lru_cache(maxsize=64)
def _suggestion(name: str) -> str:
    by_lower = {known.lower(): known for known in _names()}
    cities = {known.rpartition("/")[2]: known for known in by_lower}
    wanted = name.lower().strip().replace(" ", "_")[:64]
    near = get_close_matches(wanted, by_lower, n=3, cutoff=0.75)
    near += [cities[city] for city in get_close_matches(wanted.rpartition("/")[2], cities, n=2)]
    found = [by_lower[one] for one in dict.fromkeys(near)][:3]
    return f" Did you mean {' or '.join(found)}?" if found else ""


SATURDAY, SUNDAY = 6, 0


class DayRule(Protocol):
    """A rule for the days of a month."""

    def days(self, first_weekday: int, length: int) -> Iterable[int]:
        """Return the days of a month of that length whose first day is that weekday."""


@dataclass(frozen=True, slots=True)
class OnDays:
    """Days by number, by weekday, or by one or both of them."""

    monthdays: frozenset[int] | None
    weekdays: frozenset[int] | None
    takes_either: bool = False

    def days(self, first_weekday: int, length: int) -> set[int]:
        every = range(1, length + 1)
        numbered = {day for day in every if self.monthdays is None or day in self.monthdays}
        named = {
            day
            for day in every
            if self.weekdays is None or (first_weekday + day - 1) % 7 in self.weekdays
        }
        return numbered | named if self.takes_either else numbered & named


@dataclass(frozen=True, slots=True)
class LastDay:
    """The last day, or the last that is Monday to Friday."""

    is_workday: bool = False

    def days(self, first_weekday: int, length: int) -> set[int]:
        weekday = (first_weekday + length - 1) % 7
        back = {SATURDAY: 1, SUNDAY: 2}.get(weekday, 0) if self.is_workday else 0
        return {length - back}


@dataclass(frozen=True, slots=True)
class NearestWorkday:
    """The Monday to Friday nearest to a day, in the same month; nothing in a month without it."""

    monthday: int

    def days(self, first_weekday: int, length: int) -> set[int]:
        day = self.monthday
        if day > length:
            return set()
        weekday = (first_weekday + day - 1) % 7
        if weekday == SATURDAY:
            return {day - 1 if day > 1 else day + 2}
        if weekday == SUNDAY:
            return {day + 1 if day < length else day - 2}
        return {day}


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """The nth of one weekday, or the last of it (nth 0)."""

    weekday: int
    nth: int

    def days(self, first_weekday: int, length: int) -> set[int]:
        first = 1 + (self.weekday - first_weekday) % 7
        all_of_it = [*range(first, length + 1, 7)]
        return {*all_of_it[self.nth - 1 : self.nth or None]}


Hours = Literal["fixed", "stepped", "every"]
"""The form of the hour field: hours by name, `*/n`, or `*`."""

FIRST_YEAR, LAST_YEAR = 1970, 9998
_EPOCH = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
# The longest wait for a day: a fifth weekday in February, across 2100.
_MOST_MONTHS = 41 * 12
_LENGTHS = ((31,), (28, 29), *((length,) for length in (31, 30, 31, 30, 31, 31, 30, 31, 30, 31)))


@dataclass(frozen=True, slots=True)
class Fields:
    """A cron expression with its lists, ranges and steps written out, in rising order."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    rule: DayRule
    months: frozenset[int]
    years: tuple[int, ...] | None
    hours_are: Hours

    def ever_fires(self) -> bool:
        """Return True if a month of the expression has a day of the expression (30 February:
        no)."""
        return bool(possible_months(self))


def possible_months(fields: Fields) -> frozenset[int]:
    """Return the months that have a day of the expression in some year."""
    return frozenset(
        month
        for month in fields.months
        if any(
            [*fields.rule.days(weekday, length)]
            for length in _LENGTHS[month - 1]
            for weekday in range(7)
        )
    )


class Calendar:
    """The fields of an expression in a zone, with a cache of months."""

    __slots__ = ("_days_by_shape", "_fields", "_months", "_zone")

    def __init__(self, fields: Fields, zone: ZoneInfo) -> None:
        self._fields = fields
        self._zone = zone
        self._months = possible_months(fields)
        self._days_by_shape: dict[tuple[int, int], tuple[int, ...]] = {}

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first instant (UTC) strictly after; None: none until the year 9998. Nothing
        fires before 1970."""
        if instant.year > LAST_YEAR or not self._months:
            return None
        instant = max(instant, _EPOCH - timedelta(microseconds=1))
        local = instant.astimezone(self._zone)
        wall = local.replace(tzinfo=None, fold=0)
        found = self._first_after(wall, instant)
        if self._fields.hours_are == "fixed" or local.fold:
            return found
        before, after = offsets(wall, self._zone)
        if before <= after:
            return found
        # This local time occurs again, and so may earlier ones.
        again = self._first_repeated(wall, before - after)
        return again if again is not None and (found is None or again < found) else found

    def _first_after(self, wall: datetime, instant: datetime) -> datetime | None:
        for candidate in self._walls_after(wall):
            for found in self._instants_of(candidate):
                if found > instant:
                    return found
        return None

    def _first_repeated(self, wall: datetime, lasting: timedelta) -> datetime | None:
        """Return the first second occurrence of a local time up to this one, which is in its first
        occurrence."""
        for candidate in self._walls_after(wall - lasting):
            if candidate > wall:
                break
            instants = self._instants_of(candidate)
            if len(instants) > 1:
                return instants[1]
        return None

    def _instants_of(self, wall: datetime) -> tuple[datetime, ...]:
        """Return the instants of a local time of the expression, in order."""
        first, last = offsets(wall, self._zone)
        if first >= last:
            instant = (wall - first).replace(tzinfo=UTC)
            if first == last or self._fields.hours_are == "fixed":
                return (instant,)
            return instant, (wall - last).replace(tzinfo=UTC)
        if self._fields.hours_are == "every":
            return ()
        return (end_of_gap(wall, self._zone),)

    def _walls_after(self, wall: datetime) -> Iterator[datetime]:
        candidate = self._wall_after(wall)
        while candidate is not None:
            yield candidate
            candidate = self._wall_after(candidate)

    def _wall_after(self, wall: datetime) -> datetime | None:
        """Return the first local time of the expression strictly after this one, without clock
        changes."""
        fields = self._fields
        if wall.day in self._days_of(wall.year, wall.month):
            minute = bisect_right(fields.minutes, wall.minute)
            if wall.hour in fields.hours and minute < len(fields.minutes):
                return wall_time(wall, wall.hour, fields.minutes[minute])
            hour = bisect_right(fields.hours, wall.hour)
            if hour < len(fields.hours):
                return wall_time(wall, fields.hours[hour], fields.minutes[0])
        day = self._day_after(wall.year, wall.month, wall.day)
        return None if day is None else wall_time(day, fields.hours[0], fields.minutes[0])

    def _day_after(self, year: int, month: int, day: int) -> date | None:
        years = self._fields.years
        for _ in range(_MOST_MONTHS):
            days = self._days_of(year, month)
            place = bisect_right(days, day)
            if place < len(days):
                return date(year, month, days[place])
            year, month, day = (year, month + 1, 0) if month < 12 else (year + 1, 1, 0)
            if years is not None and year not in years:
                later = bisect_right(years, year)
                if later == len(years):
                    return None
                year, month = years[later], 1
            if year > LAST_YEAR:
                return None
        return None

    def _days_of(self, year: int, month: int) -> tuple[int, ...]:
        years = self._fields.years
        if month not in self._months or (years is not None and year not in years):
            return ()
        shape = monthrange(year, month)
        days = self._days_by_shape.get(shape)
        if days is None:
            weekday, length = shape
            days = tuple(sorted(self._fields.rule.days((weekday + 1) % 7, length)))
            self._days_by_shape[shape] = days
        return days
