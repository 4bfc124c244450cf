"""Times in plain English: the grammar of `when`, and the published list of phrases.

Forms match phrases in lower case, with single spaces and `and` for commas. A reader returns None if
its form fits but the words do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from itertools import product
from zoneinfo import ZoneInfo

from queuegate.protocol.calendars import (
    Unparsable,
    local_to_instant,
    shown,
    vixie_fields,
    wall_time,
)
from queuegate.protocol.malformed import refusing
from queuegate.protocol.timing import Timing, interval_cron, interval_seconds, parse_every, written

DAY_NAMES = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_DAYS = {name: day for day, full in enumerate(DAY_NAMES) for name in (full, full[:3])}
_MONTHS = {name: number for number, full in enumerate(MONTH_NAMES, 1) for name in (full, full[:3])}
_SETS = {"day": range(7), "weekday": range(1, 6), "weekend": (0, 6)}


@dataclass(frozen=True, slots=True)
class PhraseReader:
    """A phrase as written, with its zone and the present instant."""

    text: str
    zone: ZoneInfo
    now: datetime

    def refusal(self, reason: str) -> Unparsable:
        return Unparsable(f"when: {shown(self.text)}: {reason}.")

    def cron(self, expression: str) -> Timing:
        if not vixie_fields(expression).ever_fires():
            raise self.refusal("no year has that day")
        return Timing("cron", expression=expression, timezone=self.zone.key)

    def once(self, instant: datetime) -> Timing:
        if instant <= self.now:
            now = written(self.now.replace(microsecond=0))
            raise self.refusal(f"{written(instant)} is in the past; now is {now}")
        return Timing("once", instant=instant)

    def once_on(self, day: date, time: str) -> Timing:
        hour, minute = self.clock(time)
        return self.once(local_to_instant(wall_time(day, hour, minute), self.zone))

    @property
    def today(self) -> date:
        return self.now.astimezone(self.zone).date()

    def clock(self, time: str) -> tuple[int, int]:
        """Return hour and minute of 9am, 9:30pm, 17:00, noon or midnight."""
        if time in ("noon", "midday", "midnight"):
            return (0 if time == "midnight" else 12), 0
        digits = time.rstrip("apm ")
        hours, _, minutes = digits.partition(":")
        hour, minute = int(hours), int(minutes or 0)
        is_half_day = time.endswith("m")
        if minute > 59 or not (1 <= hour <= 12 if is_half_day else hour <= 23):
            raise self.refusal(f"there is no {time}")
        return (hour % 12 + 12 * time.endswith("pm") if is_half_day else hour), minute

    def clocks(self, times: str | None) -> str:
        """Return the minute and hour fields of cron for times of day; midnight by default."""
        clocks = {self.clock(time) for time in (times or "midnight").split(" and ")}
        hours = sorted({hour for hour, _ in clocks})
        minutes = sorted({minute for _, minute in clocks})
        if clocks != {*product(hours, minutes)}:
            raise self.refusal(
                "one schedule cannot have these times, for their minutes differ: make one for each"
            )
        return f"{_listed(minutes)} {_listed(hours)}"


Reader = Callable[[PhraseReader, re.Match[str]], Timing | None]


def _interval(asked: PhraseReader, found: re.Match[str]) -> Timing | None:
    seconds = interval_seconds(found["interval"])
    if seconds is None:
        return None
    if not found["days"]:
        return parse_every(found["interval"], timezone=asked.zone.key, now=asked.now)
    cron = interval_cron(seconds)
    if cron is None or seconds >= 86400:
        raise asked.refusal("only intervals that divide an hour or a day can be kept to some days")
    return asked.cron(f"{cron.removesuffix('*')}{_weekdays(found['days'])}")


def _hourly(asked: PhraseReader, found: re.Match[str]) -> Timing:
    minute = int(found["minute"] or 0)
    if minute > 59:
        raise asked.refusal("an hour has minutes 0 to 59")
    return asked.cron(f"{minute} * * * *")


def _on_days(asked: PhraseReader, found: re.Match[str]) -> Timing:
    return asked.cron(f"{asked.clocks(found['times'])} * * {_weekdays(found['days'])}")


def _daily(asked: PhraseReader, found: re.Match[str]) -> Timing:
    weekday = {"daily": "*", "weekly": "0"}[found["often"]]
    return asked.cron(f"{asked.clocks(found['times'])} * * {weekday}")


def _monthly(asked: PhraseReader, found: re.Match[str]) -> Timing:
    words = re.findall(r"first|\d+", found["ordinals"] or "first")
    days = sorted({1 if word == "first" else int(word) for word in words})
    if days[0] < 1 or days[-1] > 31:
        raise asked.refusal("a month has days 1 to 31")
    return asked.cron(f"{asked.clocks(found['times'])} {_listed(days)} * *")


def _yearly(asked: PhraseReader, found: re.Match[str]) -> Timing:
    said = {"day": "1", "month": "january"} | found.groupdict()
    day = int(said["day"])
    if not 1 <= day <= 31:
        raise asked.refusal("a month has days 1 to 31")
    return asked.cron(f"{asked.clocks(found['times'])} {day} {_MONTHS[said['month']]} *")


def _in(asked: PhraseReader, found: re.Match[str]) -> Timing | None:
    seconds = interval_seconds(re.sub(r"^an? ", "1 ", found["interval"]))
    if not seconds:
        return None
    with refusing(asked.refusal("that is too far away"), OverflowError):
        return asked.once(asked.now + timedelta(seconds=seconds))


def _near_day(asked: PhraseReader, found: re.Match[str]) -> Timing:
    day = found["day"]
    if day in ("today", "tomorrow"):
        days = int(day == "tomorrow")
    else:
        days = (_DAYS[day.removeprefix("next ")] - asked.today.isoweekday() - 1) % 7 + 1
    return asked.once_on(asked.today + timedelta(days=days), found["time"])


def _on_date(asked: PhraseReader, found: re.Match[str]) -> Timing:
    with refusing(asked.refusal(f"there is no day {found['date']}"), ValueError):
        day = date.fromisoformat(found["date"])
    with refusing(asked.refusal("that is too far away"), OverflowError):
        return asked.once_on(day, found["time"])


def _weekdays(text: str) -> str:
    """Return the field of cron for names of days."""
    first, _, last = re.sub(r" (through|until) ", " to ", text).partition(" to ")
    if last:
        start = _DAYS[first]
        days = {(start + step) % 7 for step in range((_DAYS[last] - start) % 7 + 1)}
    else:
        days = set()
        for name in text.split(" and "):
            singular = name.removesuffix("s") if name not in _DAYS else name
            days.update(_SETS.get(singular) or {_DAYS[singular]})
    if len(days) == 7:
        return "*"
    first_day, last_day = min(days), max(days)
    if len(days) > 2 and last_day - first_day == len(days) - 1:
        return f"{first_day}-{last_day}"
    return _listed(days)


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def _any_of(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_TIME = r"(?:noon|midday|midnight|\d{1,2}(?::\d\d)? ?[ap]m|\d{1,2}:\d\d)"
_TIMES = rf"{_TIME}(?: and {_TIME})*"
_AT = rf"(?: at (?P<times>{_TIMES}))?"
_NAME = rf"(?:{_any_of(_DAYS)})"
_SPAN = rf"{_NAME} (?:to|through|until) {_NAME}"
_MANY = rf"(?:{_NAME}|weekday|weekend)s(?: and (?:{_NAME}|weekday|weekend)s)*"
_SOME = rf"(?:{_NAME}|day|weekday|weekend)s?(?: and (?:{_NAME}|weekday|weekend)s?)*"
_ORDINAL = r"(?:first|\d{1,2}(?:st|nd|rd|th))"
_ORDINALS = rf"(?P<ordinals>{_ORDINAL}(?: and (?:the )?{_ORDINAL})*)"
_MONTH = rf"(?P<month>{_any_of(_MONTHS)})"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"

_TIME_FIRST = rf"(?:at )?({_TIMES}) ((?:every|each|on|daily|weekly|tomorrow|today)\b.*)"
_FORMS: tuple[tuple[str, Reader], ...] = (
    (
        rf"(?:every|each) (?P<interval>(?:\d+ ?)?[a-z]+)(?: on (?P<days>{_SPAN}|{_MANY}))?",
        _interval,
    ),
    (r"(?:hourly|(?:every|each) hour)(?: at (?:minute |:)(?P<minute>\d{1,2}))?", _hourly),
    (rf"(?:every|each|on|weekly on) (?P<days>{_SPAN}|{_SOME}){_AT}", _on_days),
    (rf"(?P<days>{_SPAN}|{_MANY}){_AT}", _on_days),
    (rf"(?P<often>daily|weekly){_AT}", _daily),
    (rf"(?:on )?the {_ORDINALS}(?: day)? of (?:every|each|the) month{_AT}", _monthly),
    (rf"(?:(?:every|each) month|monthly)(?: on the {_ORDINALS})?{_AT}", _monthly),
    (rf"(?:(?:every|each) year|yearly|annually){_AT}", _yearly),
    (rf"(?:every|each|(?:every year|yearly) on) {_MONTH} (?:the )?{_DAY}{_AT}", _yearly),
    (rf"(?:every|each|(?:every year|yearly) on) (?:the )?{_DAY} (?:of )?{_MONTH}{_AT}", _yearly),
    (r"in (?P<interval>.+)", _in),
    (rf"(?:on )?(?P<day>today|tomorrow|next {_NAME}) at (?P<time>{_TIME})", _near_day),
    (rf"(?:at |on )?(?P<date>\d{{4}}-\d\d-\d\d)(?: at)? (?P<time>{_TIME})", _on_date),
)


# Compiled at first use: this takes longer than importing everything else here.
@cache
def forms() -> tuple[tuple[re.Pattern[str], Reader], ...]:
    """Return the forms in the order of their trial, each with its reader."""
    return tuple((re.compile(pattern, re.ASCII), read) for pattern, read in _FORMS)


def times_last(phrase: str) -> str:
    """Move the times of day in a phrase to its end: "9am every weekday"."""
    turned = re.fullmatch(_TIME_FIRST, phrase, re.ASCII)
    return f"{turned[2]} at {turned[1]}" if turned else phrase


PHRASES_READ_AT = datetime(2026, 7, 1, 10, 0, tzinfo=UTC)
"""The instant, a Wednesday, for reading the list."""

PHRASES: tuple[tuple[str, str], ...] = (
    ("every minute", "* * * * *"),
    ("every 15 minutes", "*/15 * * * *"),
    ("every 90 minutes", "every 5400 seconds"),
    ("every 30 seconds", "every 30 seconds"),
    ("every 10 minutes on weekdays", "*/10 * * * 1-5"),
    ("every hour", "0 * * * *"),
    ("hourly", "0 * * * *"),
    ("every hour at :15", "15 * * * *"),
    ("every 6 hours", "0 */6 * * *"),
    ("every day", "0 0 * * *"),
    ("every day at 9:30", "30 9 * * *"),
    ("every day at 9:30 and 17:30", "30 9,17 * * *"),
    ("daily at noon", "0 12 * * *"),
    ("every weekday at 9am", "0 9 * * 1-5"),
    ("weekdays at 8am and 6pm", "0 8,18 * * 1-5"),
    ("weekends at 10am", "0 10 * * 0,6"),
    ("every monday at 9am", "0 9 * * 1"),
    ("every monday and thursday at noon", "0 12 * * 1,4"),
    ("mondays at 17:45", "45 17 * * 1"),
    ("monday to thursday at 8am", "0 8 * * 1-4"),
    ("at 9am every weekday", "0 9 * * 1-5"),
    ("weekly", "0 0 * * 0"),
    ("weekly on friday at 4pm", "0 16 * * 5"),
    ("every month", "0 0 1 * *"),
    ("monthly on the 15th at 9am", "0 9 15 * *"),
    ("every month on the 1st and 15th at 9am", "0 9 1,15 * *"),
    ("on the 1st of every month at 00:00", "0 0 1 * *"),
    ("every year", "0 0 1 1 *"),
    ("every january 1st at midnight", "0 0 1 1 *"),
    ("every year on 24 december at 6pm", "0 18 24 12 *"),
    ("in 10 minutes", "2026-07-01T10:10:00Z"),
    ("in 2 hours", "2026-07-01T12:00:00Z"),
    ("today at 18:00", "2026-07-01T18:00:00Z"),
    ("tomorrow at 5pm", "2026-07-02T17:00:00Z"),
    ("next friday at noon", "2026-07-03T12:00:00Z"),
    ("at 2026-12-01 09:00", "2026-12-01T09:00:00Z"),
    ("on 2026-12-01 at 9am", "2026-12-01T09:00:00Z"),
)
"""Phrases with their result in UTC: cron, a rate, or one instant.

A recurring phrase without a time of day means midnight. Case, a final full stop and `,` for `and`
make no difference; names of days and months may be cut to three letters.
"""

_LONGEST = 200
_NTH_DAY = re.compile(
    r"\b(?:last|first|second|third|fourth|fifth|\d(?:st|nd|rd|th)) "
    r"(?:[a-z]*day|mon|tue|wed|thu|fri|sat|sun)\b"
)
_EVERY_OTHER = re.compile(r"\bevery (?:other|second|2nd) ")
_BARE_HOUR = re.compile(r"\b(?:at|and) (\d{1,2})(?= and |$)", re.ASCII)


def parse_when(text: str, *, zone: ZoneInfo, now: datetime) -> Timing:
    """Return the timing of a phrase in the zone. "in 2 days" is 48 hours from ``now``; "next
    friday" is the first friday after today. Unparsable names the nearest phrases, or the fault of a
    phrase (a time in the past, 13pm, several times of day that no cron expression has)."""
    if len(text) > _LONGEST:
        raise Unparsable(f"when: a phrase has at most {_LONGEST} characters.")
    plain = re.sub(r"\s*,\s*(and\s+)?", " and ", text.lower().strip().removesuffix("."))
    plain = times_last(" ".join(plain.split()))
    asked = PhraseReader(text, zone, now)
    for pattern, read in forms():
        if (found := pattern.fullmatch(plain)) and (timing := read(asked, found)):
            return timing
    raise Unparsable(f"when: {shown(text)} is not understood. {_hint(plain)}")


def _hint(plain: str) -> str:
    if hour := _BARE_HOUR.search(plain):
        return f"Write the hour {hour[1]} as {hour[1]}am, {hour[1]}pm or {hour[1]}:00."
    if _EVERY_OTHER.search(plain):
        return "No calendar counts every other day or week; every: '2d' or '2w' counts from now on."
    if _NTH_DAY.search(plain):
        return (
            "Cron cannot say the first or last of some weekday of a month, nor its last day; days "
            "of a month by number it can, such as 'on the 1st of every month at 00:00'."
        )
    phrases = [phrase for phrase, _ in PHRASES]
    near = get_close_matches(plain, phrases, n=3, cutoff=0.5) or [phrases[i] for i in (1, 13, 33)]
    return f"Nearest to it are {', '.join(map(repr, near))}."
