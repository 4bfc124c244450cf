"""Times in plain English."""

from __future__ import annotations

import pytest

from queuegate.protocol.calendars import Unparsable
from queuegate.protocol.expression_forms import parse_form
from queuegate.protocol.phrases import PHRASES, PHRASES_READ_AT
from queuegate.protocol.timing import Timing, canonical
from tests.scheduler.expressions.oracle import at

CANNOT = "Cron cannot say the first or last of some weekday of a month, nor its last day; "
DIVIDES = "only intervals that divide an hour or a day can be kept to some days"


def read(phrase: str, timezone: str = "UTC") -> Timing:
    return parse_form(when=phrase, timezone=timezone, now=PHRASES_READ_AT)


def becomes(timing: Timing) -> str:
    match canonical(timing):
        case {"cron": str(cron)}:
            return cron
        case {"every_seconds": int(seconds)}:
            return f"every {seconds} seconds"
        case {"fire_at": str(instant)}:
            return instant
    raise AssertionError(timing)


@pytest.mark.parametrize(("phrase", "wanted"), PHRASES)
def test_published_phrases_become_what_the_list_says(phrase: str, wanted: str) -> None:
    assert becomes(read(phrase)) == wanted
    assert becomes(read(f"  {phrase.upper().replace(' AND ', ', ')}. ")) == wanted


@pytest.mark.parametrize(
    ("phrase", "wanted"),
    [
        ("each day at midday", "0 12 * * *"),
        ("every day at 12am", "0 0 * * *"),
        ("every day at 12pm", "0 12 * * *"),
        ("every day at 12:30 am", "30 0 * * *"),
        ("every day at 9 pm", "0 21 * * *"),
        ("every day at 00:00", "0 0 * * *"),
        ("every day at 9am, 9pm and noon", "0 9,12,21 * * *"),
        ("every day at 9:00 and 9:30 and 17:00 and 17:30", "0,30 9,17 * * *"),
        ("every Monday, Wednesday, and Friday at 5pm", "0 17 * * 1,3,5"),
        ("every mon and tue at noon", "0 12 * * 1,2"),
        ("mondays and thursdays at noon", "0 12 * * 1,4"),
        ("on sundays at noon", "0 12 * * 0"),
        ("every weekday and saturday at 8:00", "0 8 * * 1-6"),
        ("every weekday and weekend at 8:00", "0 8 * * *"),
        ("every monday through friday at 8:00", "0 8 * * 1-5"),
        ("friday to monday at 8:00", "0 8 * * 0,1,5,6"),
        ("8am and 6pm on weekdays", "0 8,18 * * 1-5"),
        ("5pm tomorrow", "2026-07-02T17:00:00Z"),
        ("every weekend", "0 0 * * 0,6"),
        ("every hour at minute 5", "5 * * * *"),
        ("every hour on monday to friday", "0 * * * 1-5"),
        ("every 2 hours on weekends", "0 */2 * * 0,6"),
        ("the first of the month at 6am", "0 6 1 * *"),
        ("on the 1st, 10th and 20th of each month", "0 0 1,10,20 * *"),
        ("monthly at noon", "0 12 1 * *"),
        ("yearly on december 24 at 6pm", "0 18 24 12 *"),
        ("every 29th of february at noon", "0 12 29 2 *"),
        ("annually at noon", "0 12 1 1 *"),
        ("in an hour", "2026-07-01T11:00:00Z"),
        ("in 1 hour 30 minutes", "2026-07-01T11:30:00Z"),
        ("in 2 days", "2026-07-03T10:00:00Z"),
        # The list is read on a Wednesday.
        ("next wednesday at 11am", "2026-07-08T11:00:00Z"),
        ("next thu at 9am", "2026-07-02T09:00:00Z"),
        ("next sunday at 9am", "2026-07-05T09:00:00Z"),
        ("2026-12-01 9:15pm", "2026-12-01T21:15:00Z"),
    ],
)
def test_other_spellings(phrase: str, wanted: str) -> None:
    assert becomes(read(phrase)) == wanted


def test_days_and_times_are_those_of_the_zone() -> None:
    # It is 22:00 in Auckland.
    assert becomes(read("tomorrow at 9am", "Pacific/Auckland")) == "2026-07-01T21:00:00Z"
    assert becomes(read("today at 11pm", "Pacific/Auckland")) == "2026-07-01T11:00:00Z"
    # At 09:00 UTC it is still Tuesday on Hawaii.
    early = parse_form(
        when="next wednesday at 1am", timezone="Pacific/Honolulu", now=at("2026-07-01T09:00")
    )
    assert becomes(early) == "2026-07-01T11:00:00Z"
    assert canonical(read("daily at 9am", "Asia/Tokyo"))["timezone"] == "Asia/Tokyo"
    assert canonical(read("every 5 minutes", "Asia/Tokyo"))["timezone"] == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("phrase", "wanted"),
    [
        ("twice a day", "every day"),
        ("evry weekday at 9am", "'every weekday at 9am'"),
        ("evry 15 minuts", "'every 15 minutes'"),
        ("monday at 9am", "'every monday at 9am'"),
        ("tomorow at 5pm", "'tomorrow at 5pm'"),
        ("at 5pm", "Nearest to it are "),
        ("☃", "Nearest to it are 'every 15 minutes', 'every weekday at 9am', 'tomorrow at 5pm'."),
        ("", "Nearest to it are "),
        ("every other tuesday", "No calendar counts every other day or week; every: '2d' or"),
        ("every 2nd day at 9am", "No calendar counts "),
        ("every day at 9", "Write the hour 9 as 9am, 9pm or 9:00."),
        ("every day at 8am and 5", "Write the hour 5 as 5am, 5pm or 5:00."),
        ("every first monday of the month at 10am", CANNOT),
        ("on the last day of the month", CANNOT),
        ("2nd tue of every month", CANNOT),
        ("every 5 fortnights", "Nearest to it are "),
        ("in 0 minutes", "Nearest to it are "),
        ("every day at 9:3", "Nearest to it are "),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_with_what_would_be(phrase: str, wanted: str) -> None:
    with pytest.raises(Unparsable) as refusal:
        read(phrase)
    assert str(refusal.value).startswith(f"when: {phrase!r} is not understood. ")
    assert wanted in str(refusal.value)


@pytest.mark.parametrize(
    ("phrase", "reason"),
    [
        ("every day at 9:30 and 17:00",
         "one schedule cannot have these times, for their minutes differ: make one for each"),
        ("every day at 13pm", "there is no 13pm"),
        ("every day at 0am", "there is no 0am"),
        ("every day at 25:00", "there is no 25:00"),
        ("every day at 9:75", "there is no 9:75"),
        ("hourly at :75", "an hour has minutes 0 to 59"),
        ("every 7 minutes on weekdays", DIVIDES),
        ("every day on mondays", DIVIDES),
        ("on the 32nd of every month", "a month has days 1 to 31"),
        ("every january 0", "a month has days 1 to 31"),
        ("every february 30th", "no year has that day"),
        ("on 2026-02-30 at 9am", "there is no day 2026-02-30"),
        ("today at 10:00", "2026-07-01T10:00:00Z is in the past; now is 2026-07-01T10:00:00Z"),
        ("at 2025-12-01 09:00", "2025-12-01T09:00:00Z is in the past; now is 2026-07-01T10:00:00Z"),
        ("in 999999999 weeks", "that is too far away"),
    ],
)  # fmt: skip
def test_what_is_understood_and_wrong_is_refused_with_the_reason(phrase: str, reason: str) -> None:
    with pytest.raises(Unparsable) as refusal:
        read(phrase)
    assert str(refusal.value) == f"when: {phrase!r}: {reason}."


def test_intervals_out_of_range_are_refused() -> None:
    with pytest.raises(Unparsable, match="at least a second and at most 3650 days"):
        read("every 0 minutes")


def test_the_end_of_the_calendar_is_too_far_away() -> None:
    with pytest.raises(Unparsable, match="that is too far away"):
        read("on 9999-12-31 at 11pm", "America/New_York")


def test_long_phrases_are_refused() -> None:
    with pytest.raises(Unparsable, match="at most 200 characters"):
        read("every day at noon" + " and noon" * 30)


def test_long_phrases_are_shown_cut() -> None:
    with pytest.raises(Unparsable) as refusal:
        read("x" * 200)
    assert f"'{'x' * 59}…'" in str(refusal.value)
