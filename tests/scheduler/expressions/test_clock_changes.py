"""Schedules at changes of the clock, by example."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from queuegate.protocol.expression_forms import parse_aws, parse_form
from queuegate.protocol.timing import Timing
from tests.scheduler.expressions.oracle import DAY, at

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
APIA, SAO_PAULO = "Pacific/Apia", "America/Sao_Paulo"


def local(cron: str, zone: str, day: str) -> list[str]:
    """Local times of one day with their offsets."""
    timing = parse_form(cron=cron, timezone=zone, now=at(day))
    found = timing.times(at(day) - DAY, at(day) + 2 * DAY, limit=10_000)
    shown = [one.astimezone(ZoneInfo(zone)) for one in found]
    return [f"{one:%d %H:%M%z}".removesuffix("00") for one in shown if one.date() == at(day).date()]


@pytest.mark.parametrize(
    ("cron", "zone", "day", "wanted"),
    [
        # 02:00 becomes 03:00.
        ("30 2 * * *", BERLIN, "2026-03-29", ["29 03:00+02"]),
        ("0,30 2 * * *", BERLIN, "2026-03-29", ["29 03:00+02"]),
        ("30 2,3 * * *", BERLIN, "2026-03-29", ["29 03:00+02", "29 03:30+02"]),
        ("0 2,3 * * *", BERLIN, "2026-03-29", ["29 03:00+02"]),
        ("30 2 * * *", NEW_YORK, "2026-03-08", ["08 03:00-04"]),
        # 03:00 becomes 02:00, and 02:00 becomes 01:00.
        ("30 2 * * *", BERLIN, "2026-10-25", ["25 02:30+02"]),
        ("30 1-3 * * *", BERLIN, "2026-10-25", ["25 01:30+02", "25 02:30+02", "25 03:30+01"]),
        ("30 1 * * *", NEW_YORK, "2026-11-01", ["01 01:30-04"]),
        # 02:00 becomes 02:30, and 02:00 becomes 01:30.
        ("15 2 * * *", LORD_HOWE, "2026-10-04", ["04 02:30+11"]),
        ("45 1 * * *", LORD_HOWE, "2026-04-05", ["05 01:45+11"]),
        # There was no 30 December; its runs are made up for at once.
        ("0 9 * * *", APIA, "2011-12-31", ["31 00:00+14", "31 09:00+14"]),
        # 00:00 becomes 01:00, and 24:00 becomes 23:00.
        ("0 0 * * *", SAO_PAULO, "2018-11-04", ["04 01:00-02"]),
        ("30 23 * * *", SAO_PAULO, "2018-02-17", ["17 23:30-02"]),
    ],
)
def test_hours_by_name_run_once_a_day(cron: str, zone: str, day: str, wanted: list[str]) -> None:
    assert local(cron, zone, day) == wanted


@pytest.mark.parametrize(
    ("cron", "zone", "day", "count"),
    [
        ("0 * * * *", BERLIN, "2026-03-29", 23),
        ("0 * * * *", BERLIN, "2026-10-25", 25),
        ("30 * * * *", NEW_YORK, "2026-03-08", 23),
        ("30 * * * *", NEW_YORK, "2026-11-01", 25),
        ("*/15 * * * *", BERLIN, "2026-03-29", 92),
        ("*/15 * * * *", BERLIN, "2026-10-25", 100),
        ("*/10 * * * *", LORD_HOWE, "2026-10-04", 141),
        ("*/10 * * * *", LORD_HOWE, "2026-04-05", 147),
        ("0 * * * *", SAO_PAULO, "2018-11-04", 23),
        ("0 * * * *", SAO_PAULO, "2018-02-17", 25),
        ("0 */2 * * *", BERLIN, "2026-10-25", 13),
        # 02:00 is made up for at 03:00.
        ("0 */2 * * *", BERLIN, "2026-03-29", 12),
    ],
)
def test_every_hour_follows_elapsed_time(cron: str, zone: str, day: str, count: int) -> None:
    assert len(local(cron, zone, day)) == count


def test_an_hour_by_name_is_over_once_it_has_been() -> None:
    timing = Timing("cron", expression="30 2 * * *", timezone=BERLIN)
    # 02:10 for the second time; 02:30 was 40 minutes ago.
    assert timing.next_after(at("2026-10-25T01:10")) == at("2026-10-26T01:30")


def test_repeated_hours_are_in_order() -> None:
    assert local("30 */2 * * *", BERLIN, "2026-10-25")[:4] == [
        "25 00:30+02", "25 02:30+02", "25 02:30+01", "25 04:30+01",
    ]  # fmt: skip


def test_the_hour_after_a_skipped_one_is_not_run_twice() -> None:
    assert local("30 * * * *", BERLIN, "2026-03-29")[:3] == [
        "29 00:30+01", "29 01:30+01", "29 03:30+02",
    ]  # fmt: skip


def test_a_weekday_run_keeps_its_local_time() -> None:
    timing = parse_form(when="every weekday at 9am", timezone=BERLIN, now=at("2026-01-01"))
    winter, summer = timing.next_after(at("2026-03-27")), timing.next_after(at("2026-03-30"))
    assert (winter, summer) == (at("2026-03-27T08:00"), at("2026-03-30T07:00"))


def test_rates_count_elapsed_time() -> None:
    timing = Timing("rate", seconds=86400, anchor=at("2026-03-28T08:00"))
    aws = parse_aws("rate(1 day)", timezone=BERLIN, anchor=at("2026-03-28T08:00"))
    assert timing == aws
    assert [*timing.times(at("2026-03-28T08:00"), limit=2)] == [
        at("2026-03-29T08:00"), at("2026-03-30T08:00"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wall", "zone", "wanted"),
    [
        ("2026-03-29T02:30:00", BERLIN, "2026-03-29T01:00:00"),
        ("2026-10-25T02:30:00", BERLIN, "2026-10-25T00:30:00"),
        ("2026-10-04T02:10:07", LORD_HOWE, "2026-10-03T15:30:00"),
        ("2011-12-30T12:00:00", APIA, "2011-12-30T10:00:00"),
        ("2018-11-04T00:59:59", SAO_PAULO, "2018-11-04T03:00:00"),
        ("2026-07-01T12:00:30", "Asia/Kathmandu", "2026-07-01T06:15:30"),
    ],
)
def test_single_local_times(wall: str, zone: str, wanted: str) -> None:
    once = parse_aws(f"at({wall})", timezone=zone, anchor=at("2026-01-01"))
    assert once.instant == at(wanted)
    assert once == parse_form(fire_at=wall, timezone=zone, now=at("2011-01-01"))


def test_aws_expressions_have_the_same_rules() -> None:
    def times(hour: str, day: str) -> list[str]:
        timing = parse_aws(f"cron(30 {hour} * * ? *)", timezone=BERLIN, anchor=at("2026-01-01"))
        return [f"{one:%H:%M}" for one in timing.times(at(day), at(day) + DAY / 8, limit=9)]

    assert times("2", "2026-03-29") == ["01:00"]
    assert times("2", "2026-10-25") == ["00:30"]
    assert times("*", "2026-10-25") == ["00:30", "01:30", "02:30"]
    assert times("0/2", "2026-10-25") == ["00:30", "01:30"]
    assert times("*/2", "2026-03-29") == ["01:00", "02:30"]
