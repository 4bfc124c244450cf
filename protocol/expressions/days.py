"""Which days of a month a cron expression means.

The days of a month depend on two things only: on which weekday it begins and how long it is. Each
rule answers for such a shape; there are 28 of them, so answers are cheap to keep. Weekdays are
numbered as in cron: 0 is Sunday.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

SATURDAY, SUNDAY = 6, 0


class DayRule(Protocol):
    """Days of a month."""

    def days(self, first_weekday: int, length: int) -> Iterable[int]:
        """Days of a month of that many days whose first is that weekday."""


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
