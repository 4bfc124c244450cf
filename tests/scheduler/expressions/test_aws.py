"""Schedule expressions of EventBridge Scheduler."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from queuegate.protocol.calendars import Unparsable
from queuegate.protocol.expression_forms import parse_aws
from queuegate.protocol.timing import Timing, canonical
from tests.protocol.contract import load
from tests.scheduler.expressions.oracle import at

VECTORS = load("schedule_expressions")
NOW = at("2026-07-01T10:00")


@pytest.mark.parametrize("vector", VECTORS["valid"], ids=lambda vector: vector["expression"])
def test_valid_vectors(vector: dict[str, Any]) -> None:
    timing = parse_aws(vector["expression"], anchor=NOW)
    assert timing.next_after(NOW) is not None
    assert Timing.from_json(timing.to_json()) == timing


@pytest.mark.parametrize("vector", VECTORS["invalid"], ids=lambda vector: vector["expression"])
def test_invalid_vectors(vector: dict[str, Any]) -> None:
    with pytest.raises(Unparsable) as refusal:
        parse_aws(vector["expression"], anchor=NOW)
    assert str(refusal.value) == vector["message"]


@pytest.mark.parametrize(
    "expression",
    [
        "", "cron", "CRON(0 9 * * ? *)", "cron(0 9 * * ? *) ", "cron( 0 9 * * ? *)",
        "cron(0 9 * * ?)", "cron(0 9 ? * MON#1,TUE#1 *)",
        "cron(0  9 * * ? *)", "cron(0 9 ? * ? *)", "cron(0 9 * * MON *)", "cron(? 9 * * ? *)",
        "cron(0 9 0 * ? *)", "cron(0 9 32 * ? *)", "cron(0 9 * 13 ? *)", "cron(0 9 ? * 0 *)",
        "cron(0 9 ? * 8 *)", "cron(0 24 * * ? *)", "cron(0 9 * * ? 1969)", "cron(0 9 * * ? 2200)",
        "cron(*/0 9 * * ? *)", "cron(*/61 9 * * ? *)", "cron(0 9 ? * MON#6 *)",
        "cron(0 9 ? * MON#0 *)", "cron(0 9 ? * 8L *)", "cron(0 9 L,3 * ? *)", "cron(0 9 W * ? *)",
        "cron(0 9 32W * ? *)", "cron(0 9 L-3 * ? *)", "cron(0 9 1-5W * ? *)", "cron(H 9 * * ? *)",
        "cron(0 9 * * ? R)", "cron(0 9 1,,2 * ? *)", "cron(0 9 - * ? *)", "cron(-5 9 * * ? *)",
        "cron(0 9 * * ? *)\n", "cron(0 9 * * ? *\u00a0)", "cron(٣ 9 * * ? *)", "rate(0 minutes)",
        "rate(1  minute)", "rate(1.5 hours)", "rate(5 weeks)", "rate(5 Minutes)", "rate(5minutes)",
        "at()", "at(2026-13-01T00:00:00)", "at(2026-02-30T00:00:00)", "at(2026-01-01T24:00:00)",
        "at(2026-01-01T00:00)", "at(2026-01-01T00:00:00+01:00)", "at(2026-01-01 00:00:00)",
        "at(0001-01-01T00:00:00)", "every 5 minutes", "0 9 * * *",
        "cron(0 9 * * ? *" + " " * 300 + ")",
    ],
)  # fmt: skip
def test_what_aws_does_not_document_is_refused(expression: str) -> None:
    with pytest.raises(Unparsable) as refusal:
        parse_aws(expression, timezone="Asia/Tokyo", anchor=NOW)
    assert str(refusal.value) == f"Invalid Schedule Expression {expression}."


def times(expression: str, timezone: str = "UTC", count: int = 3) -> str:
    timing = parse_aws(expression, timezone=timezone, anchor=NOW)
    shown = [f"{one:%Y-%m-%d %H:%M:%S}" for one in timing.times(NOW, limit=count)]
    return ", ".join(one.removesuffix(":00") for one in shown)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("cron(0/20 10 * * ? *)", "2026-07-01 10:20, 2026-07-01 10:40, 2026-07-02 10:00"),
        ("cron(50-10/10 8-8 1 * ? *)", "2026-08-01 08:00, 2026-08-01 08:10, 2026-08-01 08:50"),
        ("cron(0 20-2/3 * * ? *)", "2026-07-01 20:00, 2026-07-01 23:00, 2026-07-02 02:00"),
        ("cron(0 8 ? * SAT-SUN *)", "2026-07-04 08:00, 2026-07-05 08:00, 2026-07-11 08:00"),
        ("cron(0 8 ? * 1 *)", "2026-07-05 08:00, 2026-07-12 08:00, 2026-07-19 08:00"),
        ("cron(0 8 ? * L *)", "2026-07-04 08:00, 2026-07-11 08:00, 2026-07-18 08:00"),
        ("cron(0 8 ? * 6L *)", "2026-07-31 08:00, 2026-08-28 08:00, 2026-09-25 08:00"),
        ("cron(0 8 ? * TUE#5 *)", "2026-09-29 08:00, 2026-12-29 08:00, 2027-03-30 08:00"),
        ("cron(0 8 L * ? *)", "2026-07-31 08:00, 2026-08-31 08:00, 2026-09-30 08:00"),
        ("cron(0 8 LW FEB,AUG ? *)", "2026-08-31 08:00, 2027-02-26 08:00, 2027-08-31 08:00"),
        ("cron(0 8 1W 8-11 ? *)", "2026-08-03 08:00, 2026-09-01 08:00, 2026-10-01 08:00"),
        ("cron(0 8 31W 1-12 ? 2026)", "2026-07-31 08:00, 2026-08-31 08:00, 2026-10-30 08:00"),
        ("cron(0 8 1 1 ? 2028,2190/9)", "2028-01-01 08:00, 2190-01-01 08:00, 2199-01-01 08:00"),
        ("cron(0 8 1 1 ? 2027)", "2027-01-01 08:00"),
        ("cron(0 8 1 1 ? 2020)", ""),
        ("cron(0 8 30 2 ? *)", ""),
        ("cron(0 8 29 2 ? 2027,2029)", ""),
        ("rate(2 days)", "2026-07-03 10:00, 2026-07-05 10:00, 2026-07-07 10:00"),
        ("rate(1 hours)", "2026-07-01 11:00, 2026-07-01 12:00, 2026-07-01 13:00"),
        ("at(2026-07-01T10:00:01)", "2026-07-01 10:00:01"),
        ("at(2026-07-01T10:00:00)", ""),
        ("at(2001-01-01T00:00:00)", ""),
    ],
)  # fmt: skip
def test_times(expression: str, wanted: str) -> None:
    assert times(expression) == wanted


def test_the_zone_is_for_cron_and_at() -> None:
    assert times("cron(0 9 * * ? *)", "Asia/Tokyo", 1) == "2026-07-02 00:00"
    assert times("at(2026-07-02T09:00:05)", "Asia/Tokyo") == "2026-07-02 00:00:05"
    assert times("rate(1 day)", "Asia/Tokyo", 1) == "2026-07-02 10:00"


def test_unknown_zones_are_refused() -> None:
    with pytest.raises(Unparsable, match=r"Unknown timezone 'Asia/Tokio'.*Asia/Tokyo"):
        parse_aws("rate(1 day)", timezone="Asia/Tokio", anchor=NOW)


def test_a_rate_fires_at_its_anchor_first() -> None:
    timing = parse_aws("rate(5 minutes)", anchor=NOW)
    assert timing.next_after(NOW - timedelta(days=1)) == NOW
    assert timing.next_after(NOW) == NOW + timedelta(minutes=5)
    assert timing.next_after(NOW + timedelta(minutes=9, seconds=59)) == NOW + timedelta(minutes=10)


def test_a_rate_beyond_the_calendar_fires_once() -> None:
    timing = parse_aws("rate(999999999 days)", anchor=NOW)
    assert timing.next_after(NOW) is None


def test_the_canonical_form_is_the_expression() -> None:
    timing = parse_aws("cron(0 9 ? * MON#1 *)", timezone="Asia/Tokyo", anchor=NOW)
    assert canonical(timing) == {"cron": "cron(0 9 ? * MON#1 *)", "timezone": "Asia/Tokyo"}
