"""Timings as they are stored, and their times in turn."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol.calendars import Unparsable
from queuegate.protocol.expression_forms import human_readable
from queuegate.protocol.timing import Timing, canonical
from tests.scheduler.expressions.oracle import at

INSTANTS = st.datetimes(
    at("1970-01-02").replace(tzinfo=None), at("9000-01-01").replace(tzinfo=None)
).map(lambda one: one.replace(tzinfo=UTC))
TIMINGS = st.one_of(
    st.builds(lambda instant: Timing("once", instant=instant), INSTANTS),
    st.builds(
        lambda seconds, anchor: Timing("rate", seconds=seconds, anchor=anchor),
        st.integers(1, 10**9),
        INSTANTS,
    ),
    st.builds(
        lambda expression, zone: Timing("cron", expression=expression, timezone=zone),
        st.sampled_from(["*/5 * * * *", "0 9 * * mon-fri", "0 0 29 2 *"]),
        st.sampled_from(["UTC", "Europe/Berlin"]),
    ),
    st.just(Timing("aws_cron", expression="cron(0 9 L * ? *)", timezone="Asia/Tokyo")),
)


@given(TIMINGS, INSTANTS)
def test_json_holds_everything(timing: Timing, instant: datetime) -> None:
    again = Timing.from_json(json.loads(json.dumps(timing.to_json())))
    assert again == timing
    assert again.next_after(instant) == timing.next_after(instant)
    assert canonical(again) == canonical(timing)
    assert human_readable(again) == human_readable(timing)


@given(TIMINGS, INSTANTS)
def test_times_rise(timing: Timing, after: datetime) -> None:
    times = [*timing.times(after, limit=5)]
    assert all(one < later for one, later in zip([after, *times], times, strict=False))


@given(st.integers(1, 10**6), INSTANTS, st.timedeltas(timedelta(), timedelta(days=400)))
def test_a_rate_is_its_anchor_and_whole_steps(
    seconds: int, anchor: datetime, ahead: timedelta
) -> None:
    found = Timing("rate", seconds=seconds, anchor=anchor).next_after(anchor + ahead)
    assert found is not None
    assert (found - anchor) % timedelta(seconds=seconds) == timedelta()
    assert timedelta() < found - (anchor + ahead) <= timedelta(seconds=seconds)


def test_times_end_with_the_last_instant_and_with_the_limit() -> None:
    timing = Timing("cron", expression="0 * * * *")
    noon, three = at("2026-07-01T12:00"), at("2026-07-01T15:00")
    wanted = [at(f"2026-07-01T{hour}:00") for hour in (13, 14, 15)]
    assert [*timing.times(noon, three, limit=99)] == wanted
    assert [*timing.times(noon, three - timedelta(seconds=1), limit=99)] == wanted[:2]
    assert [*timing.times(noon, limit=1)] == wanted[:1]
    assert [*timing.times(noon, limit=0)] == []


def test_a_single_time_comes_once() -> None:
    timing = Timing("once", instant=at("2026-07-01T12:00"))
    assert [*timing.times(at("2026-07-01"), limit=9)] == [timing.instant]
    assert timing.next_after(at("2026-07-01T12:00")) is None


def test_instants_of_any_zone_are_taken() -> None:
    timing = Timing("cron", expression="0 12 * * *")
    instant = datetime(2026, 7, 1, 13, 30, tzinfo=timezone(timedelta(hours=2)))
    found = timing.next_after(instant)
    assert found == at("2026-07-01T12:00")
    assert found is not None
    assert found.tzinfo is UTC


def test_the_ends_of_the_calendar() -> None:
    timing = Timing("cron", expression="0 0 * * *", timezone="Asia/Tokyo")
    assert timing.next_after(datetime.min.replace(tzinfo=UTC)) == at("1970-01-01T15:00")
    assert timing.next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert timing.next_after(at("9998-12-31T00:00")) is None
    assert Timing("rate", seconds=60, anchor=at("2026-07-01")).next_after(
        datetime.max.replace(tzinfo=UTC)
    ) is None  # fmt: skip


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"kind": "never"},
        {"kind": "once", "instant": "soon"},
        {"kind": "once", "instant": "2026-07-01T12:00:00"},
        {"kind": "once", "instant": None},
        {"kind": "rate", "seconds": 0, "anchor": "2026-07-01T12:00:00Z"},
        {"kind": "rate", "seconds": "5", "anchor": "2026-07-01T12:00:00Z"},
        {"kind": "cron", "expression": "* * * * *"},
    ],
)
def test_other_json_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(Unparsable, match="no stored timing"):
        Timing.from_json(stored)


def test_a_stored_expression_that_is_none_is_refused_when_it_is_used() -> None:
    with pytest.raises(Unparsable, match="Cron field 1"):
        Timing("cron", expression="61 * * * *").next_after(at("2026-07-01"))
    with pytest.raises(Unparsable, match="Unknown timezone"):
        Timing("cron", expression="1 * * * *", timezone="Mars").next_after(at("2026-07-01"))
