"""Calendars: time zones, days of a month, cron fields, and the instants of a cron expression in a
zone.

The days of a month depend on its first weekday and its length only. There are 28 such shapes, so
the days of each rule are cached. Weekdays are numbered as in cron: 0 is Sunday. Each cron field is
first rewritten in plain words: names become numbers, the Sunday of AWS becomes 0, and ranges that
wrap become lists.

A local time that a clock change skips fires at the first instant after the change. A local time
that occurs twice fires the first time only. An hour field of `*` or `*/n` follows elapsed time
instead: it fires in both repeated hours, and `*` does not catch up after a skipped hour, because
the next hour fires anyway (docs/contract/scheduler.md 4.3).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
        later = (one for each in self._walls_after(wall) for one in self._instants_of(each))
        found = next((one for one in later if one > instant), None)
        if self._fields.hours_are == "fixed" or local.fold:
            return found
        before, after = offsets(wall, self._zone)
        if before <= after:
            return found
        # This local time occurs again, and so may earlier ones.
        again = self._first_repeated(wall, before - after)
        return again if again is not None and (found is None or again < found) else found

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


ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
LONGEST_EXPRESSION = 256
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ITEM = re.compile(r"(?:(?P<star>\*)|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d+))?", re.ASCII)
_NTH = re.compile(r"(\w+)#([1-5])", re.ASCII)
_LAST = re.compile(r"(\w+)L", re.ASCII)
_NEAREST = re.compile(r"(\d+)W", re.ASCII)
_EVERY_HOUR = re.compile(r"\*(/0*1)?", re.ASCII)
_LAST_AWS_YEAR = 2199


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its numbers and names."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)
    # Offset to cron's numbers: AWS has Sunday as 1.
    shift: int = 0

    @property
    def size(self) -> int:
        """Return the number of values: cron counts Sunday twice, as 0 and 7."""
        return len(self.names) or self.high - self.low + 1

    @property
    def allowed(self) -> str:
        names = f" ({'-'.join([*self.names][:: len(self.names) - 1])})" if self.names else ""
        return f"{self.low}-{self.high}{names}"


_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
MINUTE, HOUR = Field("minute", 0, 59), Field("hour", 0, 23)
MONTHDAY, MONTH = Field("day of month", 1, 31), Field("month", 1, 12, _MONTHS)
WEEKDAY = Field("day of week", 0, 7, {name: day for day, name in enumerate(_DAY_NAMES)})
AWS_WEEKDAY = Field("day of week", 1, 7, {name: day for day, name in enumerate(_DAY_NAMES, 1)}, 1)
AWS_YEAR = Field("year", FIRST_YEAR, _LAST_AWS_YEAR)
VIXIE = (MINUTE, HOUR, MONTHDAY, MONTH, WEEKDAY)
PLAIN = (MINUTE, HOUR, MONTHDAY, MONTH, Field("day of week", 0, 6), AWS_YEAR)
"""The fields whose plain words are numbers, by position."""


def vixie_text(expression: str) -> str:
    """Return the expression with single spaces and its alias expanded."""
    text = " ".join(expression.split())
    return ALIASES.get(text.lower(), text)


def vixie_fields(expression: str) -> Fields:
    """Parse five fields as in crontab(5). Unparsable names the field, its text and its valid
    values. If both days of month and days of week are restricted (neither begins with `*`), a day
    that fits one of them counts (crontab(5))."""
    texts = _split(vixie_text(expression))
    plain = [
        _plain(one, text, place, is_aws=False)
        for place, (one, text) in enumerate(zip(VIXIE, texts, strict=True), 1)
    ]
    minutes, hours, monthdays, months, weekdays = map(_numbers, range(5), plain)
    both = not (texts[2].startswith("*") or texts[4].startswith("*"))
    return Fields(
        minutes,
        hours,
        OnDays(
            None if texts[2] == "*" else frozenset(monthdays),
            None if texts[4] == "*" else frozenset(weekdays),
            takes_either=both,
        ),
        frozenset(months),
        None,
        _hours_are(texts[1], ("*/",)),
    )


def aws_fields(expression: str) -> Fields:
    """Parse the six fields of `cron(...)` (docs/contract/scheduler.md 4.3). Unparsable for
    everything that AWS does not document, such as two fields of days or an extra space."""
    if len(expression) > LONGEST_EXPRESSION or not re.fullmatch(r"cron\([^()]*\)", expression):
        raise Unparsable("not cron(...)")
    texts = expression[5:-1].split(" ")
    if len(texts) != 6:
        raise Unparsable("not six fields")
    minute, hour, monthday, month, weekday, year = texts
    if (monthday == "?") == (weekday == "?"):
        raise Unparsable("one of day of month and day of week has to be ?")
    plain = [
        _plain(one, text, place, is_aws=True)
        for place, one, text in ((0, MINUTE, minute), (1, HOUR, hour), (3, MONTH, month))
    ]
    return Fields(
        _numbers(0, plain[0]),
        _numbers(1, plain[1]),
        _aws_monthdays(monthday) if weekday == "?" else _aws_weekdays(weekday),
        frozenset(_numbers(3, plain[2])),
        None if year == "*" else _numbers(5, _plain(AWS_YEAR, year, 6, is_aws=True)),
        _hours_are(hour, ("*/", "0/")),
    )


def _split(text: str) -> list[str]:
    if len(text) > LONGEST_EXPRESSION:
        raise Unparsable(f"A cron expression has at most {LONGEST_EXPRESSION} characters.")
    if text.startswith("@"):
        raise Unparsable(
            f"Unknown cron alias {shown(text)}: there are {', '.join(ALIASES)}."
            + (" A schedule has no reboot to wait for." if text.lower() == "@reboot" else "")
        )
    texts = text.split(" ")
    if len(texts) != 5 or not text:
        raise Unparsable(
            "A cron expression has five fields (minute, hour, day of month, month, day of week), "
            f"found {len(texts) if text else 0} in {shown(text)}. There are none for seconds and "
            "years."
        )
    return texts


def _hours_are(text: str, steps: tuple[str, ...]) -> Hours:
    if _EVERY_HOUR.fullmatch(text):
        return "every"
    return "stepped" if text.startswith(steps) and "," not in text else "fixed"


def _plain(one: Field, text: str, place: int, *, is_aws: bool) -> str:
    """Return the field in plain words."""
    return ",".join(_plain_item(one, item, place, is_aws=is_aws) for item in text.split(","))


def _plain_item(one: Field, item: str, place: int, *, is_aws: bool) -> str:
    found = _ITEM.fullmatch(item)
    if not found:
        raise _wrong(one, item, place)
    step = int((found["step"] or "1")[:9])
    if not 1 <= step <= one.size:
        raise _wrong(one, item, place, f"a step is 1-{one.size}; longer intervals are for `every`")
    suffix = f"/{step}" if step > 1 else ""
    if found["star"]:
        return f"*{suffix}"
    low = _number(one, found["low"], item, place)
    if not found["high"]:
        if not found["step"]:
            return str(low - one.shift)
        if not is_aws:
            raise _wrong(
                one, item, place, f"a step needs a range: {item.replace('/', f'-{one.high}/')}"
            )
        high = one.high
    else:
        high = _number(one, found["high"], item, place)
    if low > high and not is_aws:
        split = f"{_span(low, one.low + one.size - 1)},{_span(one.low, high)}"
        raise _wrong(one, item, place, f"a range goes upwards, so write {split}")
    if low >= high or one is WEEKDAY:
        # Sunday is 7, too, at the end of a range.
        values = range(low, high + one.size * (low > high) + 1, step)
        return ",".join(str((value - one.low) % one.size + one.low - one.shift) for value in values)
    return f"{low - one.shift}-{high - one.shift}{suffix}"


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _number(one: Field, text: str, item: str, place: int) -> int:
    number = one.names.get(text.lower())
    if number is None and text.isdecimal() and len(text) <= 9:
        number = int(text)
    if number is None or not one.low <= number <= one.high:
        raise _wrong(one, item, place)
    return number


def _wrong(one: Field, item: str, place: int, hint: str = "") -> Unparsable:
    return Unparsable(
        f"Cron field {place} ({one.name}): {shown(item)} is not allowed; "
        + (hint or f"it takes *, {one.allowed}, lists (a,b), ranges (a-b) and steps (*/n, a-b/n)")
        + "."
    )


@lru_cache(maxsize=1024)
def _numbers(position: int, plain: str) -> tuple[int, ...]:
    """Return the numbers of a plain field: 0 minute, 1 hour, 2 day, 3 month, 4 day of week, 5
    year."""
    one = PLAIN[position]
    numbers: set[int] = set()
    for item in plain.split(","):
        span, _, step = item.partition("/")
        low, _, high = span.replace("*", f"{one.low}-{one.high}").partition("-")
        numbers.update(range(int(low), int(high or low) + 1, int(step or 1)))
    # Sunday is 0 and 7.
    return tuple(sorted({number % 7 for number in numbers} if position == 4 else numbers))


def _aws_monthdays(text: str) -> DayRule:
    if text in ("L", "LW"):
        return LastDay(is_workday=text == "LW")
    if nearest := _NEAREST.fullmatch(text):
        return NearestWorkday(_number(MONTHDAY, nearest[1], text, 3))
    plain = _plain(MONTHDAY, text, 3, is_aws=True)
    return OnDays(None if text == "*" else frozenset(_numbers(2, plain)), None)


def _aws_weekdays(text: str) -> DayRule:
    if nth := _NTH.fullmatch(text):
        return NthWeekday(_number(AWS_WEEKDAY, nth[1], text, 5) - 1, int(nth[2]))
    if text == "L":
        return OnDays(None, frozenset({6}))
    if last := _LAST.fullmatch(text):
        return NthWeekday(_number(AWS_WEEKDAY, last[1], text, 5) - 1, 0)
    plain = _plain(AWS_WEEKDAY, text, 5, is_aws=True)
    return OnDays(None, None if text == "*" else frozenset(_numbers(4, plain)))
