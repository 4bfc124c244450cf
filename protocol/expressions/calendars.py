"""The instants of a cron expression in a time zone."""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from queuegate.protocol.expressions.days import DayRule
from queuegate.protocol.expressions.zones import end_of_gap, offsets, wall_time

Hours = Literal["fixed", "stepped", "every"]
"""How the hour field was written: hours by name, `*/n`, or `*`."""

FIRST_YEAR, LAST_YEAR = 1970, 9998
_EPOCH = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
# The longest that a day can keep one waiting: a fifth weekday in February, across 2100.
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
        """Whether any month that is meant has a day that is meant (30 February: no)."""
        return bool(possible_months(self))


def possible_months(fields: Fields) -> frozenset[int]:
    """Months that in some year have a day that is meant."""
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
    """Fields in a zone. It keeps what it worked out about months; otherwise it never changes."""

    __slots__ = ("_days_by_shape", "_fields", "_months", "_zone")

    def __init__(self, fields: Fields, zone: ZoneInfo) -> None:
        self._fields = fields
        self._zone = zone
        self._months = possible_months(fields)
        self._days_by_shape: dict[tuple[int, int], tuple[int, ...]] = {}

    def next_after(self, instant: datetime) -> datetime | None:
        """The first instant (UTC) strictly after, or None when there is none until year 9998.

        Nothing fires before 1970.
        """
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
        # This local time comes again, and so may earlier ones.
        again = self._first_repeated(wall, before - after)
        return again if again is not None and (found is None or again < found) else found

    def _first_after(self, wall: datetime, instant: datetime) -> datetime | None:
        for candidate in self._walls_after(wall):
            for found in self._instants_of(candidate):
                if found > instant:
                    return found
        return None

    def _first_repeated(self, wall: datetime, lasting: timedelta) -> datetime | None:
        """The first second coming of a local time up to this one, which is in its first coming."""
        for candidate in self._walls_after(wall - lasting):
            if candidate > wall:
                break
            instants = self._instants_of(candidate)
            if len(instants) > 1:
                return instants[1]
        return None

    def _instants_of(self, wall: datetime) -> tuple[datetime, ...]:
        """When a local time that is meant fires, in order."""
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
        """The first local time that is meant strictly after this one, clock changes aside."""
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
