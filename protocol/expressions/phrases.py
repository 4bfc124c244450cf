"""Times in plain English: the published list of what is understood, and the reading of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from difflib import get_close_matches
from zoneinfo import ZoneInfo

from queuegate.protocol.expressions.grammar import Asked, forms, times_last
from queuegate.protocol.expressions.refusal import Unparsable, shown
from queuegate.protocol.expressions.timing import Timing

PHRASES_READ_AT = datetime(2026, 7, 1, 10, 0, tzinfo=UTC)
"""The instant, a Wednesday, at which the list is read."""

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
"""(phrase, what it becomes in UTC): cron, a rate, or one instant.

A recurring phrase without a time of day means midnight. Case, a final full stop and `,` for `and`
make no difference; names of days and months may be cut to three letters."""

_LONGEST = 200
_NTH_DAY = re.compile(
    r"\b(?:last|first|second|third|fourth|fifth|\d(?:st|nd|rd|th)) "
    r"(?:[a-z]*day|mon|tue|wed|thu|fri|sat|sun)\b"
)
_EVERY_OTHER = re.compile(r"\bevery (?:other|second|2nd) ")
_BARE_HOUR = re.compile(r"\b(?:at|and) (\d{1,2})(?= and |$)", re.ASCII)


def parse_when(text: str, *, zone: ZoneInfo, now: datetime) -> Timing:
    """The timing that a phrase says, in the zone.

    "in 2 days" is 48 hours from ``now``; "next friday" is the first friday after today. Unparsable
    names the nearest phrases that are understood, or what is wrong with one that is (a time in the
    past, 13pm, several times of day that no cron expression says).
    """
    if len(text) > _LONGEST:
        raise Unparsable(f"when: a phrase has at most {_LONGEST} characters.")
    plain = re.sub(r"\s*,\s*(and\s+)?", " and ", text.lower().strip().removesuffix("."))
    plain = times_last(" ".join(plain.split()))
    asked = Asked(text, zone, now)
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
