"""Fields of cron expressions: valid texts, and the numbers that they mean.

Each field is first rewritten in plain words: names become numbers, AWS's Sunday becomes 0, and
ranges that wrap become lists. The plain words are then expanded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from queuegate.protocol.expressions.calendars import (
    FIRST_YEAR,
    DayRule,
    Fields,
    Hours,
    LastDay,
    NearestWorkday,
    NthWeekday,
    OnDays,
    Unparsable,
    shown,
)

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
    values.

    If both days of month and days of week are restricted (neither begins with `*`), a day that fits
    one of them counts (crontab(5)).
    """
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
        _aws_years(year),
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


def _aws_years(text: str) -> tuple[int, ...] | None:
    return None if text == "*" else _numbers(5, _plain(AWS_YEAR, text, 6, is_aws=True))
