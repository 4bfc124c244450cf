"""Times of cron expressions against the brute-force oracle, around changes of the clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuegate.protocol.expression_forms import parse_aws, parse_form
from queuegate.protocol.timing import Timing
from tests.scheduler.expressions.oracle import DAY, at, aws_day, fires

# A zone, and the day before a change of its clock.
CHANGES = [
    ("UTC", "2026-02-27"),
    ("Europe/Berlin", "2026-03-28"),
    ("Europe/Berlin", "2026-10-24"),
    ("America/New_York", "2026-03-07"),
    ("America/New_York", "2026-10-31"),
    ("Australia/Lord_Howe", "2026-04-04"),
    ("Australia/Lord_Howe", "2026-10-03"),
    ("America/Sao_Paulo", "2018-02-17"),
    ("America/Sao_Paulo", "2018-11-03"),
    ("America/Havana", "2026-10-31"),
    ("Asia/Kathmandu", "2026-06-30"),
    ("Pacific/Apia", "2011-12-29"),
]
DAYS = 4


def ranges(low: int, high: int) -> st.SearchStrategy[str]:
    def written(ends: tuple[int, int], step: int) -> str:
        return f"{min(ends)}-{max(ends)}" + (f"/{step}" if step else "")

    number = st.integers(low, high)
    return st.builds(written, st.tuples(number, number), st.integers(0, high))


def fields(low: int, high: int, *stars: str) -> st.SearchStrategy[str]:
    one = st.integers(low, high).map(str) | ranges(low, high)
    some = st.lists(one, min_size=1, max_size=3).map(",".join)
    return st.sampled_from(["*", *stars]) | some


DAY_FIELDS = st.sampled_from([("*", "*")] * 4 + [("*", "mon-fri"), ("*/2", "*"), ("*/2", "sat")])
SOME_DAYS = st.tuples(fields(1, 31, "*/3"), fields(0, 7, "*/2", "*/3", "sun", "Tue,SAT"))
CRONS = st.builds(
    lambda minute, hour, days, month: f"{minute} {hour} {days[0]} {month} {days[1]}",
    fields(0, 59, "*/5", "*/7", "*/30", "0", "30"),
    fields(0, 23, "*/1", "*/2", "*/12", "0", "1", "2", "0-3"),
    DAY_FIELDS | SOME_DAYS,
    st.sampled_from(["*"] * 3 + ["*/2", "jan-jun", "2,3,4,10,11,12"]),
)


@given(CRONS, st.sampled_from(CHANGES))
@example("30 2 * * *", CHANGES[1])
@example("30 * * * *", CHANGES[1])
@example("30 */2 * * *", CHANGES[1])
@example("30 2 * * *", CHANGES[2])
@example("*/20 */2 * * *", CHANGES[2])
@example("30 */2,5 * * *", CHANGES[2])
@example("15,45 * * * *", CHANGES[5])
@example("15,45 */2 * * *", CHANGES[6])
@example("30 0 * * *", CHANGES[8])
@example("0 */12 * * *", CHANGES[8])
@example("0 6 30 * *", CHANGES[11])
@example("0 0 1-7/2 * 1-7/2", CHANGES[0])
@example("5-5 7-7/3 * * 7-7", CHANGES[0])
def test_times_are_those_of_the_oracle(cron: str, change: tuple[str, str]) -> None:
    zone, day = change
    start = at(day)
    wanted = fires(cron, zone, start, DAYS)
    timing = Timing("cron", expression=cron, timezone=zone)
    last = start + DAYS * DAY - timedelta(microseconds=1)
    before = start - timedelta(microseconds=1)
    assert [*timing.times(before, last, limit=len(wanted) + 1)] == wanted


@given(
    CRONS,
    st.sampled_from(CHANGES),
    st.timedeltas(timedelta(), (DAYS - 1) * DAY),
)
@example("30 * * * *", CHANGES[2], timedelta(days=1, minutes=40))
@example("30 2 * * *", CHANGES[2], timedelta(days=1, minutes=70))
@example("10 */2 * * *", CHANGES[2], timedelta(minutes=50, days=1))
def test_any_instant_has_the_next_time_of_the_oracle(
    cron: str, change: tuple[str, str], ahead: timedelta
) -> None:
    zone, day = change
    instant = at(day) + ahead
    wanted = [one for one in fires(cron, zone, at(day), DAYS) if one > instant]
    found = Timing("cron", expression=cron, timezone=zone).next_after(instant)
    if wanted:
        assert found == wanted[0]
    else:
        assert found is None or found >= at(day) + DAYS * DAY


@given(CRONS, st.sampled_from(CHANGES), st.integers(0, 2**32))
def test_times_rise_and_are_whole_minutes(cron: str, change: tuple[str, str], after: int) -> None:
    instant = datetime.fromtimestamp(after, UTC)
    times = [*Timing("cron", expression=cron, timezone=change[0]).times(instant, limit=20)]
    assert all(one < later for one, later in zip([instant, *times], times, strict=False))
    assert all(one.tzinfo is UTC and one.microsecond == 0 for one in times)


AWS_DAYS = st.one_of(
    st.tuples(
        st.sampled_from(["*", "L", "LW", "1W", "31W", "30W", "2-4,31", "*/10"])
        | st.integers(1, 31).map("{}W".format)
        | fields(1, 31),
        st.just("?"),
    ),
    st.tuples(
        st.just("?"),
        st.sampled_from(["*", "L", "MON-FRI", "sun,Sat", "2/2"])
        | st.builds("{}#{}".format, st.integers(1, 7), st.integers(1, 5))
        | st.integers(1, 7).map("{}L".format)
        | fields(1, 7),
    ),
)


@given(AWS_DAYS, st.integers(1970, 2190))
@example(("?", "7L"), 2096)
@example(("31W", "?"), 2027)
def test_days_of_aws_expressions_are_those_of_the_oracle(days: tuple[str, str], year: int) -> None:
    monthday, weekday = days
    timing = parse_aws(
        f"cron(0 0 {monthday} * {weekday} {year}-{year + 1})", anchor=at("2026-01-01")
    )
    is_meant = aws_day("?" if weekday == "L" else monthday, "7" if weekday == "L" else weekday)
    first = date(year, 1, 1)
    count = (date(year + 2, 1, 1) - first).days
    wanted = [day for n in range(count) if is_meant(day := first + n * DAY)]
    found = [*timing.times(at(f"{year - 1}-12-31"), limit=count + 1)]
    assert [one.date() for one in found] == wanted


@pytest.mark.parametrize("cron", ["0 0 29 2 *", "0 0 29 2 1", "0 0 */29 2 1", "0 0 31 */2 *"])
def test_rare_days_are_found(cron: str) -> None:
    timing = parse_form(cron=cron, now=at("2096-03-01"))
    found = timing.next_after(at("2096-03-01"))
    assert found is not None
    wanted = fires(cron, "UTC", found - 5 * DAY, 10)
    assert found in wanted


def test_a_fifth_weekday_in_february_is_found_across_2100() -> None:
    timing = parse_aws("cron(0 0 ? 2 1#5 *)", anchor=at("2026-01-01"))
    assert [one.year for one in timing.times(at("2076-03-01"), limit=2)] == [2088, 2128]
